"""Clients in threads, forked processes and event loops, and the agreement of both clients with Bandit."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import threading
from collections.abc import Iterator
from typing import assert_type

import pytest

from maillard import Bandit, Decision, Policy
from maillard.client import AsyncClient, Client
from maillard.decisions.decision import Outcome
from maillard.errors import InvalidValue, MaillardError
from tests.client.faulty_server import DECISION_MADE, ID, FaultyServer, faulty_server


@pytest.fixture
def service() -> Iterator[FaultyServer]:
    with faulty_server() as made:
        yield made.respond_with(DECISION_MADE)


def test_threads_share_a_client(service) -> None:
    with Client(service.url, experiment="home") as client:
        made: list[str] = []

        def choose() -> None:
            made.extend(client.choose().id for _ in range(20))

        threads = [threading.Thread(target=choose) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(made) == 160
    assert len({each.headers["idempotency-key"] for each in service.requests}) == 160
    assert len(service.connections) <= 8


def test_a_forked_child_opens_its_own_connections(service) -> None:
    with Client(service.url, experiment="home") as client:
        client.choose()
        (parent_connection,) = service.connections
        child = os.fork()
        if not child:
            try:
                client.choose()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert len(service.connections) == 2
        service.connections.clear()
        client.choose()
        assert service.connections == {parent_connection}


def test_a_closed_client_raises(service) -> None:
    client = Client(service.url)
    bound = client.bandit("home")
    with bound:
        assert bound.choose().id == ID
    assert bound.choose().id == ID  # `bound` uses the connections of `client`
    assert len(service.connections) == 1
    client.close()
    client.close()
    for each in (client, bound):
        with pytest.raises(MaillardError, match="this client is closed"):
            each.choose(experiment="home")


def test_an_asynchronous_client_belongs_to_one_event_loop(service) -> None:
    client = AsyncClient(service.url, experiment="home")

    async def choose() -> None:
        await asyncio.gather(*(client.choose() for _ in range(300)))
        assert len(service.requests) == 300
        assert len(service.connections) <= 32

    with asyncio.Runner() as runner:
        runner.run(choose())
        with pytest.raises(MaillardError, match="another event loop"):
            asyncio.run(choose())
        runner.run(client.close())
        with pytest.raises(MaillardError, match="this client is closed"):
            runner.run(choose())


def test_the_error_for_a_missing_experiment_says_how_to_name_it() -> None:
    with pytest.raises(
        InvalidValue, match=r"experiment: expected a name: experiment='home' here or in Client"
    ):
        Client("http://127.0.0.1:9").choose()


# Both clients have one definition of each method.


def test_both_clients_have_the_methods_of_a_bandit() -> None:
    methods = [
        "choose",
        "reward",
        "rewards",
        "decision",
        "add_arm",
        "retire_arm",
        "change_policy",
        "change_features",
        "pause",
        "resume",
        "reset",
        "archive",
        "summary",
    ]
    for name, client_class in itertools.product(methods, (Client, AsyncClient)):
        bandit_parameters = dict(inspect.signature(getattr(Bandit, name)).parameters)
        client_parameters = dict(inspect.signature(getattr(client_class, name)).parameters)
        bandit_parameters.pop("expected", None)  # the client uses an etag
        assert [(each.name, each.kind, each.default) for each in bandit_parameters.values()] == [
            (each.name, each.kind, each.default)
            for each in client_parameters.values()
            if each.name not in ("experiment", "etag")
        ]
    public = [
        {name for name in vars(client_class) if not name.startswith("_")}
        for client_class in (Client, AsyncClient)
    ]
    assert (
        public[0]
        == public[1]
        > {*methods, "create", "experiments", "evaluate", "verify", "export", "arms", "policy"}
    )


def test_methods_have_signatures_and_docstrings() -> None:
    assert str(inspect.signature(Client.choose)).endswith("-> 'Decision | list[Decision]'")
    assert str(inspect.signature(AsyncClient.evaluate)).endswith("-> 'dict[str, Any]'")
    assert "Log a reward" in (AsyncClient.reward.__doc__ or "")
    assert inspect.iscoroutinefunction(AsyncClient.choose)
    assert not inspect.iscoroutinefunction(Client.choose)


async def types(client: Client, other: AsyncClient) -> None:
    """Checked by mypy, never run."""
    assert_type(client.choose(unit="u"), Decision)
    assert_type(client.choose(size=2), list[Decision])
    assert_type(await other.choose(unit="u"), Decision)
    assert_type(await other.choose(size=2, experiment="home"), list[Decision])
    assert_type(client.reward(ID, 1.0), Outcome)
    assert_type(await other.rewards([]), list[Outcome])
    assert_type(client.arms, list[str])
    assert_type(await other.policy, Policy)
    assert_type(other.bandit("home"), AsyncClient)
    client.reward(ID)  # type: ignore[call-arg]
