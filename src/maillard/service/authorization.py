"""The door: who may do what, from where, and how often."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from maillard.service.api_keys import Key, is_loopback
from maillard.service.http_responses import HttpError
from maillard.service.operations import Operation
from maillard.service.service_state import Service

__all__ = ["admitted", "charge"]

Scope = MutableMapping[str, Any]

_HOST = re.compile(rb"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
# What a proxy adds: then the caller may be anywhere.
_PASSED_ON = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))


def admitted(service: Service, operation: Operation, scope: Scope, headers: dict[bytes, bytes]) -> Key | None:
    """The key of the caller, if the caller may do this; None where no key is needed."""
    if operation.scope is None:
        return None
    given = headers.get(b"authorization")
    if given is None:
        if not service.open:
            raise _unauthorized("This needs an API key: Authorization: Bearer ...")
        _check_local(headers)
        _slow_down(service, scope, None)
        return None
    scheme, _, secret = given.decode("latin-1").partition(" ")
    key = service.keyring.find(secret.strip()) if scheme.lower() == "bearer" else None
    if key is None:
        raise _unauthorized("This is no API key, or one that was revoked.")
    _slow_down(service, scope, key)
    if operation.scope != "any" and not key.may(operation.scope):
        raise HttpError(403, "forbidden", f"This key does not have the scope {operation.scope!r}.")
    if operation.limited and not key.reaches(scope["path_params"]["experiment"]):
        raise HttpError(403, "forbidden", "This key is not for that experiment.")
    return key


def _unauthorized(message: str) -> HttpError:
    return HttpError(401, "unauthorized", message, None, ((b"www-authenticate", b"Bearer"),))


def _check_local(headers: dict[bytes, bytes]) -> None:
    """While there are no keys, neither a page from elsewhere in a browser on this machine nor a proxy's caller gets through."""
    own = headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin")  # as browsers say
    local = own and _is_local(headers.get(b"host", b"localhost"), headers.get(b"origin"))
    if not local or not _PASSED_ON.isdisjoint(headers):
        message = "Without API keys the service answers only to its own page and to programs on this machine, by a loopback name."
        raise HttpError(403, "forbidden", message)


@lru_cache(maxsize=1024)
def _is_local(host: bytes, origin: bytes | None) -> bool:
    name = _HOST.fullmatch(host)
    try:
        page = host if origin is None else urlsplit(origin).netloc
    except ValueError:
        return False
    return name is not None and is_loopback(name[1].decode()) and page == host


def _slow_down(service: Service, scope: Scope, key: Key | None) -> None:
    """Refuse who asks too often."""
    wait = service.limiter.wait(_caller(scope, key), rate=None if key is None else key.rate)
    if wait:
        seconds = str(max(1, -int(-wait // 1))).encode()
        raise HttpError(429, "too_many_requests", "Too many requests.", None, ((b"retry-after", seconds),))


def charge(service: Service, scope: Scope, key: Key | None, more: int) -> None:
    """Take the rest of what a batch costs: as much as its items. It is let in as one, and slows down what comes after it."""
    if more > 0:
        service.limiter.spend(_caller(scope, key), more, None if key is None else key.rate)


def _caller(scope: Scope, key: Key | None) -> str:
    if key is not None:
        return key.id
    client = scope.get("client")
    return client[0] if client else ""
