"""The client for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from maillard.client import changing, deciding, looking
from maillard.client.calls import Answer, Steps
from maillard.client.retries import Send, Wait, converse
from maillard.client.scope import Scope, spoken_like
from maillard.client.speaker import Speaker
from maillard.client.wire import MOST_CONNECTIONS, Body, Wire
from maillard.errors import MaillardError
from maillard.policies import Policy

__all__ = ["AsyncClient"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _method(
    verb: Callable[Concatenate[Scope, Arguments], Steps[Result]],
) -> Callable[Concatenate[AsyncClient, Arguments], Coroutine[Any, Any, Result]]:
    """A verb as a method to await."""

    @spoken_like(verb)
    async def method(self: AsyncClient, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return await self._speak(verb(self._scope, *arguments, **options))

    return method


class _Connections:
    """Connections of one event loop."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.closed = wire, False
        self._made: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Time counts from a call's turn, so that thousands may be started at once.
        self.turn = asyncio.Semaphore(MOST_CONNECTIONS)

    def check(self) -> None:
        """Whether this loop may use them."""
        if self.closed:
            raise MaillardError("this client is closed")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise MaillardError("this client belongs to another event loop: make one in each")
        self._loop = loop

    @property
    def http(self) -> httpx2.AsyncClient:
        """The open connections."""
        self.check()
        if self._made is None:
            self._made = httpx2.AsyncClient(**self.wire.options())
        return self._made

    async def send(self, send: Send) -> Answer:
        """Send a call and read its answer."""
        async with self.http.stream(**self.wire.request(send)) as response:
            with Body(self.wire, send, response) as body:
                async for piece in response.aiter_bytes():
                    body.take(piece)
                return body.answer()

    async def close(self) -> None:
        """Close them for good."""
        self.closed, made, self._made = True, self._made, None
        if made is not None:
            await made.aclose()


class AsyncClient(Speaker[_Connections]):
    """`Client` for asyncio: the same verbs, each to be awaited, also `await client.arms`. One event loop uses it."""

    def _connect(self, wire: Wire) -> _Connections:
        return _Connections(wire)

    choose = _method(deciding.choose)
    reward = _method(deciding.reward)
    rewards = _method(deciding.rewards)
    decision = _method(deciding.decision)

    create = _method(changing.create)
    add_arm = _method(changing.add_arm)
    retire_arm = _method(changing.retire_arm)
    change_policy = _method(changing.change_policy)
    pause = _method(changing.pause)
    resume = _method(changing.resume)
    reset = _method(changing.reset)
    archive = _method(changing.archive)

    experiments = _method(looking.experiments)
    summary = _method(looking.summary)
    evaluate = _method(looking.evaluate)
    verify = _method(looking.verify)
    export = _method(looking.export)

    @property
    def arms(self) -> Coroutine[Any, Any, list[str]]:
        """The arms that are not retired."""
        return self._speak(looking.arms(self._scope))

    @property
    def policy(self) -> Coroutine[Any, Any, Policy]:
        """The policy in force."""
        return self._speak(looking.policy(self._scope))

    async def close(self) -> None:
        """Close the connections, if they are this client's own."""
        if not self._shares:
            await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _speak(self, steps: Steps[Result]) -> Result:
        self._connections.check()
        async with self._connections.turn:
            return await self._converse(steps)

    async def _converse(self, steps: Steps[Result]) -> Result:
        with closing(converse(steps, self._limits, self._scope.url)) as actions:
            step: Callable[[Any], Send | Wait] = actions.send
            given: Answer | Exception | None = None
            while True:
                try:
                    action = step(given)
                except StopIteration as done:
                    result: Result = done.value
                    return result
                try:
                    given, step = await self._do(action), actions.send
                except (httpx2.HTTPError, OSError) as error:
                    given, step = error, actions.throw

    async def _do(self, action: Send | Wait) -> Answer | None:
        if isinstance(action, Send):
            return await self._connections.send(action)
        await asyncio.sleep(action.seconds)
        return None
