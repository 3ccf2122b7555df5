"""Sockets that the master listens on. They are bound before anything else, so a port that is taken is noticed first."""

from __future__ import annotations

import socket
from typing import Final

from sources.access.address import Address
from sources.errors import ConfigurationError

VIP_PORT_BELOW: Final = 2
"""A broker also takes requests two ports below its own; slaves fetch topics there (`MixAll.brokerVIPChannel`)."""
ATTEMPTS: Final = 20


def address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def bound(host: str, port: int, key: str) -> socket.socket:
    """Return a socket bound to `host` and `port`, for a service to listen on. Raises ConfigurationError."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"the master cannot listen at {host}:{port}",
            expected=f"a free {key}",
            found=error.strerror or str(error),
            hint=f"Stop what uses it, choose another {key}, or give 0 for a free one.",
        ) from error
    return listener


def bound_with_vip(host: str, port: int, attempts: int = ATTEMPTS) -> tuple[socket.socket, socket.socket]:
    """Return two sockets like `bound`, the second two ports below. Raises ConfigurationError; port 0: free ones."""
    listener = bound(host, port, "port")
    try:
        return listener, bound(host, address_of(listener).port - VIP_PORT_BELOW, "port, and the one two below")
    except ConfigurationError:
        listener.close()
        if port != 0 or attempts == 1:
            raise
    return bound_with_vip(host, port, attempts - 1)
