"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from maillard.client import admin_methods, decide_methods, read_methods
from maillard.client.api_calls import ApiResponse, Steps
from maillard.client.base_client import BaseClient, Scope, copy_signature
from maillard.client.retries import SendRequest, Sleep, send_with_retries
from maillard.client.transport import MAX_CONNECTIONS, ResponseBody, Transport
from maillard.errors import MaillardError
from maillard.policies import Policy

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _method(
    definition: Callable[Concatenate[Scope, Arguments], Steps[Result]],
) -> Callable[Concatenate[AsyncClient, Arguments], Coroutine[Any, Any, Result]]:
    """An asynchronous method, made from its definition."""

    @copy_signature(definition)
    async def method(self: AsyncClient, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return await self._run(definition(self._scope, *arguments, **options))

    return method


class _Connections:
    """The connections of one event loop."""

    def __init__(self, transport: Transport) -> None:
        self.transport, self.closed = transport, False
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # A call's time limit starts when it gets a connection, so thousands of calls may be started at once.
        self.semaphore = asyncio.Semaphore(MAX_CONNECTIONS)

    def check(self) -> None:
        """Raise an error if the client is closed or belongs to another event loop."""
        if self.closed:
            raise MaillardError("this client is closed")
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise MaillardError("this client belongs to another event loop; create one client per event loop")
        self._loop = loop

    @property
    def http(self) -> httpx2.AsyncClient:
        """The HTTP client with the open connections."""
        self.check()
        if self._http is None:
            self._http = httpx2.AsyncClient(**self.transport.options())
        return self._http

    async def send(self, send: SendRequest) -> ApiResponse:
        """Send a request and read the response."""
        async with self.http.stream(**self.transport.request(send)) as response:
            with ResponseBody(self.transport, send, response) as body:
                async for chunk in response.aiter_bytes():
                    body.append(chunk)
                return body.response()

    async def close(self) -> None:
        """Close all connections. Later calls raise an error."""
        self.closed, http, self._http = True, self._http, None
        if http is not None:
            await http.aclose()


class AsyncClient(BaseClient[_Connections]):
    """The asynchronous `Client`: the same methods, which must be awaited, as in `await client.arms`.

    A client belongs to one event loop.
    """

    def _connect(self, transport: Transport) -> _Connections:
        return _Connections(transport)

    choose = _method(decide_methods.choose)
    reward = _method(decide_methods.reward)
    rewards = _method(decide_methods.rewards)
    decision = _method(decide_methods.decision)

    create = _method(admin_methods.create)
    add_arm = _method(admin_methods.add_arm)
    retire_arm = _method(admin_methods.retire_arm)
    change_policy = _method(admin_methods.change_policy)
    pause = _method(admin_methods.pause)
    resume = _method(admin_methods.resume)
    reset = _method(admin_methods.reset)
    archive = _method(admin_methods.archive)

    experiments = _method(read_methods.experiments)
    summary = _method(read_methods.summary)
    evaluate = _method(read_methods.evaluate)
    verify = _method(read_methods.verify)
    export = _method(read_methods.export)

    @property
    def arms(self) -> Coroutine[Any, Any, list[str]]:
        """The arms that are not retired."""
        return self._run(read_methods.arms(self._scope))

    @property
    def policy(self) -> Coroutine[Any, Any, Policy]:
        """The current policy."""
        return self._run(read_methods.policy(self._scope))

    async def close(self) -> None:
        """Close the connections, unless they belong to another client."""
        if not self._shares_connections:
            await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps: Steps[Result]) -> Result:
        self._connections.check()
        async with self._connections.semaphore:
            return await self._run_steps(steps)

    async def _run_steps(self, steps: Steps[Result]) -> Result:
        with closing(send_with_retries(steps, self._limits, self._scope.url)) as actions:
            step: Callable[[Any], SendRequest | Sleep] = actions.send
            outcome: ApiResponse | Exception | None = None
            while True:
                try:
                    action = step(outcome)
                except StopIteration as done:
                    result: Result = done.value
                    return result
                try:
                    outcome, step = await self._perform(action), actions.send
                except (httpx2.HTTPError, OSError) as error:
                    outcome, step = error, actions.throw

    async def _perform(self, action: SendRequest | Sleep) -> ApiResponse | None:
        if isinstance(action, SendRequest):
            return await self._connections.send(action)
        await asyncio.sleep(action.seconds)
        return None
