"""What the job and the process that plans its stream tell each other, in small files: Spark gives them no other way.

The job tells which logs of a group to read now, and from where: the standing. The table is authoritative and the file
repeats it: the job rewrites the file after each commit, before the batch ends, and whenever a log leaves or comes.

The planner tells what the masters of these logs hold, in a file beside it (`Teller` writes it). So each master is asked
once, for both of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from sources.offsets import Offset, OffsetRange

T = TypeVar("T")

UNLISTED: Final = 0
"""The turn of a log that the job has not listed, as a partition that was just added to a topic. Turns begin at 1."""


def write_whole(path: str | os.PathLike[str], value: object) -> None:
    """Replace the file at `path` with `value` as JSON, atomically. For one thread at a time. Raises OSError."""
    temporary = Path(f"{os.fspath(path)}.new")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


class ToldFile(Generic[T]):
    """The reader's side of such a file, at `path`, for one thread; `parse` makes a value of the JSON."""

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[Any], T], nothing: T) -> None:
        self._path = Path(path)
        self._parse = parse
        self._text = b""
        self._value = nothing

    def read(self) -> T:
        """Return what was written last, the same object as before if it is the same; `nothing` before there is a file.

        Raises OSError; ValueError for a file of another kind.
        """
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return self._value
        if text != self._text:
            self._value = self._parse(json.loads(text))
            self._text = text
        return self._value


@dataclass(frozen=True, slots=True)
class ListedLog:
    """A log to read: its position (None: nothing is committed yet), and which log it is (`Known.identity`).

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

    positions: Mapping[str, ListedLog]
    budget_bytes: int
    is_stopping: bool = False


NOTHING: Final = Standing(MappingProxyType({}), budget_bytes=1)


def write(path: str | os.PathLike[str], standing: Standing) -> None:
    """Replace the file at `path` with `standing`, atomically. For one thread at a time. Raises OSError."""
    positions = {log: [one.position, one.turn, one.identity] for log, one in standing.positions.items()}
    write_whole(
        path, {"positions": positions, "budget_bytes": standing.budget_bytes, "is_stopping": standing.is_stopping}
    )


def file_at(path: str | os.PathLike[str]) -> ToldFile[Standing]:
    """Return the reader of the file at `path`; before there is one, nothing is to be read."""
    return ToldFile(path, _parsed, NOTHING)


def _parsed(stored: Mapping[str, Any]) -> Standing:
    positions = {log: ListedLog(*listed) for log, listed in stored["positions"].items()}
    return Standing(MappingProxyType(positions), stored["budget_bytes"], stored["is_stopping"])


@dataclass(frozen=True, slots=True)
class Sighting:
    """The bounds of a log when the job had listed it for the `turn`-th time (`ListedLog`)."""

    bounds: OffsetRange
    turn: int


Seen = Mapping[str, Sighting]
"""The sightings by log id."""


def path_beside(standing_path: Path) -> Path:
    return standing_path.with_name("seen.json")


def write_seen(path: Path, seen: Seen) -> None:
    """Replace the file at `path` with `seen`, atomically. For one thread at a time. Raises OSError."""
    write_whole(path, {log: [one.bounds.start, one.bounds.end, one.turn] for log, one in seen.items()})


def seen_file_at(path: Path) -> ToldFile[Seen]:
    """Return the reader of the file at `path`; before there is one, nothing was seen."""
    return ToldFile(path, _seen_in, {})


def _seen_in(stored: Mapping[str, tuple[int, int, int]]) -> Seen:
    return {log: Sighting(OffsetRange(Offset(start), Offset(end)), turn) for log, (start, end, turn) in stored.items()}
