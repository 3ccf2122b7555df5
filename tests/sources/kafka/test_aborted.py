from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord
from sources.kafka.format.batches import Aborted
from sources.offsets import Offset, OffsetRange
from tests.sources.kafka.batches import (
    ABORT_KEY,
    ALL,
    COMMIT_KEY,
    COMMITTED,
    CONTROL,
    GZIP,
    UNCOMMITTED,
    Sent,
    Written,
    decoded,
    log_of,
    marker,
    offsets,
    values,
    written,
)
from tests.spans import span

FIRST = 1001


def part_of(producer_id: int, offset: int, value: bytes) -> Written:
    return written(offset, value, producer_id=producer_id, transactional=True)


def read(log: bytes, *aborted: tuple[int, int], wanted: OffsetRange = ALL) -> list[bytes | None]:
    listed = [Aborted(producer_id, Offset(first)) for producer_id, first in aborted]
    return values(decoded(log, wanted, listed, COMMITTED))


def test_a_batch_whose_first_records_compaction_took_is_still_aborted() -> None:
    batch = Written(0, (Sent(5, value=b"last of it"),), producer_id=FIRST, transactional=True)
    assert read(bytes(batch), (FIRST, 5)) == []
    assert read(bytes(batch), (FIRST, 6)) == [b"last of it"]


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    """As in Java: the list says nothing of a transaction whose records and mark are gone."""
    empty = Written(1, (), attributes=CONTROL, producer_id=FIRST, transactional=True)
    log = log_of([part_of(FIRST, 0, b"a"), empty, part_of(FIRST, 2, b"b")])
    assert read(log, (FIRST, 0)) == []
    assert read(log) == [b"a", b"b"]


def test_a_commit_ends_no_aborted_transaction() -> None:
    """No broker writes this; it is what Java makes of it."""
    log = log_of([part_of(FIRST, 0, b"a"), marker(1, FIRST, COMMIT_KEY), part_of(FIRST, 2, b"b")])
    assert read(log, (FIRST, 0)) == []


def test_marks_of_other_kinds_and_without_a_producer_mean_nothing() -> None:
    leader_change = Written(1, (Sent(key=struct.pack(">hh", 0, 2)),), attributes=CONTROL)
    other = Written(2, (Sent(key=struct.pack(">hh", 1, 9)),), attributes=CONTROL, producer_id=FIRST)
    log = log_of([part_of(FIRST, 0, b"a"), leader_change, other, part_of(FIRST, 3, b"b")])
    assert read(log, (FIRST, 0)) == []
    assert read(log) == [b"a", b"b"]


def test_a_compressed_mark_is_one() -> None:
    key = ABORT_KEY + bytes(100)
    mark = Written(1, (Sent(key=key),), attributes=CONTROL, producer_id=FIRST, transactional=True, compression=GZIP)
    assert read(log_of([part_of(FIRST, 0, b"a"), mark, part_of(FIRST, 2, b"b")]), (FIRST, 0)) == [b"b"]


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00\x00"])
def test_a_mark_without_a_type(key: bytes | None) -> None:
    mark = Written(6, (Sent(key=key),), attributes=CONTROL, producer_id=FIRST, transactional=True)
    with pytest.raises(CorruptRecord, match="offset 6: the control batch has no type"):
        read(bytes(mark))
    assert values(decoded(bytes(mark), isolation=UNCOMMITTED)) == []


@dataclass
class Traffic:
    """A log of transactions, and, worked out while it is written, what is committed."""

    batches: list[Written] = field(default_factory=list)
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, offset of the mark
    marks: set[int] = field(default_factory=set)
    end: int = 0
    _open: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def write(self, producer_id: int, is_transactional: bool) -> None:
        value = b"%d" % self.end
        batch = written(self.end, value, b"", producer_id=producer_id, transactional=is_transactional)
        target = self._open.setdefault(producer_id, []) if is_transactional else self.committed
        target += [(self.end, value), (self.end + 1, b"")]
        self._add(batch)

    def finish(self, producer_id: int, commits: bool) -> None:
        records = self._open.pop(producer_id, [])
        if commits:
            self.committed += records
        elif records:
            self.aborted.append((producer_id, records[0][0], self.end))
        self.marks.add(self.end)
        self._add(marker(self.end, producer_id, COMMIT_KEY if commits else ABORT_KEY))

    def finish_all(self) -> None:
        for producer_id in list(self._open):
            self.finish(producer_id, commits=True)

    def _add(self, batch: Written) -> None:
        self.batches.append(batch)
        self.end = batch.end


STEPS = st.lists(
    st.tuples(st.sampled_from(("write", "write", "plain", "commit", "abort")), st.integers(1, 3)), max_size=25
)


@given(STEPS, st.data())
def test_any_traffic_read_from_anywhere(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    traffic = Traffic()
    for step, producer_id in steps:
        if step in ("write", "plain"):
            traffic.write(producer_id, is_transactional=step == "write")
        else:
            traffic.finish(producer_id, commits=step == "commit")
    traffic.finish_all()
    asked, start = sorted(data.draw(st.tuples(*[st.integers(0, traffic.end)] * 2)))
    # What a broker answers to a fetch from `asked`: batches from the one that holds it, transactions that reach there.
    log = log_of(batch for batch in traffic.batches if batch.end > asked)
    listed = [Aborted(producer_id, Offset(first)) for producer_id, first, mark in traffic.aborted if mark >= asked]
    wanted = span(start, 10**6)
    found = decoded(log, wanted, data.draw(st.permutations(listed)))
    expected = sorted(record for record in traffic.committed if record[0] >= start)
    assert list(zip(offsets(found), values(found), strict=True)) == expected
    assert found.reached == traffic.end
    everything = [at for at in range(start, traffic.end) if at not in traffic.marks]
    assert offsets(decoded(log, wanted, listed, UNCOMMITTED)) == everything
