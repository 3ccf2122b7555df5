"""A group's reader as Spark's planner has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sources.group.stream import GroupReader, group_source


@contextmanager
def planning(given: Mapping[str, str]) -> Iterator[GroupReader]:
    """The reader with these options; stopped at the end, because its thread would go on to look at masters."""
    reader = group_source(given).stream_reader()
    assert isinstance(reader, GroupReader)
    try:
        yield reader
    finally:
        reader.stop()
