"""Where a commit log's data ends at a look that is not the first; and after its broker has recovered."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord
from sources.group.poller import Poller, PollRequest, PollResult
from sources.group.standing import ListedLog
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.files.log_end import Hopped, hop
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.log import RocketMQLog
from tests.sources.rocketmq.log_reading import LOG_ID
from tests.sources.rocketmq.looking import FakeTime, doubts, segments
from tests.sources.rocketmq.synthetic_log import STORED_MS, SyntheticLog, filled, record_bytes
from tests.spans import span

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
    """Both trust the times up to the end of the look before, whatever became of them."""
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sources.rocketmq.files.log_end.FEW", few)
        patch.setattr("sources.rocketmq.files.log_end._WINDOW_BYTES", window_bytes)
        log = filled(Path(path), 10)
        source = segments(log, settle_s=0)
        for one in steps:
            known = source.seen_end
            step(log, *one)
            assert found(source, known) == found(segments(log, settle_s=0), known)


def test_a_blank_at_the_end_is_data_with_and_without_a_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of the file is read again at further looks."""
    log = filled(tmp_path, 100)
    log.append_blank()
    hops: list[Offset] = []

    def noted(*arguments: Any) -> Hopped:
        hops.append(arguments[1])
        return hop(*arguments)

    monkeypatch.setattr("sources.rocketmq.files.log_end.hop", noted)
    source = segments(log)
    assert source.bounds() == source.bounds(Offset(4096)) == span(0, 4096)
    for start in (4096, 8192):
        log.file(start).unlink()
    assert source.bounds(Offset(4096)) == span(0, 4096)
    assert [at for at in hops if at < 4096] == [0]
    assert source.bounds() == span(0, 4096)


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
    poller = Poller(RocketMQLog(log_id=LOG_ID, path=str(tmp_path)), "earliest")
    request = PollRequest(ListedLog(Offset(log.end)), None)
    assert poller.poll({str(LOG_ID): request}) == {str(LOG_ID): PollResult(span(0, log.end), Offset(log.end))}


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
