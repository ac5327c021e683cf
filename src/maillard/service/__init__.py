"""The decision service: the HTTP API, and the dashboard."""

from maillard.service.background import running

__all__ = ["running"]
