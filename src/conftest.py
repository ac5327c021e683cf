"""What the examples in docstrings find: an empty folder and, for methods of the client, a service.

`url` is the address of the service. `client` is a client of a new experiment with the arms red and blue and
rewards from 0 to 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maillard import Client, Reward
from maillard.service import running

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def service_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that all examples share."""
    with running(tmp_path_factory.mktemp("service") / "decisions.db", no_keys=True) as url:
        yield url


@pytest.fixture(autouse=True)
def _client(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    if request.node.path.parent.name != "client":
        yield
        return
    url = request.getfixturevalue("service_url")
    with Client(url, experiment=f"example-{next(_numbers)}") as client:
        client.create(client.experiment or "", ["red", "blue"], reward=Reward(low=0, high=1))
        doctest_namespace.update(url=url, client=client)
        yield
    doctest_namespace.clear()
