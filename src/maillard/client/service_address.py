"""Checks the address of a service, and whether an API key may be sent to it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from maillard.errors import InvalidValue
from maillard.wire_schema.loopback import is_loopback

_ALLOWED = "the address of a service, as in 'https://bandits.example' or 'http://127.0.0.1:8000'"


@dataclass(frozen=True, slots=True)
class Address:
    """The valid address of a service."""

    url: str
    "Without a trailing slash."
    secure: bool
    "Whether the connection is encrypted."
    loopback: bool
    "Whether the address is on this machine."


def check_address(url: object) -> Address:
    """Parse and check an address.

    >>> check_address("http://127.0.0.1:8000/")
    Address(url='http://127.0.0.1:8000', secure=False, loopback=True)
    """
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidValue("url", url, _ALLOWED)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidValue("url", url, f"{_ALLOWED} ({error})") from None
    if "@" in parts.netloc:  # not shown: it may contain a password
        raise InvalidValue(
            "url", _without_user(parts), f"{_ALLOWED}, without a user name: pass the key as key="
        )
    if parts.scheme not in ("http", "https") or not host or port == 0 or "?" in url or "#" in url:
        raise InvalidValue("url", url, _ALLOWED)
    return Address(url.rstrip("/"), parts.scheme == "https", is_loopback(host))


def check_key(key: object, address: Address, *, insecure: bool) -> str | None:
    """Check that a key has a valid form and may be sent to the address. The key is never shown."""
    if key is None:
        return None
    if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidValue("key", "(not shown)", "an API key, as `maillard keys create` printed it")
    if not address.secure and not address.loopback and not insecure:
        allowed = (
            "an https:// address, because others on the network can read a key that is sent over http:// "
            "(pass insecure=True if the network is safe)"
        )
        raise InvalidValue("url", address.url, allowed)
    return key


def _without_user(parts: SplitResult) -> str:
    return parts._replace(netloc="..." + parts.netloc[parts.netloc.rindex("@") :]).geturl()
