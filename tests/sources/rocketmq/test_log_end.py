"""Where a commit log's data ends: of real logs, of logs that are being written, of logs that are damaged."""

from __future__ import annotations

import logging
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sources.errors import CorruptRecord, SegmentError
from sources.group.lookout import Lookout, LookRequest, LookResult
from sources.group.standing import ReadingPlace
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.log_end import Hopped, hop
from sources.rocketmq.files.segment_files import Segment, list_segments
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.log import RocketMQLog
from sources.told_doubt import ToldDoubt
from tests.sources.rocketmq.damaged_logs import sound_records
from tests.sources.rocketmq.log_reading import LOG_ID
from tests.sources.rocketmq.synthetic_log import BLANK_HEAD, STORED_MS, SyntheticLog, filled, record_bytes
from tests.spans import span

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
    """As another process, which remembers nothing."""
    time = time or FakeTime()
    path = log.path if isinstance(log, SyntheticLog) else log
    return Segments(path, settle_s=settle_s, clock=time.clock, sleep=time.sleep, seen={})


def doubts(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was told of them; other tests' threads may say something meanwhile."""
    return [record for record in caplog.records if record.name == ToldDoubt.__module__]


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


def test_a_blank_at_the_end_is_data_with_and_without_a_next_file(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.append_blank()
    assert segments(log).bounds() == span(0, 4096)
    for start in (4096, 8192):
        log.file(start).unlink()
    source = segments(log)
    for known in (None, Offset(4096)):
        assert source.bounds(known) == span(0, 4096)


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


def test_a_record_without_properties_can_be_the_known_end(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    log.append(b"no properties", b"")
    assert segments(log).bounds(Offset(log.end)) == span(0, log.end)


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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "tear", "cut", "change"]), st.integers(0, 1500), st.integers(0, 200)
    ),
    max_size=30,
)


def step(log: SyntheticLog, what: str, number: int, byte: int) -> None:
    """What may happen to a log between two looks, to its last file if it takes something back."""
    if what == "append":
        log.append(b"x" * number)
    elif what == "tear":
        log.write(log.end, record_bytes(log.end, b"y" * number)[: min(byte, log.left)])
    elif log.starts:
        first = log.starts[-1] - log.starts[-1] % log.file_bytes
        places = [place for place in log.starts if place >= first]
        at = places[number % len(places)]
        if what == "cut":
            log.write(at, bytes(first + log.file_bytes - at))
            log.recover_at(log.starts.index(at))
        else:
            log.write(at + byte % (first + log.file_bytes - at), bytes([number % 256]))


def found(source: Segments, known: Offset | None = None) -> OffsetRange | int | None:
    """The bounds; where it is wrong if there are none."""
    try:
        return source.bounds(known)
    except CorruptRecord as error:
        return error.offset


@given(steps=STEPS, few=st.sampled_from([0, 2, 50]), window_bytes=st.sampled_from([500, 1 << 22]))
def test_a_look_that_goes_on_sees_what_one_from_the_beginning_does(
    steps: list[tuple[str, int, int]], few: int, window_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sources.rocketmq.files.log_end.FEW", few)
        patch.setattr("sources.rocketmq.files.log_end._WINDOW_BYTES", window_bytes)
        log = filled(Path(path), 10)
        source = segments(log, settle_s=0)
        for one in steps:
            known = source.seen_end
            step(log, *one)
            assert found(source, known) == found(segments(log, settle_s=0))


def test_a_look_that_goes_on_reads_no_record_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the end of a full file, whether or not the next one is there."""
    log = filled(tmp_path, *[300] * 10, file_bytes=1 << 16)
    log.append_blank()
    hops: list[Offset] = []

    def noted(*arguments: Any) -> Hopped:
        hops.append(arguments[1])
        return hop(*arguments)

    monkeypatch.setattr("sources.rocketmq.files.log_end.hop", noted)
    source = segments(log)
    assert source.bounds().end == source.bounds(Offset(log.end)).end == log.end
    for start in (1 << 16, 2 << 16):
        log.file(start).unlink()
    assert source.bounds(Offset(log.end)).end == log.end
    assert [at for at in hops if at < 1 << 16] == [0]


# a broker that has recovered

RECOVERED_MS = STORED_MS + 60_000


def recovered(path: Path, size: int) -> SyntheticLog:
    """Of 20 messages the 11th was lost with its page; the broker ended its log there, and wrote one of `size` since."""
    log = filled(path, *[300] * 20, file_bytes=1 << 16)
    log.write(log.starts[10], bytes(log.starts[11] - log.starts[10]))
    log.recover_at(10)
    log.append(b"n" * size, stored_ms=RECOVERED_MS)
    return log


@pytest.mark.parametrize("size", [0, 40, 299, 300, 301, 699, 800], ids=lambda size: f"{size} bytes")
@pytest.mark.parametrize("past_damage", [False, True])
def test_what_a_broker_cut_off_is_not_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, past_damage: bool
) -> None:
    """Also if it joins the new record: with 300 and 699 bytes an old record begins where the new one ends."""
    log = recovered(tmp_path, size)
    source = Segments(tmp_path, past_damage=past_damage, settle_s=0, seen={})
    assert source.bounds() == span(0, log.end)
    (warning,) = doubts(caplog)
    assert f"the log ends at {log.end}, before this" in warning.message


@pytest.mark.parametrize("size", [40, 300])
def test_what_the_broker_writes_next_is_in_the_log(tmp_path: Path, size: int) -> None:
    log = recovered(tmp_path, size)
    source = segments(log)
    known = source.bounds().end
    for _ in range(15):
        log.append(b"m" * size, stored_ms=RECOVERED_MS + 1)
        found = source.bounds(known)
        assert found == segments(log).bounds() == span(0, log.end)
        known = found.end


def test_a_later_file_proves_what_lies_before_it(tmp_path: Path) -> None:
    """The broker has recovered again, and took what joins for its log; or its clock was set back."""
    log = filled(tmp_path, *[300] * 4)
    log.append(b"n" * 300, stored_ms=RECOVERED_MS)
    before = log.end
    log.append(b"o" * 300)
    assert segments(log).bounds() == span(0, before)
    while log.end < 4096:
        log.append(b"p" * 300)
    assert segments(log).bounds() == span(0, log.end)


def test_after_its_clock_was_set_back_a_broker_is_waited_for_until_it_writes(tmp_path: Path) -> None:
    """What it writes where nothing was shows where its end is."""
    log = filled(tmp_path, 300)
    log.append(b"n" * 300, stored_ms=RECOVERED_MS)
    before = log.end
    source = segments(log)
    log.append(b"o" * 300)
    assert source.bounds() == span(0, before)
    for number in range(3):
        log.append(b"p" * 300, stored_ms=STORED_MS + number)
        assert source.bounds(Offset(before)) == span(0, log.end)
        before = log.end


def test_below_a_proven_end_times_are_not_compared(tmp_path: Path) -> None:
    """A replica that has come that far before its process ended."""
    log = filled(tmp_path, 300)
    log.append(b"n" * 300, stored_ms=RECOVERED_MS)
    for stored_ms in (STORED_MS, STORED_MS + 2, STORED_MS + 1):
        log.append(b"o" * 300, stored_ms=stored_ms)
    assert segments(log).bounds() == span(0, log.starts[2])
    for known, end in ((2, 2), (3, 4), (4, 4)):
        assert segments(log).bounds(Offset(log.starts[known])) == span(0, log.starts[end])
    assert segments(log).bounds(Offset(log.end)) == span(0, log.end)
    lookout = Lookout(RocketMQLog(log_id=LOG_ID, path=str(tmp_path)), "earliest")
    request = LookRequest(ReadingPlace(Offset(log.end)), None)
    assert lookout.look({str(LOG_ID): request}) == {str(LOG_ID): LookResult(span(0, log.end), Offset(log.end))}


def test_a_lost_record_that_is_written_anew_proves_nothing_behind_it(tmp_path: Path) -> None:
    """Where the log ended before, there were bytes behind it: what joins them now need not be new."""
    log = filled(tmp_path, *[300] * 20, file_bytes=1 << 16)
    log.write(log.starts[10], bytes(log.starts[11] - log.starts[10]))
    source = segments(log)
    assert source.bounds() == span(0, log.starts[10])
    log.recover_at(10)
    log.append(b"n" * 300, stored_ms=RECOVERED_MS)
    for known in (None, Offset(log.starts[10])):
        assert source.bounds(known) == span(0, log.end)


def test_a_doubt_is_told_and_waited_for_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = recovered(tmp_path, 40)
    time = FakeTime()
    source = segments(log, time)
    for known in (None, Offset(log.end), Offset(log.end), None):
        assert source.bounds(known) == span(0, log.end)
    assert len(doubts(caplog)) == 1
    slept = time.now
    log.append(b"m" * 50, stored_ms=RECOVERED_MS)
    assert source.bounds(Offset(log.starts[-1])) == span(0, log.end)
    assert len(doubts(caplog)) == 2
    assert time.now > slept
