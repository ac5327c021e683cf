"""Sequential estimators: they read a log in its order, and are valid on adaptive logs."""
