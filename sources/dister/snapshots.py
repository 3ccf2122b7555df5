"""The current whole states beside a leader's log: its services and its nodes.

Each look opens the file, or asks the node, again; nothing is kept.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Final

from sources.dister.states import SERVICE_FILE, NodeInfo, ServiceRegistry, decode_nodes, decode_services
from sources.errors import MasterError, MasterRefused, MasterSilent, MasterUnreachable

TIMEOUT_S: Final = 6.0
"""dister's own read timeout."""


def read_services(folder: Path) -> ServiceRegistry:
    """Return the registry of the leader that keeps its data in `folder`; an empty one if it has no service file.

    Raises MasterSilent (half-written), MasterUnreachable (unreadable), ProtocolViolation.
    """
    path = folder / SERVICE_FILE
    return decode_services(_read(path)) if path.exists() else ServiceRegistry()


def read_nodes(where: str, timeout_s: float = TIMEOUT_S) -> tuple[NodeInfo, ...]:
    """Return the nodes listed `where`: a file, or the http URL of a node's ``/node``.

    Raises MasterUnreachable, MasterSilent (no answer in time, or half-written), MasterRefused, ProtocolViolation.
    """
    is_url = where.startswith(("http://", "https://"))
    return decode_nodes(_asked(where, timeout_s) if is_url else _read(Path(where)), where)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "Check `path` and `peers`, and who may read there."
        raise MasterUnreachable(f"{path} cannot be read", found=error.strerror, hint=hint) from error


def _asked(url: str, timeout_s: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310  (http only: the caller looked)
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise MasterRefused(f"{url} does not list its peers", expected="200", found=error.code) from error
    except (HTTPException, OSError, ValueError) as error:  # a URLError is an OSError; ValueError: no usable URL
        raise _unanswered(url, timeout_s, error) from error


def _unanswered(url: str, timeout_s: float, error: Exception) -> MasterError:
    reason = getattr(error, "reason", error)  # of a URLError
    if isinstance(reason, TimeoutError):
        return MasterSilent(f"no answer from {url}", expected=f"one within {timeout_s:g} s", found=reason)
    return MasterUnreachable(
        f"{url} cannot be asked for the nodes",
        found=reason,
        hint="Check `peers`: dister answers REST at port 4168, on its own host only.",
    )
