"""A small file in which one process tells another something, again and again. Spark gives them no other way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def write_whole(path: str | os.PathLike[str], said: object) -> None:
    """Replace the file at `path` with `said` as JSON, atomically. For one thread at a time. Raises OSError."""
    temporary = Path(f"{os.fspath(path)}.new")
    temporary.write_text(json.dumps(said))
    temporary.replace(path)


class ToldFile(Generic[T]):
    """The reader's side of the file at `path`, for one thread; `parse` makes a value of the JSON."""

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
