"""Base classes of policies: the common interface, three kinds of choice rule, and shared parameters."""
