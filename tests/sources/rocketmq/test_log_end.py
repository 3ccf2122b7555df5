"""Where a commit log's data ends: of real logs, of logs that are being written, of logs that are damaged."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sources.errors import CorruptRecord, SegmentError
from sources.offsets import Offset
from sources.rocketmq.files.log_end import Hopped, hop
from sources.rocketmq.files.segment_files import Segment, list_segments
from tests.sources.rocketmq.damaged_logs import sound_records
from tests.sources.rocketmq.looking import FakeTime, doubts, segments
from tests.sources.rocketmq.synthetic_log import BLANK_HEAD, SyntheticLog, filled, record_bytes
from tests.spans import span

SIZES = st.lists(st.integers(0, 1500), max_size=40)


def doubt_at(end: int, log: SyntheticLog, caplog: pytest.LogCaptureFixture) -> CorruptRecord:
    """What a warning says is wrong at `end`, where the log ends."""
    caplog.clear()
    assert segments(log, settle_s=0.1).bounds() == span(log.minimum, end)
    (record,) = doubts(caplog)
    assert record.levelname == "WARNING"
    assert f"the log ends at {end}, before this" in record.message
    assert isinstance(record.args, tuple)
    doubt = record.args[-1]
    assert isinstance(doubt, CorruptRecord)
    assert doubt.offset == end
    assert None not in (doubt.expected, doubt.found, doubt.hint)
    return doubt


@given(sizes=SIZES, first_file=st.integers(0, 3), known=st.integers(0, 100))
@example(sizes=[], first_file=2, known=0)
def test_bounds_of_any_log_from_any_known_record(sizes: list[int], first_file: int, known: int) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes, minimum=4096 * first_file)
        boundary = log.boundaries[known % len(log.boundaries)]
        assert segments(log).bounds(Offset(boundary)) == segments(log).bounds() == span(log.minimum, log.end)


def test_a_blank_may_be_followed_by_anything(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    start = log.end
    log.append_blank()
    log.append(b"next")
    log.write(start + 8, record_bytes(start + 8, b"what stood here before") + b"\xff" * 50)
    assert segments(log).bounds() == span(0, log.end)
    assert segments(log).bounds(Offset(start)) == span(0, log.end)


def test_a_master_that_lost_its_tail_is_not_believed_to_end_at_the_known_end(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, 100, 100)
    log.write(log.starts[2], bytes(log.end - log.starts[2]))
    assert segments(log).bounds(Offset(log.end)) == span(0, log.starts[2])


def test_retention_between_the_listing_and_the_look_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest file that was listed is the oldest by now, and has gone."""
    log = filled(tmp_path, *[1000] * 12)

    def list_too_early(path: Path) -> tuple[Segment, ...]:
        listed = list_segments(path)
        if listed[0].start == 0:
            log.file(0).unlink()
            return listed[:1]
        return listed

    monkeypatch.setattr("sources.rocketmq.files.segments.list_segments", list_too_early)
    assert segments(log).bounds(Offset(log.starts[1])) == span(4096, log.end)


def test_a_log_that_somebody_deletes_is_an_error_naming_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 100)
    listed = list_segments(tmp_path)
    monkeypatch.setattr("sources.rocketmq.files.segments.list_segments", lambda path: listed)
    log.file(0).unlink()
    with pytest.raises(SegmentError, match="disappear") as raised:
        segments(log).bounds()
    assert str(tmp_path) in str(raised.value)


def test_each_part_of_a_record_counts_only_when_the_rest_has_arrived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path, 100)
    record = record_bytes(log.end, b"arrives in pieces")
    for length in range(1, len(record)):
        log.write(log.end, record[:length] + bytes(len(record) - length))
        if not any(record[:length]):
            assert segments(log).bounds().end == log.end
            continue
        assert str(log.file(0)) in str(doubt_at(log.end, log, caplog))
        rest = FakeTime(lambda start=length: log.write(log.end + start, record[start:]))
        assert segments(log, rest).bounds().end == log.end + len(record)
        assert rest.sleeps == 1


def test_a_record_that_arrives_back_to_front_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path, 100)
    record = record_bytes(log.end, b"arrives from its end")
    log.write(log.end + 48, record[48:])
    doubt = doubt_at(log.end, log, caplog)
    assert "more follows" in doubt.problem
    assert f"from offset {log.end + 48} on" in str(doubt)
    time = FakeTime(None, lambda: log.write(log.end, record))
    assert segments(log, time).bounds().end == log.end + len(record)
    assert time.sleeps == 2


def test_it_is_waited_for_the_settle_time_and_no_longer(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.write(log.end, b"\0\0\1")
    time = FakeTime()
    assert segments(log, time, settle_s=0.5).bounds() == span(0, log.end)
    assert 0.5 <= time.now - 100 < 0.6


def test_a_fast_producer_is_not_chased(tmp_path: Path) -> None:
    """At each look another record is half there; the ones before it are data all the same."""
    log = filled(tmp_path, 100)

    def goes_on() -> None:
        log.append(b"x" * 50)
        log.write(log.end, record_bytes(log.end, b"y" * 50)[:40])

    log.write(log.end, record_bytes(log.end, b"x" * 50)[:60])
    time = FakeTime(goes_on, goes_on)
    assert segments(log, time).bounds() == span(0, log.end)
    assert time.sleeps == 1


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_head_that_changes_after_the_hop_does_not_move_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, difference: int
) -> None:
    """The hop saw another size than the one that stands there when the last record is looked at."""
    log = filled(tmp_path, 100)
    log.append(b"x" * 300, b"")

    def hop_wrong(*arguments: Any) -> Hopped:
        hopped = hop(*arguments)
        return hopped._replace(end=Offset(hopped.end + difference))

    monkeypatch.setattr("sources.rocketmq.files.log_end.hop", hop_wrong)
    doubt_at(log.starts[1], log, caplog)


def test_a_file_before_one_without_a_sound_record_may_be_the_newest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path, *[1000] * 5)
    (blank,) = log.blanks
    log.write(blank, bytes(8))
    log.write(4096, b"\xff" * 8)
    doubt = doubt_at(blank, log, caplog)
    assert "hole" in doubt.problem
    assert log.file(0).name in str(doubt)
    assert log.file(4096).name in str(doubt)


@pytest.mark.parametrize(
    ("after_end", "problem"), [(-20, "past the end"), (0, "cut off"), (4, "cut off"), (7, "cut off")]
)
def test_a_truncated_file_ends_where_its_records_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, after_end: int, problem: str
) -> None:
    log = filled(tmp_path, 1000, 1000)
    with log.file(0).open("r+b") as file:
        file.truncate(log.end + after_end)
    doubt = doubt_at(log.starts[1], log, caplog)
    assert problem in doubt.problem
    assert str(log.file(0)) in str(doubt)


def test_a_blank_that_does_not_end_with_its_file_ends_the_newest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path, 1000)
    log.write(log.end, BLANK_HEAD.pack(500, 0xCBD43194))
    doubt = doubt_at(log.end, log, caplog)
    assert "blank" in doubt.problem
    assert (doubt.expected, doubt.found) == (f"{log.left} bytes", "500 bytes")


def test_a_dledger_log_is_recognised(tmp_path: Path) -> None:
    body = record_bytes(48, b"in an entry")
    log = SyntheticLog(tmp_path)
    entry = b"".join(number.to_bytes(size) for number, size in ((1, 4), (48 + len(body), 4), (0, 8), (1, 8), (0, 8)))
    log.write(0, entry + bytes(12) + len(body).to_bytes(4) + body)
    with pytest.raises(CorruptRecord) as raised:
        segments(log).bounds()
    assert raised.value.hint is not None
    assert "DLedger" in raised.value.hint


CHECKED = st.one_of(st.integers(0, 11), st.integers(28, 35), st.integers(88, 120))
"""Bytes of a record with a body of 50 that a broker checks: size, magic, CRC, place, body (section 1.2)."""


@example(sizes=[300, 300], flips=[(0, 2, 1)])
@given(
    sizes=st.lists(st.integers(50, 1500), min_size=1, max_size=30),
    flips=st.lists(st.tuples(st.integers(0, 40), CHECKED, st.integers(1, 255)), max_size=4),
)
def test_any_log_ends_before_the_first_unsound_record_of_its_newest_file(
    sizes: list[int], flips: list[tuple[int, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as path:
        log = filled(Path(path), *sizes)
        messages = [start for start in log.starts if start not in log.blanks]
        for record, byte, mask in flips:
            at = messages[record % len(messages)] + byte
            log.write(at, bytes([log.data()[at] ^ mask]))
        sound = dict(pair for pair in pairwise(log.boundaries) if pair[0] in sound_records(log))
        end = max((start for start in sound if start % log.file_bytes == 0), default=0)
        while end in sound:
            end = sound[end]
        for one_by_one in (50, 2):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sources.rocketmq.files.log_end.FEW", one_by_one)
                if end:
                    assert segments(log).bounds() == span(0, end)
                    continue
                with pytest.raises(CorruptRecord, match=str(log.file(0))) as raised:
                    segments(log).bounds()  # nothing shows that the files are a commit log
                assert raised.value.offset == 0
