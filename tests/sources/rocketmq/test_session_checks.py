"""What a session makes of what its master says and holds."""

from __future__ import annotations

import struct
import threading

import pytest

from sources.offsets import Offset
from sources.rocketmq.wire.ha import encode_frame
from tests.sources.rocketmq.scripted_master import PATIENCE_S, HAScript, ScriptedMaster, SlaveConnection
from tests.sources.rocketmq.sessions import Known, reported, session_of, session_with, stay, up_to


def saying(data: bytes) -> HAScript:
    """Answers the first report, and stays."""

    def script(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(data)
        connection.await_end()

    return script


HEARTBEAT = encode_frame(Offset(100))
DATA = encode_frame(Offset(100), bytes(50_000))


@pytest.mark.parametrize(
    "data",
    [HEARTBEAT, HEARTBEAT * 5, DATA, HEARTBEAT + DATA, DATA + encode_frame(Offset(1), b"never looked at")],
    ids=["a heartbeat", "heartbeats", "data", "data after a heartbeat", "what follows the first data"],
)
def test_a_master_that_starts_where_it_was_asked_is_trusted(data: bytes) -> None:
    """HA-46: a heartbeat at the right place changes nothing; HA-48: and is not answered by a report."""
    with ScriptedMaster(saying(data)) as master, session_with(master.address) as session:
        reported(session, master, 100)
        reported(session, master, 200)
        state = session.state
    assert master.reports == [100, 200]
    assert (state.last_error, state.reconnects) == (None, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encode_frame(Offset(99)), "a frame at 100, found one at 99"),
        (encode_frame(Offset(101)), "a frame at 100, found one at 101"),
        (HEARTBEAT + encode_frame(Offset(112)), "a frame at 100, found one at 112"),
        (encode_frame(Offset(101), b"x")[:12], "a frame at 100, found one at 101"),
        (struct.pack(">qi", 100, -1), "0 to 4194304 bytes, found -1 bytes"),
        (struct.pack(">qi", 100, 5 * 1024 * 1024), "0 to 4194304 bytes, found 5242880 bytes"),
    ],
    ids=["below", "above", "a heartbeat that moved", "data", "negative", "too large"],
)
def test_a_head_that_contradicts_the_position_ends_the_connection(data: bytes, words: str) -> None:
    """HA-41, HA-42, HA-46: as soon as the head is there; HA-51, HA-52: whatever is wrong with it. It is tried on."""
    with ScriptedMaster(saying(data), stay) as master, session_with(master.address) as session:
        reported(session, master, 100, connection=2)
        assert words in str(session.state.last_error)
    assert [connection.reports for connection in master.connections] == [[100], [100]]


def test_a_master_may_start_at_any_report_it_has_got() -> None:
    """A broker heeds only the last of the reports that one read gave it."""

    def slow(connection: SlaveConnection) -> None:
        connection.await_report_of(300)
        connection.send(encode_frame(Offset(300)) + encode_frame(Offset(300), b"x"))
        connection.await_end()

    with ScriptedMaster(slow) as master, session_with(master.address) as session:
        for offset in (100, 200, 300):
            reported(session, master, offset)
        reported(session, master, 400)
        assert session.state.last_error is None


def test_a_master_that_answers_nothing_is_left() -> None:
    """HA-57: a master that says nothing for the silence timeout, not even heartbeats, is tried anew."""
    with (
        ScriptedMaster(stay) as master,
        session_of(Known(master.address), heartbeat_interval_s=0.05, silence_timeout_ms=300) as session,
    ):
        session.acknowledge(up_to(100))
        master.await_connection(2)
        assert "the master does not answer reports" in str(session.state.last_error)
    assert set(master.reports) == {100}


def test_heartbeats_are_a_sign_of_life() -> None:
    """HA-56: whatever comes keeps the connection."""

    def beat(connection: SlaveConnection) -> None:
        for count in range(1, 16):  # one and a half times the silence that is allowed
            connection.await_reports(count)
            connection.send(HEARTBEAT)
        connection.await_end()

    with (
        ScriptedMaster(beat) as master,
        session_of(Known(master.address), heartbeat_interval_s=0.1, silence_timeout_ms=1000) as session,
    ):
        session.acknowledge(up_to(100))
        master.await_connection(1).await_reports(16)
        assert session.state.last_error is None
        assert len(master.connections) == 1


def test_half_a_head_does_not_hold_up_a_report() -> None:
    def half(connection: SlaveConnection) -> None:
        connection.await_reports()
        connection.send(HEARTBEAT[:5])
        connection.await_report_of(200)
        connection.send(HEARTBEAT[5:] + DATA)
        connection.await_end()

    with ScriptedMaster(half) as master, session_with(master.address) as session:
        reported(session, master, 100)
        for offset in (200, 300):
            reported(session, master, offset)
        assert session.state.last_error is None


def test_a_master_whose_log_ends_below_the_promise_is_promised_nothing() -> None:
    """HA-70."""
    end = Offset(50)
    asked = threading.Semaphore(0)

    def maximum() -> Offset:
        asked.release()
        return end

    reported = threading.Event()

    def heed(connection: SlaveConnection) -> None:
        connection.await_reports()
        reported.set()
        connection.await_end()

    with ScriptedMaster(heed) as master, session_with(master.address, maximum=maximum) as session:
        session.acknowledge(up_to(100))
        for _ in range(3):
            assert asked.acquire(timeout=PATIENCE_S)
        assert master.reports == []
        assert "ends below what the replica has committed" in str(session.state.last_error)
        assert session.state.connected_since is None
        end = Offset(100)
        assert reported.wait(PATIENCE_S)
    assert set(master.reports) == {100}


def test_the_first_raise_after_connecting_is_checked_too() -> None:
    with ScriptedMaster(stay) as master, session_with(master.address, maximum=lambda: Offset(150)) as session:
        reported(session, master, 100)
        session.acknowledge(up_to(200))  # read before the master lost its tail, committed after
        master.await_connection(1).await_end()
        master.await_connection(2)
    assert set(master.reports) == {100}
