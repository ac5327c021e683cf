"""Where the service is, and whether an API key may travel there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from maillard.errors import InvalidValue

__all__ = ["Address", "check_address", "check_key"]

_FORM = "the address of a service, as in 'https://bandits.example' or 'http://127.0.0.1:8000'"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a service, checked."""

    url: str
    "Without a slash at its end."
    secure: bool
    "Whether what is sent is encrypted."
    loopback: bool
    "Whether it does not leave the machine."


def check_address(url: object) -> Address:
    """An address, if it is one.

    >>> check_address("http://127.0.0.1:8000/")
    Address(url='http://127.0.0.1:8000', secure=False, loopback=True)
    """
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidValue("url", url, _FORM)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidValue("url", url, f"{_FORM} ({error})") from None
    if "@" in parts.netloc:  # not shown: it may hold a password
        raise InvalidValue("url", _without_user(parts), f"{_FORM}, without a user's name: a key goes in key=")
    if parts.scheme not in ("http", "https") or not host or port == 0 or "?" in url or "#" in url:
        raise InvalidValue("url", url, _FORM)
    return Address(url.rstrip("/"), parts.scheme == "https", _is_loopback(host))


def check_key(key: object, address: Address, *, insecure: bool) -> str | None:
    """An API key, if it may be sent to the address. It is never shown."""
    if key is None:
        return None
    if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidValue("key", "(not shown)", "an API key, as `maillard keys create` printed it")
    if not address.secure and not address.loopback and not insecure:
        allowed = (
            "an https:// address for a key: over http:// whoever is on the way can read it "
            "(insecure=True, if the way is safe)"
        )
        raise InvalidValue("url", address.url, allowed)
    return key


def _without_user(parts: SplitResult) -> str:
    return parts._replace(netloc="..." + parts.netloc[parts.netloc.rindex("@") :]).geturl()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
