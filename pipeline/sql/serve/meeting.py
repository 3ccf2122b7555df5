"""The socket where ``logtwin sql --serve`` and its clients meet, which only its owner can reach.

The folder and the socket belong to the owner alone; both are checked before use. The socket's name says which replica
is served and how: it is a hash of the absolute warehouse, of the configuration sections on how to reach and read it,
and of the user. logtwin's version is not part of it: a client of another version must find the server, to say why it
does not use it.

The address of a socket has 108 bytes with the zero at its end on Linux (sun_path of unix(7)), 104 on macOS.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.system.folders import cache_folder
from sources.errors import ConfigurationError

LONGEST_ADDRESS_BYTES: Final = 103
_OWNER_ONLY: Final = 0o700
_CREDENTIALS: Final = struct.Struct("3i")


def socket_path(given: Mapping[str, object]) -> Path:
    """The path of the socket for a configuration `given` as parsed TOML. Its folder need not exist.

    Raises ConfigurationError if the path is too long for a socket.
    """
    local = local_warehouse(given)
    named = [str(given["warehouse"] if local is None else local), given.get("storage"), given.get("spark"), os.getuid()]
    name = hashlib.sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()[:16]
    path = _folder() / f"{name}.sock"
    if len(os.fsencode(path)) > LONGEST_ADDRESS_BYTES:
        raise ConfigurationError(
            f"the path of the socket is too long: {path}",
            expected=f"{LONGEST_ADDRESS_BYTES} bytes at most",
            found=len(os.fsencode(path)),
            hint="Set XDG_RUNTIME_DIR or LOGTWIN_CACHE to a folder with a shorter name.",
        )
    return path


def local_warehouse(given: Mapping[str, object]) -> Path | None:
    """The folder of the warehouse, absolute; None if it is not on a local disk."""
    warehouse = str(given.get("warehouse", "./warehouse"))
    return None if "://" in warehouse else Path(warehouse.removeprefix("file:")).resolve()


def _folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime).absolute() / "logtwin" if runtime else cache_folder().absolute() / "serve"


def make_folder(folder: Path) -> None:
    """Make the folder unless it exists. Raises ConfigurationError if others can enter it, or it cannot be made."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the folder {folder} cannot be made", found=error.strerror) from error
    check_owned(folder)


def check_owned(path: Path) -> None:
    """Check that only this user can use a folder or socket.

    Raises ConfigurationError if others can, FileNotFoundError if it does not exist.
    """
    found = path.lstat()
    is_ours = found.st_uid == os.getuid() and not found.st_mode & 0o077
    if is_ours and (stat.S_ISDIR(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
        return
    raise ConfigurationError(
        f"others can use {path}: they could answer, or read the answers",
        expected=f"owner {os.getuid()}, and no rights for others",
        found=f"owner {found.st_uid}, {stat.filemode(found.st_mode)}",
        hint="Remove it, or take the rights away.",
    )


def peer_is_owner(connection: socket.socket) -> bool:
    """Whether the peer's process belongs to this user, as the kernel says.

    True on systems whose kernel does not say: there only the folder keeps others out.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1]) == os.getuid()
