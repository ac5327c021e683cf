"""The client of the decision service: the verbs of `Bandit`, for threads and for event loops."""

from __future__ import annotations

from maillard.client.async_client import AsyncClient
from maillard.client.sync_client import Client

__all__ = ["AsyncClient", "Client"]
