"""What the job tells the process that plans its stream: which masters there are, and how each is read.

It is a small file beside the standing (`sources.group.standing`), for the same reason. A job that finds further masters
adds them at the end, before its standing lists their logs. None is changed or taken away: one that is not to be read is
not in the standing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel

from sources.group.standing import ToldFile, write_whole
from sources.options import ReadOptions, parse_options
from sources.registry import FollowedOptions

NOTHING: Final[list[dict[str, Any]]] = []


def write(path: str | os.PathLike[str], masters: Sequence[BaseModel]) -> None:
    """Replace the file at `path` with the options of all `masters`, atomically. For one thread at a time.

    Raises OSError.
    """
    write_whole(path, [{name: _as_json(value) for name, value in one if value is not None} for one in masters])


def _as_json(value: object) -> object:
    return value if isinstance(value, bool | int | float) else str(value)


class MastersFile:
    """The reader's side of the file at `path`, for one thread. Can be pickled."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: ToldFile[list[dict[str, Any]]] = ToldFile(path, _objects, NOTHING)
        self._taken = 0

    def added(self) -> list[FollowedOptions]:
        """Return the masters that were added since the last call; at the first all of them.

        Raises OSError; ValueError for a file of another kind; ConfigurationError naming a master by its number, from 0.
        """
        said = self._file.read()
        found = [_options(one, f"masters[{number}]") for number, one in enumerate(said) if number >= self._taken]
        self._taken = len(said)
        return found


def _objects(said: object) -> list[dict[str, Any]]:
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise ValueError("masters: not a JSON list of objects")
    return said


def _options(given: dict[str, Any], where: str) -> FollowedOptions:
    if not str(given.get("id", "")).startswith("kafka/"):
        return parse_options(ReadOptions, given, where=where)
    # Imported here, so that readers of other logs need not: it takes 0.2 s in each of Spark's processes.
    from sources.kafka.options import ReplicatedTopicOptions

    return parse_options(ReplicatedTopicOptions, given, where=where)
