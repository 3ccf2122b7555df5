"""Which user is at the other end of a connection, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
_MAPPED: Final = socket.inet_pton(socket.AF_INET6, "::ffff:0:0")[:12]
"""Before the four bytes of an IPv4 address, where an IPv6 socket has it."""
_LOCAL, _REMOTE, _UID = 1, 2, 7  # columns of /proc/net/tcp


def peer_is_owner(connection: socket.socket, *, or_root: bool = False) -> bool:
    """Whether the peer's process belongs to this user. `connection` is a Unix socket, or one of IPv4 on this machine.

    With `or_root` also whether it is root's, who brings forwarded ports (kubectl port-forward). True on systems whose
    kernel does not say: there only the folder of the socket, or a secret, keeps others out.
    """
    users = {os.getuid(), 0} if or_root else {os.getuid()}
    if connection.family == socket.AF_UNIX:
        if not hasattr(socket, "SO_PEERCRED"):
            return True
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return _CREDENTIALS.unpack(found)[1] in users
    if not Path("/proc/net/tcp").exists():
        return True
    return _user_of(connection.getpeername(), connection.getsockname()) in users


def _user_of(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The user of the socket that has these two addresses; None if there is none, or it was closed."""
    wanted = set(zip(_written(local), _written(remote), strict=True))
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError), Path("/proc/net", table).open(encoding="ascii") as rows:  # or no IPv6
            for row in rows:
                said = row.split()
                if (said[_LOCAL], said[_REMOTE]) in wanted:
                    return int(said[_UID])
    return None


def _written(address: tuple[str, int]) -> Iterator[str]:
    """An IPv4 address as the kernel's tables have it, for a socket of IPv4 and for one of IPv6."""
    host = socket.inet_aton(address[0])
    for packed in (host, _MAPPED + host):
        words = struct.unpack(f"={len(packed) // 4}I", packed)
        yield "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
