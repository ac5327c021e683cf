"""The client of the decision service: the verbs of `Bandit`, for threads and for event loops."""

from __future__ import annotations

from maillard.client.asynchronous import AsyncClient
from maillard.client.synchronous import Client

__all__ = ["AsyncClient", "Client"]
