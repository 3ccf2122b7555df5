"""A master log that a test moves, silences, breaks, without bytes: what a planner asks for; and the planner."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from sources.group.stream import GroupReader, group_source
from sources.master import SoleMaster
from sources.offsets import LogId, Offset, OffsetRange
from sources.sole_log import SoleLog
from tests.patience import PATIENCE_S
from tests.spans import span


class ScriptedLog(SoleLog):
    """Holds what it `holds`; answers while `answers` is set; raises `error` instead, if there is one."""

    def __init__(self, log_id: str, start: int = 0, end: int = 0, *, is_waited_for: bool = False) -> None:
        self.log_id = LogId.parse(log_id)
        self.holds = span(start, end)
        self.error: Exception | None = None
        self.cut_error: Exception | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.knows_its_role = threading.Event()
        self.looks = 0
        self.address = "nowhere"
        self._is_waited_for = is_waited_for

    @property
    def master(self) -> SoleMaster:
        return cast(SoleMaster, self)

    def grow(self, end: int) -> None:
        self.holds = span(self.holds.start, end)

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        self.looks += 1
        assert self.answers.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return self.holds

    def size_bytes(self, wanted: OffsetRange) -> int | None:
        """Of dister's logs offsets are ids, and nobody knows."""
        return None if self.log_id.kind == "dister" else wanted.size

    def is_waited_for(self) -> bool:
        self.knows_its_role.set()
        return self._is_waited_for

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        return offset

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        if self.cut_error is not None:
            raise self.cut_error
        return Offset(min(start + max_bytes, maximum))

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        return wanted.in_pieces(-(-wanted.size // cores))


@contextmanager
def planning(given: Mapping[str, str]) -> Iterator[GroupReader]:
    """The reader with these options; stopped at the end, because its thread would go on to look at masters."""
    reader = group_source(given).stream_reader()
    assert isinstance(reader, GroupReader)
    try:
        yield reader
    finally:
        reader.stop()
