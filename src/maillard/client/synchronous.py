"""The client for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from maillard.client import changing, deciding, looking
from maillard.client.calls import Answer, Steps
from maillard.client.retries import Send, Wait, converse
from maillard.client.scope import Scope, spoken_like
from maillard.client.speaker import Speaker
from maillard.client.wire import Body, Wire
from maillard.decisions.forks import renew_after_fork
from maillard.errors import MaillardError
from maillard.policies import Policy

__all__ = ["Client"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _method(
    verb: Callable[Concatenate[Scope, Arguments], Steps[Result]],
) -> Callable[Concatenate[Client, Arguments], Result]:
    """A verb as a method that returns when it is done."""

    @spoken_like(verb)
    def method(self: Client, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return self._speak(verb(self._scope, *arguments, **options))

    return method


class _Connections:
    """Connections that threads share, and that a forked child does not."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.closed = wire, False
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin without any: those of a parent carry the parent's answers."""
        self._made: httpx2.Client | None = None
        self._lock = threading.Lock()

    @property
    def http(self) -> httpx2.Client:
        """The open connections."""
        with self._lock:
            if self.closed:
                raise MaillardError("this client is closed")
            if self._made is None:
                self._made = httpx2.Client(**self.wire.options())
            return self._made

    def send(self, send: Send) -> Answer:
        """Send a call and read its answer."""
        with (
            self.http.stream(**self.wire.request(send)) as response,
            Body(self.wire, send, response) as body,
        ):
            for piece in response.iter_bytes():
                body.take(piece)
            return body.answer()

    def close(self) -> None:
        """Close them for good."""
        with self._lock:
            self.closed, made, self._made = True, self._made, None
        if made is not None:
            made.close()


class Client(Speaker[_Connections]):
    """A bandit whose decisions another process makes: the verbs of `Bandit`, spoken to a service.

    `url` is where `maillard serve` listens, `key` an API key; `experiment` is the one that is meant where a call names none.
    A call that fails for a reason that may pass is made again, up to `retries` times, where that cannot count anything twice. A try waits
    `timeout` seconds for each part of an answer, a call with all its tries at most (retries + 1) times that; then it is `Unavailable`. A key goes to
    https:// addresses and to this machine; to others only with `insecure`. Threads may share a client; a forked child makes its
    own connections.
    """

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
    def arms(self) -> list[str]:
        """The arms that are not retired."""
        return self._speak(looking.arms(self._scope))

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._speak(looking.policy(self._scope))

    def close(self) -> None:
        """Close the connections, if they are this client's own."""
        if not self._shares:
            self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _speak(self, steps: Steps[Result]) -> Result:
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
                    given, step = self._do(action), actions.send
                except (httpx2.HTTPError, OSError) as error:
                    given, step = error, actions.throw

    def _do(self, action: Send | Wait) -> Answer | None:
        if isinstance(action, Send):
            return self._connections.send(action)
        time.sleep(action.seconds)
        return None
