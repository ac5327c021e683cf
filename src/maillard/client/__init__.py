"""The client of the decision service: the verbs of `Bandit`, for threads and for event loops."""

from __future__ import annotations

from maillard.client.clients import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __dir__() -> list[str]:
    return sorted(__all__)
