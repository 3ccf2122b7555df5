"""Where a commit log's data ends: of real logs, of logs that are being written, of logs that are damaged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord, SegmentError
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.segment_files import Segment, list_segments
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.format.heads import hop_messages
from tests.sources.rocketmq.synthetic_log import BLANK_HEAD, SyntheticLog, filled, record_bytes
from tests.truth import Fixture

SIZES = st.lists(st.integers(0, 1500), max_size=40)


class FakeTime:
    """A clock that only sleeping moves; a sleep may be used to let the broker do something."""

    def __init__(self, *events: object) -> None:
        self.now = 100.0
        self.sleeps = 0
        self._events = iter(events)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now += seconds
        event = next(self._events, None)
        if callable(event):
            event()


def segments(log: SyntheticLog | Path, time: FakeTime | None = None, settle_s: float = 1.0) -> Segments:
    time = time or FakeTime()
    path = log.path if isinstance(log, SyntheticLog) else log
    return Segments(path, settle_s=settle_s, clock=time.clock, sleep=time.sleep)


def owned(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


def test_bounds_of_a_real_log(fixture_log: Fixture) -> None:
    bounds = segments(fixture_log.commitlog_path).bounds()
    assert bounds == owned(0, fixture_log.max_offset)


def test_bounds_of_a_real_log_from_any_known_record(fixture_log: Fixture) -> None:
    source, starts = segments(fixture_log.commitlog_path), [row["physical_offset"] for row in fixture_log.rows]
    for known in [*starts[::97], *starts[-3:], fixture_log.max_offset]:
        assert source.bounds(Offset(known)).end == fixture_log.max_offset


@given(sizes=SIZES, first_file=st.integers(0, 3), known=st.integers(0, 100))
def test_bounds_of_any_log_from_any_known_record(sizes: list[int], first_file: int, known: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes, minimum=4096 * first_file)
        boundary = log.boundaries[known % len(log.boundaries)]
        assert segments(log).bounds(Offset(boundary)) == segments(log).bounds() == owned(log.minimum, log.end)


@pytest.mark.parametrize("minimum", [0, 8192])
def test_an_empty_log_ends_where_it_begins(tmp_path: Path, minimum: int) -> None:
    assert segments(SyntheticLog(tmp_path, minimum=minimum)).bounds() == owned(minimum, minimum)


def test_a_blank_at_the_end_is_data_with_and_without_a_next_file(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.append_blank()
    assert segments(log).bounds() == owned(0, 4096)
    for start in (4096, 8192):
        log.file(start).unlink()
    assert segments(log).bounds() == owned(0, 4096)


def test_a_blank_may_be_followed_by_anything(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    start = log.end
    log.append_blank()
    log.append(b"next")
    log.write(start + 8, record_bytes(start + 8, b"what stood here before") + b"\xff" * 50)
    assert segments(log).bounds() == owned(0, log.end)
    assert segments(log).bounds(Offset(start)) == owned(0, log.end)


def test_a_known_end_that_retention_has_deleted_is_no_help_and_no_harm(tmp_path: Path) -> None:
    log = filled(tmp_path, *[1000] * 12)
    log.file(0).unlink()
    assert segments(log).bounds(Offset(log.starts[1])) == owned(4096, log.end)


def test_a_master_that_lost_its_tail_is_not_believed_to_end_at_the_known_end(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, 100, 100)
    log.write(log.starts[2], bytes(log.end - log.starts[2]))
    assert segments(log).bounds(Offset(log.end)) == owned(0, log.starts[2])


def test_a_master_that_lost_its_last_blank_is_not_believed_to_end_after_it(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    blank = log.end
    log.append_blank()
    log.write(blank, bytes(8))
    assert segments(log).bounds(Offset(4096)) == owned(0, blank)


def test_retention_between_the_listing_and_the_look_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, *[1000] * 12)

    def list_then_delete(path: Path, **options: bool) -> tuple[Segment, ...]:
        listed = list_segments(path, **options)
        log.file(0).unlink(missing_ok=True)
        return listed

    monkeypatch.setattr("sources.rocketmq.files.segments.list_segments", list_then_delete)
    assert segments(log).bounds(Offset(log.starts[1])) == owned(4096, log.end)


def test_a_log_that_somebody_deletes_is_an_error_naming_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 100)
    listed = list_segments(tmp_path)
    monkeypatch.setattr("sources.rocketmq.files.segments.list_segments", lambda path, **options: listed)
    log.file(0).unlink()
    with pytest.raises(SegmentError, match="disappear") as raised:
        segments(log).bounds()
    assert str(tmp_path) in str(raised.value)


def test_a_known_end_beyond_the_last_file_is_not_believed(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    assert segments(log).bounds(Offset(1 << 40)) == owned(0, log.end)


def test_a_record_without_properties_can_be_the_known_end(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.append(b"no properties", b"")
    assert segments(log).bounds(Offset(log.end)) == owned(0, log.end)


# a broker that appends while we look


def test_each_part_of_a_record_counts_only_when_the_rest_has_arrived(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    record = record_bytes(log.end, b"arrives in pieces")
    for length in range(1, len(record)):
        log.write(log.end, record[:length] + bytes(len(record) - length))
        if not any(record[:length]):
            assert segments(log).bounds().end == log.end
            continue
        with pytest.raises(CorruptRecord) as raised:
            segments(log, settle_s=0.1).bounds()
        assert raised.value.offset == log.end
        assert str(log.file(0)) in str(raised.value)
        rest = FakeTime(lambda start=length: log.write(log.end + start, record[start:]))
        assert segments(log, rest).bounds().end == log.end + len(record)
        assert rest.sleeps == 1


def test_a_record_that_arrives_back_to_front_is_waited_for(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    record = record_bytes(log.end, b"arrives from its end")
    log.write(log.end + 48, record[48:])
    with pytest.raises(CorruptRecord, match="more follows") as raised:
        segments(log).bounds()
    assert raised.value.offset == log.end
    assert f"from offset {log.end + 48} on" in str(raised.value)
    time = FakeTime(None, lambda: log.write(log.end, record))
    assert segments(log, time).bounds().end == log.end + len(record)
    assert time.sleeps == 2


def test_it_is_waited_for_the_settle_time_and_no_longer(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.write(log.end, b"\0\0\1")
    time = FakeTime()
    with pytest.raises(CorruptRecord):
        segments(log, time, settle_s=0.5).bounds()
    assert 0.5 <= time.now - 100 < 0.6


def test_a_fast_producer_is_not_chased(tmp_path: Path) -> None:
    """At each look another record is half there; the ones before it are data all the same."""
    log = filled(tmp_path, 100)

    def goes_on() -> None:
        log.append(b"x" * 50)
        log.write(log.end, record_bytes(log.end, b"y" * 50)[:40])

    log.write(log.end, record_bytes(log.end, b"x" * 50)[:60])
    time = FakeTime(goes_on, goes_on)
    assert segments(log, time).bounds() == owned(0, log.end)
    assert time.sleeps == 1


def test_a_record_that_arrives_during_a_look_is_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 100)
    seen = log.end

    def hop_then_append(*arguments: Any) -> Any:
        stopped = hop_messages(*arguments)
        if log.end == seen:
            log.append(b"after the hop, before the look at what stopped it")
        return stopped

    monkeypatch.setattr("sources.rocketmq.files.log_end.hop_messages", hop_then_append)
    assert segments(log).bounds().end == seen
    assert segments(log).bounds().end == log.end > seen


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_size_that_was_caught_half_written_does_not_move_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, difference: int
) -> None:
    """The hop saw another size than the one that stands there when the last record is looked at."""
    log = filled(tmp_path, 100)
    log.append(b"x" * 300, b"")
    monkeypatch.setattr(
        "sources.rocketmq.files.log_end.hop_messages",
        lambda *arguments: (Offset(hop_messages(*arguments)[0] + difference), Offset(log.starts[1])),
    )
    with pytest.raises(CorruptRecord) as raised:
        segments(log).bounds()
    assert raised.value.offset == log.starts[1]


# a tail that is wrong


@pytest.mark.parametrize("record", [0, 1, 2])
@pytest.mark.parametrize("byte", range(8))
def test_a_flipped_byte_in_size_or_magic_is_an_error(tmp_path: Path, record: int, byte: int) -> None:
    log = filled(tmp_path, 300, 300, 300)
    at = log.starts[record] + byte
    log.write(at, bytes([log.data()[at] ^ 0x01]))
    with pytest.raises(CorruptRecord) as raised:
        segments(log).bounds()
    assert raised.value.offset == log.starts[record]
    assert str(log.file(0)) in str(raised.value)
    assert None not in (raised.value.expected, raised.value.found, raised.value.hint)


def test_a_flipped_byte_in_the_last_body_is_an_error(tmp_path: Path) -> None:
    log = filled(tmp_path, 300, 300)
    log.write(log.starts[1] + 200, b"\xff")
    with pytest.raises(CorruptRecord, match="CRC") as raised:
        segments(log).bounds()
    assert raised.value.offset == log.starts[1]


def test_a_last_record_of_another_place_is_an_error(tmp_path: Path) -> None:
    log = filled(tmp_path, 300)
    log.write(log.end, record_bytes(log.end + 1, b"copied from elsewhere"))
    with pytest.raises(CorruptRecord, match="another offset") as raised:
        segments(log).bounds()
    assert (raised.value.expected, raised.value.found) == (
        f"physical offset {log.end}",
        f"{log.end + 1}",
    )


def test_a_file_that_ends_in_zeros_before_one_that_has_data_is_a_hole(tmp_path: Path) -> None:
    log = filled(tmp_path, *[1000] * 5)
    (blank,) = log.blanks
    log.write(blank, bytes(8))
    with pytest.raises(CorruptRecord, match="hole") as raised:
        segments(log).bounds(Offset(log.starts[1]))
    assert raised.value.offset == blank
    assert log.file(0).name in str(raised.value)
    assert log.file(4096).name in str(raised.value)


@pytest.mark.parametrize(
    ("after_end", "problem"), [(-20, "past the end"), (0, "cut off"), (4, "cut off"), (7, "cut off")]
)
def test_a_truncated_file_is_an_error_naming_it(tmp_path: Path, after_end: int, problem: str) -> None:
    log = filled(tmp_path, 1000, 1000)
    with log.file(0).open("r+b") as file:
        file.truncate(log.end + after_end)
    with pytest.raises(CorruptRecord, match=problem) as raised:
        segments(log).bounds()
    assert raised.value.offset == log.starts[1]
    assert str(log.file(0)) in str(raised.value)


def test_a_blank_that_does_not_end_with_its_file_is_an_error(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000)
    log.write(log.end, BLANK_HEAD.pack(500, 0xCBD43194))
    with pytest.raises(CorruptRecord, match="blank") as raised:
        segments(log).bounds()
    assert (raised.value.expected, raised.value.found) == (f"{log.left} bytes", "500 bytes")


def test_a_dledger_log_is_recognised(tmp_path: Path) -> None:
    body = record_bytes(48, b"in an entry")
    log = SyntheticLog(tmp_path)
    entry = b"".join(number.to_bytes(size) for number, size in ((1, 4), (48 + len(body), 4), (0, 8), (1, 8), (0, 8)))
    log.write(0, entry + bytes(12) + len(body).to_bytes(4) + body)
    with pytest.raises(CorruptRecord) as raised:
        segments(log).bounds()
    assert raised.value.hint is not None
    assert "DLedger" in raised.value.hint
