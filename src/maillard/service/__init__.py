"""The decision service: the HTTP API, and the dashboard."""
