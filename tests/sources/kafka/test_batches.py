import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import ChecksumMismatch, CorruptRecord
from sources.kafka.format.batches import BatchLimits
from sources.kafka.format.columns import UNLOCATED_SCHEMA
from sources.kafka.format.transactions import Aborted
from sources.offsets import END, Offset, OffsetRange
from tests.sources.kafka.batches import (
    ABORT_KEY,
    ALL,
    COMMIT_KEY,
    COMMITTED,
    CONTROL,
    GZIP,
    NONE,
    NOW_MS,
    UNCOMMITTED,
    Sent,
    Written,
    decoded,
    log_of,
    logs,
    marker,
    offsets,
    read_by_kafka_python,
    rows_of,
    values,
    with_crc,
    written,
)
from tests.spans import span

BY_HAND = with_crc(
    bytes.fromhex(
        "00000000000000c8"  # base offset 200
        "0000003e"  # 62 bytes follow
        "00000007"  # leader epoch 7
        "02"  # magic
        "00000000"  # CRC, set around this
        "0000"  # attributes
        "00000002"  # last offset delta 2: two records were compacted away
        "000001a1ee9f1d00"  # base timestamp
        "000001a1ee9f1d03"  # max timestamp
        "ffffffffffffffff"  # no producer id
        "ffff"  # nor an epoch of it
        "ffffffff"  # nor a sequence
        "00000001"  # one record
        "18"  # of 12 bytes
        "00"  # attributes
        "06"  # 3 ms behind the base timestamp
        "00"  # the base offset
        "02" "6b"  # key of 1 byte
        "04" "7676"  # value of 2 bytes
        "02"  # one header
        "02" "68"  # its key
        "01"  # its value: null
    )
)  # fmt: skip
"""Written down from the description of the format, so that writer and reader are not wrong together."""


def test_a_batch_written_by_hand() -> None:
    found = decoded(BY_HAND)
    assert rows_of(found.records) == [
        {
            "offset": 200, "leader_epoch": 7, "timestamp": 0x1A1EE9F1D03, "timestamp_type": "create_time",
            "key": b"k", "value": b"vv", "headers": [("h", None)],
        }
    ]  # fmt: skip
    assert (found.reached, found.epoch) == (203, 7)
    assert found.records.schema.equals(UNLOCATED_SCHEMA, check_metadata=True)


@given(logs())
def test_the_records_are_those_that_kafka_python_reads(batches: list[Written]) -> None:
    log = log_of(batches)
    found = decoded(log)
    assert rows_of(found.records) == list(read_by_kafka_python(log))
    assert found.reached == (batches[-1].end if batches else 0)
    assert found.records.schema.equals(UNLOCATED_SCHEMA, check_metadata=True)


@given(logs(), st.data())
def test_any_range_gives_its_records_and_no_others(batches: list[Written], data: st.DataObject) -> None:
    edges = st.integers(0, 10) if not batches else st.integers(batches[0].base_offset, batches[-1].end + 3)
    wanted = span(*sorted((data.draw(edges), data.draw(edges))))
    found = decoded(log_of(batches), wanted)
    everything = rows_of(decoded(log_of(batches)).records)
    assert rows_of(found.records) == [row for row in everything if row["offset"] in wanted]
    read_through = max([wanted.start, *(batch.end for batch in batches if batch.base_offset < wanted.end)])
    beyond = [batch.base_offset for batch in batches if batch.base_offset >= wanted.end]
    assert found.reached == (beyond[0] if beyond and read_through < wanted.end else read_through)


FIRST_MS, END_MS = -62_135_596_800_000, 253_402_300_800_000
"""The beginning of year 1, and of year 10000."""
NANOSECONDS = 1_795_000_000_000_000_000
ODD_TIMES_MS = (END_MS, FIRST_MS - 1, NANOSECONDS, 2**62, -(2**62), 2**63 - 1, 2**63 // 1000 + 1)


@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_record_of_a_time_that_no_table_takes_is_kept_with_its_number(time_ms: int) -> None:
    """It is what the producer sent, no damage: the records around it come, too, and what all of them are made of."""
    sent = (Sent(), Sent(1, timestamp_ms=time_ms), Sent(2))
    (before, odd, behind) = rows_of(decoded(bytes(Written(7, sent))).records)
    assert [row["timestamp"] for row in (before, odd, behind)] == [NOW_MS, None, NOW_MS]
    assert [row["timestamp_type"] for row in (before, odd, behind)] == [
        "create_time", f"create_time {time_ms}", "create_time",
    ]  # fmt: skip
    assert odd["value"] == b"value"


def test_the_first_and_the_last_time_that_a_table_takes() -> None:
    for time_ms in (FIRST_MS, END_MS - 1):
        (row,) = rows_of(decoded(bytes(Written(7, (Sent(timestamp_ms=time_ms),)))).records)
        assert (row["timestamp"], row["timestamp_type"]) == (time_ms, "create_time")


def test_where_reading_got_to_and_in_which_epoch() -> None:
    first, second, third = written(10, b"a", b"b", epoch=1), written(12, b"c", epoch=2), written(20, b"d", epoch=5)
    log = log_of([first, second, third])

    def led_to(start: int, end: int, answer: bytes = log) -> tuple[int, int | None]:
        found = decoded(answer, span(start, end))
        return found.reached, found.epoch

    assert led_to(0, END) == (21, 5)
    assert led_to(0, 11) == (12, 1)  # inside a batch: it was read whole, and the next one begins there
    assert led_to(0, 13) == (13, 2)  # what follows is a hole, but nobody asked
    assert led_to(0, 14) == (20, 5)  # a hole up to the next batch, whose epoch counts
    assert led_to(11, 12) == (12, 1)
    assert led_to(15, 18) == (20, 5)
    assert led_to(0, 5) == (10, 1)  # nothing but a hole
    assert led_to(30, 40) == (30, None)  # an answer that does not reach what was asked for
    assert led_to(30, 40, b"") == (30, None)
    assert led_to(30, 40, log[:70]) == (30, None)


def test_of_a_batch_behind_the_range_only_the_place_is_checked() -> None:
    damaged = bytearray(bytes(written(12, b"c")))
    damaged[-1] ^= 1
    log = bytes(written(10, b"a", b"b")) + bytes(damaged)
    assert (values(decoded(log, span(0, 12))), decoded(log, span(0, 12)).reached) == ([b"a", b"b"], 12)
    with pytest.raises(ChecksumMismatch) as raised:
        decoded(log, span(0, 13))
    assert raised.value.offset == 12
    damaged = bytearray(log_of([written(10, b"a"), written(11, b"b")]))
    damaged[65] ^= 1
    with pytest.raises(ChecksumMismatch, match="at offset 10"):
        decoded(bytes(damaged), span(11, 12))  # one before the range is still found


@given(logs(max_batches=3), st.data())
def test_cut_off_anywhere_the_whole_batches_are_read(batches: list[Written], data: st.DataObject) -> None:
    log = log_of(batches)
    cut = data.draw(st.integers(0, len(log)))
    whole: list[Written] = []
    while len(log_of([*whole, *batches[len(whole) : len(whole) + 1]])) <= cut and len(whole) < len(batches):
        whole.append(batches[len(whole)])
    found = decoded(log[:cut])
    assert rows_of(found.records) == rows_of(decoded(log_of(whole)).records)
    assert found.reached == (whole[-1].end if whole else 0)


def test_a_view_is_as_good_as_bytes_and_nothing_refers_to_it() -> None:
    buffer = bytearray(log_of([written(0, b"a" * 100, compression=NONE), written(1, b"b")]))
    found = decoded(memoryview(buffer)[:])  # type: ignore[arg-type]  # the helper says bytes
    buffer[:] = bytes(len(buffer))
    assert values(found) == [b"a" * 100, b"b"]


def test_reading_ends_early_where_much_was_decompressed() -> None:
    batches = [written(at, bytes(10_000), compression=GZIP) for at in range(4)]
    limits = BatchLimits(max_decompressed_bytes=15_000)
    found = decoded(log_of(batches), limits=limits)
    assert (offsets(found), found.reached) == ([0, 1], 2)
    rest = decoded(log_of(batches), span(2, 9), limits=limits)
    assert (offsets(rest), rest.reached) == ([2, 3], 4)
    assert offsets(decoded(log_of([written(at, bytes(10_000)) for at in range(4)]), limits=limits)) == [0, 1, 2, 3]


def test_more_than_columns_can_count_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.kafka.format.batches._MAX_DATA_BYTES", 100)
    with pytest.raises(ValueError, match="at most 100 can be decoded"):
        decoded(bytes(101))


# transactions


FIRST = 1001


def part_of(producer_id: int, offset: int, value: bytes) -> Written:
    return written(offset, value, producer_id=producer_id, transactional=True)


def read_committed(log: bytes, *aborted: tuple[int, int], wanted: OffsetRange = ALL) -> list[bytes | None]:
    listed = [Aborted(producer_id, Offset(first)) for producer_id, first in aborted]
    return values(decoded(log, wanted, listed, COMMITTED))


def test_a_batch_whose_first_records_compaction_took_is_still_aborted() -> None:
    batch = Written(0, (Sent(5, value=b"last of it"),), producer_id=FIRST, transactional=True)
    assert read_committed(bytes(batch), (FIRST, 5)) == []
    assert read_committed(bytes(batch), (FIRST, 6)) == [b"last of it"]


def test_a_marker_that_compaction_emptied_ends_nothing() -> None:
    """As in Java: the list says nothing of a transaction whose records and mark are gone."""
    empty = Written(1, (), attributes=CONTROL, producer_id=FIRST, transactional=True)
    log = log_of([part_of(FIRST, 0, b"a"), empty, part_of(FIRST, 2, b"b")])
    assert read_committed(log, (FIRST, 0)) == []
    assert read_committed(log) == [b"a", b"b"]


def test_a_commit_ends_no_aborted_transaction() -> None:
    """No broker writes this; it is what Java makes of it."""
    log = log_of([part_of(FIRST, 0, b"a"), marker(1, FIRST, COMMIT_KEY), part_of(FIRST, 2, b"b")])
    assert read_committed(log, (FIRST, 0)) == []


def test_marks_of_other_kinds_and_without_a_producer_mean_nothing() -> None:
    leader_change = Written(1, (Sent(key=struct.pack(">hh", 0, 2)),), attributes=CONTROL)
    other = Written(2, (Sent(key=struct.pack(">hh", 1, 9)),), attributes=CONTROL, producer_id=FIRST)
    log = log_of([part_of(FIRST, 0, b"a"), leader_change, other, part_of(FIRST, 3, b"b")])
    assert read_committed(log, (FIRST, 0)) == []
    assert read_committed(log) == [b"a", b"b"]


def test_a_compressed_mark_is_one() -> None:
    key = ABORT_KEY + bytes(100)
    mark = Written(1, (Sent(key=key),), attributes=CONTROL, producer_id=FIRST, transactional=True, compression=GZIP)
    assert read_committed(log_of([part_of(FIRST, 0, b"a"), mark, part_of(FIRST, 2, b"b")]), (FIRST, 0)) == [b"b"]


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00\x00"])
def test_a_mark_without_a_type(key: bytes | None) -> None:
    mark = Written(6, (Sent(key=key),), attributes=CONTROL, producer_id=FIRST, transactional=True)
    with pytest.raises(CorruptRecord, match="offset 6: the control batch has no type"):
        read_committed(bytes(mark))
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
