"""The decision service: the HTTP API, and the dashboard."""

from maillard.service.background import running

__all__ = ["running"]


def __dir__() -> list[str]:
    return sorted(__all__)
