"""What the job tells the process that plans its stream: which logs of a group to read now, and from where.

It is a small file, because Spark gives the job no other way to tell that process. The table is authoritative and the
file repeats it: the job rewrites the file after each commit, before the batch ends, and whenever a log leaves or comes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sources.group.told_file import ToldFile, write_whole
from sources.offsets import Offset


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """Where a log is committed up to (None: nothing yet) and reading continues. `identity` is that of `Known`.

    The job increases `turn` each time it lists the log anew. So a reader that checks the file too rarely to see the log
    missing still notices that it was.
    """

    position: Offset | None
    turn: int = 0
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The logs to read, by log id; how many bytes of all of them a batch may take; and whether the job is stopping,
    after which no batch begins.
    """

    positions: Mapping[str, ReadingPlace]
    budget_bytes: int
    is_stopping: bool = False


NOTHING: Final = Standing(MappingProxyType({}), budget_bytes=1)


def write(path: str | os.PathLike[str], standing: Standing) -> None:
    """Replace the file at `path` with `standing`, atomically. For one thread at a time. Raises OSError."""
    places = {log: [place.position, place.turn, place.identity] for log, place in standing.positions.items()}
    said = {"positions": places, "budget_bytes": standing.budget_bytes, "is_stopping": standing.is_stopping}
    write_whole(path, said)


def file_at(path: str | os.PathLike[str]) -> ToldFile[Standing]:
    """Return the reader of the file at `path`; before there is one, nothing is to be read."""
    return ToldFile(path, _parsed, NOTHING)


def _parsed(said: Mapping[str, Any]) -> Standing:
    places = {log: ReadingPlace(*place) for log, place in said["positions"].items()}
    return Standing(MappingProxyType(places), said["budget_bytes"], said["is_stopping"])
