"""Reading over HA in a hurry: what has come in time is handed over, and the rest is not waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sources.errors import MasterError, MasterSilent
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import Offset
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.ha import encode_frame
from tests.patience import wait_until
from tests.sources.rocketmq.log_reading import assert_is, kept, offsets, over_ha, owned, truth_between
from tests.sources.rocketmq.scripted_master import HAScript, SlaveConnection, holding, serve_log
from tests.truth import Fixture

HURRY_S, FRAME_BYTES = 0.05, 64


class Clock:
    """Stands still until the master has sent what it sends in time; then each look at it costs `step_s`."""

    def __init__(self) -> None:
        self.now_s = self.step_s = 0.0

    def monotonic(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("sources.rocketmq.session.ha_client.time", clock)
    return clock


def hurried(log: RocketMQLog, end: int, start: int = 0) -> tuple[list[Chunk | Damage], bool]:
    """What is read of [start, end) in time, and whether the time was up."""
    found: list[Chunk | Damage] = []
    try:
        found += map(kept, _pieces(log, start, end))
    except TimeIsUp:
        return found, True
    return found, False


def _pieces(log: RocketMQLog, start: int, end: int) -> Iterator[Chunk | Damage]:
    """In a hurry for bytes alone: a busy machine may take its time to connect and to answer."""
    in_a_hurry = replace(log.hurried(HURRY_S), connect_timeout_ms=log.connect_timeout_ms)
    return in_a_hurry.read(owned(start, end), committed=Offset(start), boundary=True)


def sending(log: bytes, at_once: int, clock: Clock, *, drips: bool = False) -> HAScript:
    """The frames with the first `at_once` bytes of the log; then nothing, or a part of a frame byte by byte."""

    def script(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        starts = range(start, at_once + FRAME_BYTES, FRAME_BYTES)
        *whole, part = (encode_frame(Offset(at), log[at : at + FRAME_BYTES]) for at in starts)
        connection.send(b"".join(whole))
        clock.step_s = HURRY_S / 10
        connection.send_bytewise(part[:FRAME_BYTES] if drips else b"")
        connection.await_end()

    return script


@pytest.mark.parametrize(("drips", "records"), [(False, 1), (True, 0), (True, 7)])
def test_whole_records_are_handed_over_and_the_rest_is_not_waited_for(
    fixture_550: Fixture, clock: Clock, drips: bool, records: int
) -> None:
    whole = fixture_550.rows[records]["physical_offset"]
    script = sending(fixture_550.log, whole, clock, drips=drips)
    with over_ha((script,), holding(0, fixture_550.max_offset), chunk_bytes=1000) as (log, _):
        found, is_up = hurried(log, fixture_550.max_offset)
    assert is_up
    assert clock.now_s >= HURRY_S
    if records:
        assert_is([one for one in found if isinstance(one, Chunk)], fixture_550, 0, whole)
    else:
        assert found == []


def test_a_flood_of_heartbeats_is_nothing_to_wait_for(fixture_550: Fixture, clock: Clock) -> None:
    def flood(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        clock.step_s = HURRY_S / 2
        while not connection.has_ended():
            connection.send(encode_frame(start) * 100)

    with over_ha((flood,), holding(0, fixture_550.max_offset)) as (log, _):
        assert hurried(log, fixture_550.max_offset, start=fixture_550.rows[1]["physical_offset"]) == ([], True)
        assert clock.now_s >= HURRY_S


def test_decoding_time_is_no_waiting(fixture_550: Fixture, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is for waiting: who has not waited has lost none."""
    monkeypatch.setattr("sources.rocketmq.session.ha_client.RECEIVE_BYTES", 4096)
    end = fixture_550.rows[60]["physical_offset"]
    sends = (sending(fixture_550.log, end, clock),)
    with over_ha(sends, holding(0, fixture_550.max_offset), chunk_bytes=1000) as (log, _):
        pieces = _pieces(log, 0, end)
        found = [kept(next(pieces))]
        wait_until(lambda: clock.step_s > 0, "all that is to be read")
        clock.sleep(2 * HURRY_S)  # this process is busy with others
        found += map(kept, pieces)
    assert len(found) > 10
    assert offsets([one for one in found if isinstance(one, Chunk)]) == truth_between(fixture_550, 0, end)


def test_a_master_that_accepts_and_answers_nothing_is_given_up_in_time(fixture_550: Fixture) -> None:
    with (
        over_ha((serve_log(b""),), lambda _: b"", connect_timeout_ms=60_000, connect_attempts=9) as (log, _),
        pytest.raises(MasterSilent),
    ):  # and not after nine minutes
        list(log.hurried(HURRY_S).read(owned(0, fixture_550.max_offset), committed=Offset(0), boundary=True))


def test_a_master_that_closes_at_once_is_not_asked_again_and_again(fixture_550: Fixture) -> None:
    with over_ha((lambda _: None,), holding(0, fixture_550.max_offset), connect_attempts=9) as (log, master):
        with pytest.raises(MasterError):
            hurried(log, fixture_550.max_offset, start=fixture_550.rows[1]["physical_offset"])
        assert len(master.connections) == 1
