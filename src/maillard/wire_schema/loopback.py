"""Recognises addresses of this machine, for the service and the client."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host name or address can mean only this machine.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")]
    [True, True, True, True, True]
    >>> [is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.com")]
    [False, False, False, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:  # any other name may resolve to any address
        return False
