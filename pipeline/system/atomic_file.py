"""Writes a file atomically: it is complete or does not exist, however the process that writes it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(output: Path) -> Iterator[BinaryIO]:
    """A file that replaces `output` when the block ends without an error. Raises OSError."""
    if output.exists() and not output.is_file():  # a pipe or a device: there is nothing to replace
        with output.open("wb") as sink:
            yield sink
        return
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with part.open("wb") as sink:
            yield sink
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
