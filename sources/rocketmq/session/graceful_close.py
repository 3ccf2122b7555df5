"""How to end an HA connection so that both sides know that it has ended."""

from __future__ import annotations

import socket
import time
from typing import Final

DRAIN_BYTES: Final = 1024 * 1024
ENDED: Final = (ConnectionResetError, BrokenPipeError)
"""What a socket raises once the master has reset the connection; broken, if it had ended its half before."""


def say_goodbye(sock: socket.socket, *, within_s: float) -> bool:
    """End our half of the stream and read what is still coming; return whether the master has ended its half.

    A broker takes a connection off its list before it closes the socket (`DefaultHAConnection`, both services), so a
    connection that has ended or was reset is no longer counted. Closing with unread bytes would reset the connection at
    once, perhaps before the master has read the last report.
    """
    deadline = time.monotonic() + within_s
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DRAIN_BYTES)  # a session's is tiny
        while (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            if not sock.recv(DRAIN_BYTES):
                return True
    except ENDED:
        return True
    except OSError:  # out of time, or out of reach
        return False
    return False
