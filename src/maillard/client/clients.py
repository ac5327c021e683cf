"""The blocking and the asynchronous client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from maillard.client import admin_methods, decide_methods, read_methods
from maillard.client.api_calls import ApiResponse, Steps, resume
from maillard.client.base_client import BaseClient, Scope, copy_signature
from maillard.client.retries import SendRequest, Sleep, send_with_retries
from maillard.client.transport import MAX_CONNECTIONS, ResponseBody, Transport
from maillard.decisions.forks import renew_after_fork
from maillard.errors import MaillardError

if TYPE_CHECKING:
    from maillard.policies import Policy

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _method(
    definition: Callable[Concatenate[Scope, Arguments], Steps[Result]],
) -> Callable[Concatenate[Client, Arguments], Result]:
    """A blocking method, made from its definition."""

    @copy_signature(definition)
    def method(self: Client, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return self._run(definition(self._scope, *arguments, **options))

    return method


class _Connections:
    """Connections that threads share. A forked child process opens its own."""

    def __init__(self, transport: Transport) -> None:
        self.transport, self.closed = transport, False
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Start without connections: the parent process reads the responses on its own."""
        self._http: httpx2.Client | None = None
        self._lock = threading.Lock()

    @property
    def http(self) -> httpx2.Client:
        """The HTTP client with the open connections."""
        with self._lock:
            if self.closed:
                raise MaillardError("this client is closed")
            if self._http is None:
                self._http = httpx2.Client(**self.transport.options())
            return self._http

    def send(self, send: SendRequest) -> ApiResponse:
        """Send a request and read the response."""
        with (
            self.http.stream(**self.transport.request(send)) as response,
            ResponseBody(self.transport, send, response) as body,
        ):
            for chunk in response.iter_bytes():
                body.append(chunk)
            return body.response()

    def close(self) -> None:
        """Close all connections. Later calls raise an error."""
        with self._lock:
            self.closed, http, self._http = True, self._http, None
        if http is not None:
            http.close()


class Client(BaseClient[_Connections]):
    """A client of the decision service, with the methods of `Bandit`.

    `url` is the address of `maillard serve`, and `key` an API key. `experiment` is the default experiment
    of all methods. A call that fails for a temporary reason is repeated up to `retries` times, unless a
    repetition could count something twice. Each attempt waits up to `timeout` seconds for each part of the
    response; a call with all its attempts takes at most (retries + 1) times that, and then raises
    `Unavailable`. The client sends a key only to https:// addresses and to this machine, unless `insecure`
    is true. Threads may share a client; a forked child process opens its own connections.

    Examples of the methods use a `client` whose experiment has the arms red and blue and rewards from 0 to 1.

    >>> from maillard import Reward
    >>> with Client(url, experiment="home") as client:  # at http://127.0.0.1:8000
    ...     configuration = client.create("home", ["red", "blue"], reward=Reward(low=0, high=1))
    ...     decision = client.choose(unit="user-17")
    ...     print(decision.probabilities, client.reward(decision, 1.0))
    {'red': 0.5, 'blue': 0.5} applied
    """

    _connect = _Connections

    choose = _method(decide_methods.choose)
    reward = _method(decide_methods.reward)
    rewards = _method(decide_methods.rewards)
    decision = _method(decide_methods.decision)

    create = _method(admin_methods.create)
    add_arm = _method(admin_methods.add_arm)
    retire_arm = _method(admin_methods.retire_arm)
    change_policy = _method(admin_methods.change_policy)
    change_features = _method(admin_methods.change_features)
    pause = _method(admin_methods.pause)
    resume = _method(admin_methods.resume)
    reset = _method(admin_methods.reset)
    archive = _method(admin_methods.archive)
    erase_unit = _method(admin_methods.erase_unit)

    experiments = _method(read_methods.experiments)
    summary = _method(read_methods.summary)
    contexts = _method(read_methods.contexts)
    evaluate = _method(read_methods.evaluate)
    verify = _method(read_methods.verify)
    head = _method(read_methods.head)
    export = _method(read_methods.export)

    @property
    def arms(self) -> list[str]:
        """The arms that are not retired."""
        return self._run(read_methods.arms(self._scope))

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._run(read_methods.policy(self._scope))

    def close(self) -> None:
        """Close the connections, unless they belong to another client.

        >>> other = client.bandit("prices")
        >>> other.close()  # the connections belong to the first client
        >>> client.close()
        """
        if not self._shares_connections:
            self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[Result]) -> Result:
        received: ApiResponse | Exception | None = None
        with closing(send_with_retries(steps, self._limits, self._scope.url)) as actions:
            try:
                while True:
                    received = self._perform(resume(actions, received))
            except StopIteration as done:
                result: Result = done.value
                return result

    def _perform(self, action: SendRequest | Sleep) -> ApiResponse | Exception | None:
        if isinstance(action, Sleep):
            time.sleep(action.seconds)
            return None
        try:
            return self._connections.send(action)
        except (httpx2.HTTPError, OSError) as error:
            return error


def _async_method(
    definition: Callable[Concatenate[Scope, Arguments], Steps[Result]],
) -> Callable[Concatenate[AsyncClient, Arguments], Coroutine[Any, Any, Result]]:
    """An asynchronous method, made from its definition."""

    @copy_signature(definition)
    async def method(self: AsyncClient, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return await self._run(definition(self._scope, *arguments, **options))

    return method


class _AsyncConnections:
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


class AsyncClient(BaseClient[_AsyncConnections]):
    """The asynchronous `Client`: the same methods, which must be awaited, as in `await client.arms`.

    A client belongs to one event loop.

    >>> from maillard import Reward
    >>> async def main():
    ...     client = AsyncClient(url, experiment="home-2")
    ...     await client.create("home-2", ["red", "blue"], reward=Reward(low=0, high=1))
    ...     decisions = await asyncio.gather(*(client.choose() for _ in range(3)))
    ...     print(await client.rewards([{"decision": each.id, "value": 1} for each in decisions]))
    ...     await client.close()
    >>> asyncio.run(main())
    ['applied', 'applied', 'applied']
    """

    _connect = _AsyncConnections

    choose = _async_method(decide_methods.choose)
    reward = _async_method(decide_methods.reward)
    rewards = _async_method(decide_methods.rewards)
    decision = _async_method(decide_methods.decision)

    create = _async_method(admin_methods.create)
    add_arm = _async_method(admin_methods.add_arm)
    retire_arm = _async_method(admin_methods.retire_arm)
    change_policy = _async_method(admin_methods.change_policy)
    change_features = _async_method(admin_methods.change_features)
    pause = _async_method(admin_methods.pause)
    resume = _async_method(admin_methods.resume)
    reset = _async_method(admin_methods.reset)
    archive = _async_method(admin_methods.archive)
    erase_unit = _async_method(admin_methods.erase_unit)

    experiments = _async_method(read_methods.experiments)
    summary = _async_method(read_methods.summary)
    contexts = _async_method(read_methods.contexts)
    evaluate = _async_method(read_methods.evaluate)
    verify = _async_method(read_methods.verify)
    head = _async_method(read_methods.head)
    export = _async_method(read_methods.export)

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
        received: ApiResponse | Exception | None = None
        with closing(send_with_retries(steps, self._limits, self._scope.url)) as actions:
            async with self._connections.semaphore:
                try:
                    while True:
                        received = await self._perform(resume(actions, received))
                except StopIteration as done:
                    result: Result = done.value
                    return result

    async def _perform(self, action: SendRequest | Sleep) -> ApiResponse | Exception | None:
        if isinstance(action, Sleep):
            await asyncio.sleep(action.seconds)
            return None
        try:
            return await self._connections.send(action)
        except (httpx2.HTTPError, OSError) as error:
            return error
