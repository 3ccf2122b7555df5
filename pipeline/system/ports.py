"""Free ports for programs that need fixed ones."""

from __future__ import annotations

import random
import socket


def free_port(*beside: int) -> int:
    """A free port; those at the distances `beside` from it are free, too.

    It is below the range from which the system assigns ports to clients, so that no other program's connection uses it.
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
