"""What the planner tells the job: what the masters of its logs hold. So each master is asked once, for both of them.

It is a small file beside the standing (`sources.group.standing`), for the same reason. `Teller` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sources.group.told_file import ToldFile, write_whole
from sources.offsets import Offset, OffsetRange

UNLISTED: Final = 0
"""The turn of a log that the job has not listed, as a partition that was just added to a topic. Turns begin at 1."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a master held of a log, when the job had listed the log for the `turn`-th time (`ReadingPlace`)."""

    held: OffsetRange
    turn: int


Seen = Mapping[str, Sighting]
"""The sightings by log id."""


def path_beside(standing_path: Path) -> Path:
    return standing_path.with_name("seen.json")


def write(path: Path, seen: Seen) -> None:
    """Replace the file at `path` with `seen`, atomically. For one thread at a time. Raises OSError."""
    write_whole(path, {log: [one.held.start, one.held.end, one.turn] for log, one in seen.items()})


def file_at(path: Path) -> ToldFile[Seen]:
    """Return the reader of the file at `path`; before there is one, nothing was seen."""
    return ToldFile(path, _parsed, {})


def _parsed(said: Mapping[str, tuple[int, int, int]]) -> Seen:
    return {log: Sighting(OffsetRange(Offset(start), Offset(end)), turn) for log, (start, end, turn) in said.items()}
