"""Ports on loopback for programs that take fixed ones."""

from __future__ import annotations

import random
import socket


def free_port(*beside: int) -> int:
    """A port that nobody listens at, nor at those that lie at the distances `beside` it.

    Below the range from which the system gives ports to clients, so that no connection of another program sits on them.
    """
    candidates = random.Random()  # noqa: S311  (a port is no secret)
    while True:
        port = candidates.randrange(20_000, 32_000)
        if all(_is_free(port + distance) for distance in (0, *beside)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
