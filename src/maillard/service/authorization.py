"""Authorization of requests: API keys, scopes, local access without keys (--no-keys), and rate limits."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from maillard.service.api_keys import Key
from maillard.service.http_responses import HttpError, too_many_requests
from maillard.service.operations import Operation
from maillard.service.service_state import Service
from maillard.wire_schema.loopback import is_loopback

Scope = MutableMapping[str, Any]

_HOST = re.compile(rb"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
# Headers that proxies add. Behind a proxy, a request from loopback may come from anywhere.
_PROXY_HEADERS = frozenset((b"forwarded", b"via", b"x-real-ip"))
_SUBSCRIPTION_KEY = b"ocp-apim-subscription-key"
_PROXY_PREFIX = b"x-forwarded-"


def authorize(
    service: Service, operation: Operation, scope: Scope, headers: dict[bytes, bytes]
) -> Key | None:
    """The key of the caller, or None if no key is needed. Raises if the caller may not do this."""
    if operation.scope is None:
        return None
    given = headers.get(b"authorization")
    if given is None and operation.of_personalizer and not service.open:  # its SDKs always send some key
        subscription = headers.get(_SUBSCRIPTION_KEY)
        given = None if subscription is None else b"Bearer " + subscription
    if given is None:
        if not service.open:
            how = (
                "Ocp-Apim-Subscription-Key: KEY" if operation.of_personalizer else "Authorization: Bearer KEY"
            )
            raise _unauthorized(f"This operation needs an API key: send {how}.")
        _check_local(scope, headers)
        _check_rate(service, scope, None)
        return None
    scheme, _, secret = given.decode("latin-1").partition(" ")
    key = service.keyring.find(secret.strip()) if scheme.lower() == "bearer" else None
    if key is None:
        raise _unauthorized("The API key is invalid or was revoked.")
    _check_rate(service, scope, key)
    if operation.scope != "any" and not key.may(operation.scope):
        raise HttpError(403, "forbidden", f"This key does not have the scope {operation.scope!r}.")
    if operation.names_experiment and not key.reaches(scope["path_params"]["experiment"]):
        raise HttpError(403, "forbidden", "This key does not allow access to that experiment.")
    return key


def _unauthorized(message: str) -> HttpError:
    return HttpError(401, "unauthorized", message, None, ((b"www-authenticate", b"Bearer"),))


def _check_local(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """Without keys, reject requests from web pages of other origins and, if recognised, from proxies."""
    if _is_proxied(scope, headers):
        message = (
            "This request came through a proxy, or it uses HTTP/1.0 as proxies do. The service was started "
            "with --no-keys, for development on this machine only. Start it without --no-keys: then every "
            "caller needs an API key."
        )
        raise HttpError(403, "forbidden", message)
    same_origin = headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin")  # browsers send it
    if not (same_origin and _is_local(headers.get(b"host", b"localhost"), headers.get(b"origin"))):
        message = (
            "With --no-keys the service answers only its own dashboard and programs on this machine, at a "
            "loopback address. Start it without --no-keys: then callers with an API key can use it."
        )
        raise HttpError(403, "forbidden", message)


def _is_proxied(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a proxy is recognised. A proxy that adds no header and uses HTTP/1.1 is not.

    Clients hardly ever use HTTP/1.0; nginx before version 1.30 does by default.
    """
    return scope.get("http_version") == "1.0" or _has_proxy_header(tuple(headers))


@lru_cache(maxsize=64)
def _has_proxy_header(names: tuple[bytes, ...]) -> bool:
    return not _PROXY_HEADERS.isdisjoint(names) or any(name.startswith(_PROXY_PREFIX) for name in names)


@lru_cache(maxsize=1024)
def _is_local(host: bytes, origin: bytes | None) -> bool:
    name = _HOST.fullmatch(host)
    try:
        page = host if origin is None else urlsplit(origin).netloc
    except ValueError:
        return False
    return name is not None and is_loopback(name[1].decode()) and page == host


def _check_rate(service: Service, scope: Scope, key: Key | None) -> None:
    """Raise if the caller makes too many requests."""
    wait = service.limiter.acquire(_caller(scope, key), rate=None if key is None else key.rate)
    if wait:
        raise too_many_requests(wait)


def charge_batch(service: Service, scope: Scope, key: Key | None, more: int) -> None:
    """Charge a batch for its items after the first. Raise if the caller makes too many requests."""
    if more > 0:
        rate = None if key is None else key.rate
        if wait := service.limiter.acquire_more(_caller(scope, key), more, rate):
            raise too_many_requests(wait)


def limit_unauthorized(service: Service, scope: Scope) -> None:
    """Raise if this address sends too many requests without a valid key."""
    if wait := service.unauthorized_limiter.acquire(_caller(scope, None)):
        raise too_many_requests(wait)


def _caller(scope: Scope, key: Key | None) -> str:
    if key is not None:
        return key.id
    client = scope.get("client")
    return client[0] if client else ""
