"""Which logs of a group are to be read now, and from where: what the job tells the process that plans its stream.

A small file, because Spark gives that process no other word of the job's. The table is right, the file repeats what it
says: the job writes it anew after each commit, before the batch ends, and whenever a log leaves or comes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sources.offsets import Offset


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a log is committed, None for nothing yet; there reading goes on. `identity` is that of `Known`.

    The job increases `turn` each time that it lists the log anew, so that whoever reads the file too seldom to see the
    log away still sees that it was.
    """

    position: Offset | None
    turn: int = 0
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The logs to be read, by log id; how many bytes of all of them a batch may take; and whether the job is stopping,
    so that no further batch begins."""

    positions: Mapping[str, Place]
    budget_bytes: int
    is_stopping: bool = False


NOTHING: Final = Standing(MappingProxyType({}), budget_bytes=1)


def write(path: str | os.PathLike[str], standing: Standing) -> None:
    """Replace the file at `path` by `standing`, at one stroke. One thread at a time. Raises OSError."""
    places = {log: [place.position, place.turn, place.identity] for log, place in standing.positions.items()}
    said = {"positions": places, "budget_bytes": standing.budget_bytes, "is_stopping": standing.is_stopping}
    temporary = Path(f"{os.fspath(path)}.new")
    temporary.write_text(json.dumps(said))
    temporary.replace(path)


def read(path: str | os.PathLike[str]) -> Standing:
    """What was written last; where there is no file, nothing is to be read.

    Cheap where nothing has changed since the last call. Raises OSError, ValueError for a file of another kind.
    """
    try:
        return _parsed(Path(path).read_bytes())
    except FileNotFoundError:
        return NOTHING


@functools.lru_cache(maxsize=1)
def _parsed(text: bytes) -> Standing:
    said = json.loads(text)
    places = {log: Place(*place) for log, place in said["positions"].items()}
    return Standing(MappingProxyType(places), said["budget_bytes"], said["is_stopping"])
