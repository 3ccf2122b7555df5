"""Ends an HA connection so that both sides know it has ended."""

from __future__ import annotations

import socket
import time
from typing import Final

DRAIN_BYTES: Final = 1024 * 1024


def say_goodbye(sock: socket.socket, *, within_s: float) -> bool:
    """Ends our half of the stream and takes in what is on its way until the master has ended its half: whether it has.

    A broker takes a connection off its list before it closes the socket (`DefaultHAConnection`, both services), so
    what has ended, or was reset, is counted no more. And closing with received bytes unread would reset the connection
    at once, before the master may have read the last report.
    """
    deadline = time.monotonic() + within_s
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DRAIN_BYTES)  # a session's is tiny
        while (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            if not sock.recv(DRAIN_BYTES):
                return True
    except ConnectionResetError:
        return True
    except OSError:  # out of time, or out of reach
        return False
    return False
