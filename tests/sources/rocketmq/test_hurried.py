"""Reading over HA in a hurry: what has come in time is handed over, and the rest is not waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sources.errors import MasterError, MasterSilent
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import Offset
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.ha import encode_frame
from tests.sources.rocketmq.log_reading import assert_is, kept, over_ha, owned, truth_between
from tests.sources.rocketmq.scripted_master import HAScript, SlaveConnection, holding, serve_log
from tests.truth import Fixture

HURRY_S = 1.0


def hurried(log: RocketMQLog, end: int, start: int = 0) -> tuple[list[Chunk | Damage], bool]:
    """What is read of [start, end) in time, and whether the time was up."""
    found: list[Chunk | Damage] = []
    try:
        found += (kept(piece) for piece in _pieces(log.hurried(HURRY_S), start, end))
    except TimeIsUp:
        return found, True
    return found, False


def _pieces(log: RocketMQLog, start: int, end: int) -> Iterator[Chunk | Damage]:
    return log.read(owned(start, end), committed=Offset(start), boundary=True)


FRAME_BYTES = 64


def sending(log: bytes, at_once: int, *, drips: bool) -> HAScript:
    """The frames with the first `at_once` bytes of the log; then nothing, or a byte every now and then, for ever."""

    def script(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        starts = range(start, len(log), FRAME_BYTES)
        frames = [encode_frame(Offset(at), log[at : at + FRAME_BYTES]) for at in starts]
        whole = sum(at < at_once for at in starts)
        connection.send(b"".join(frames[:whole]))
        for byte in b"".join(frames[whole:]) if drips else b"":
            time.sleep(0.05)
            connection.send(bytes([byte]))
        connection.await_end()

    return script


@pytest.mark.parametrize(("drips", "records"), [(False, 1), (True, 0), (True, 7)])
def test_whole_records_are_handed_over_and_the_rest_is_not_waited_for(
    fixture_550: Fixture, drips: bool, records: int
) -> None:
    whole = fixture_550.rows[records]["physical_offset"]
    script = sending(fixture_550.log, whole, drips=drips)
    with over_ha((script,), holding(0, fixture_550.max_offset), chunk_bytes=1000) as (log, _):
        began_s = time.monotonic()
        found, is_up = hurried(log, fixture_550.max_offset)
        took_s = time.monotonic() - began_s
    assert is_up
    assert took_s >= HURRY_S
    if records:
        assert_is([one for one in found if isinstance(one, Chunk)], fixture_550, 0, whole)
    else:
        assert found == []


def test_a_flood_of_heartbeats_is_nothing_to_wait_for(fixture_550: Fixture) -> None:
    def flood(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        while not connection.has_ended():
            connection.send(encode_frame(start) * 10_000)

    with over_ha((flood,), holding(0, fixture_550.max_offset)) as (log, _):
        began_s = time.monotonic()
        assert hurried(log, fixture_550.max_offset, start=fixture_550.rows[1]["physical_offset"]) == ([], True)
        assert time.monotonic() - began_s >= HURRY_S


def test_decoding_time_is_no_waiting(fixture_550: Fixture) -> None:
    """Patience is for waiting: who has not waited has lost none."""
    end = fixture_550.max_offset
    with over_ha((serve_log(fixture_550.log),), holding(0, end), chunk_bytes=1000) as (log, _):
        pieces = _pieces(log.hurried(HURRY_S), 0, end)
        found = [kept(next(pieces))]
        time.sleep(2 * HURRY_S)  # this process is busy with others
        found += map(kept, pieces)
    assert len(found) > 10
    assert [
        offset for one in found if isinstance(one, Chunk) for offset in one.records.column("offset").to_pylist()
    ] == truth_between(fixture_550, 0, end)


def test_a_master_that_accepts_and_answers_nothing_is_given_up_in_time(fixture_550: Fixture) -> None:
    with (
        over_ha((serve_log(fixture_550.log),), lambda _: b"", connect_timeout_ms=60_000, connect_attempts=9) as (
            log,
            _,
        ),
        pytest.raises(MasterSilent),
    ):  # and not after nine minutes
        hurried(log, fixture_550.max_offset)


def test_a_master_that_closes_at_once_is_not_asked_again_and_again(fixture_550: Fixture) -> None:
    with over_ha((lambda _: None,), holding(0, fixture_550.max_offset), connect_attempts=9) as (log, master):
        with pytest.raises(MasterError):
            hurried(log, fixture_550.max_offset, start=fixture_550.rows[1]["physical_offset"])
        assert len(master.connections) == 1
