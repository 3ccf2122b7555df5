"""What a session makes of what its master says and holds; how the job knows the master again before a promise; and a
connection that stands at the master, and with it a file of its log: not for ever.
"""

import struct
import threading
from collections.abc import Iterator

import pytest

from sources.errors import MasterUnreachable, Rewritten
from sources.offsets import Offset
from sources.rocketmq.wire.ha import encode_frame
from tests.patience import eventually
from tests.sources.rocketmq.scripted_master import PATIENCE_S, ScriptedMaster, SlaveConnection, after_the_report
from tests.sources.rocketmq.sessions import (
    COUNTS_CONNECTIONS,
    Known,
    leave_after,
    reported,
    session_of,
    session_with,
    stay,
    up_to,
)

HEARTBEAT = encode_frame(Offset(100))
DATA = encode_frame(Offset(100), bytes(50_000))


@pytest.mark.parametrize(
    "data",
    [HEARTBEAT, HEARTBEAT * 5, DATA, HEARTBEAT + DATA, DATA + encode_frame(Offset(1), b"never looked at")],
    ids=["a heartbeat", "heartbeats", "data", "data after a heartbeat", "what follows the first data"],
)
def test_a_master_that_starts_where_it_was_asked_is_trusted(data: bytes) -> None:
    """HA-46: a heartbeat at the right place changes nothing; HA-48: and is not answered by a report."""
    with ScriptedMaster(after_the_report(data)) as master, session_with(master.address) as session:
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
    with ScriptedMaster(after_the_report(data), stay) as master, session_with(master.address) as session:
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


# proofs


def test_each_connection_is_preceded_by_a_proof() -> None:
    reported_before: list[int] = []
    with ScriptedMaster(leave_after(2), leave_after(1), stay) as master:

        def prove() -> None:
            reported_before.append(sum(len(connection.reports) for connection in master.connections))

        with session_of(Known(master.address), prove=prove) as session:
            reported(session, master, 100)
            reported(session, master, 200, connection=3)
    assert reported_before == [0, 2, 3]


@pytest.mark.parametrize(
    "error",
    [
        MasterUnreachable("away"),
        Rewritten("another log"),
        OSError("no more files"),
        OverflowError("nobody thought of it"),
        MemoryError("nobody thought of it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_nothing_is_promised_to_a_master_that_is_not_proven(error: Exception) -> None:
    """It is asked for again: the master may be back, or the right one again. Whatever fails is told."""
    failures: Iterator[Exception] = iter([error, error])
    proofs: list[bool] = []

    def prove() -> None:
        proofs.append(master.connections == [])
        for failure in failures:
            raise failure

    with ScriptedMaster(stay) as master, session_of(Known(master.address), prove=prove) as session:
        session.acknowledge(up_to(100))
        assert eventually(lambda: str(error) in (session.state.last_error or ""))
        assert session.failure is (error if isinstance(error, Rewritten) else None)  # no other disproves the master
        master.await_connection(1).await_report_of(100)
    assert proofs == [True, True, True]
    assert len(master.connections) == 1


def test_a_proof_takes_the_turn_of_the_session() -> None:
    """It may connect: to a master that counts connections not while tasks read."""
    proving, may_end, entered = threading.Event(), threading.Event(), threading.Event()
    may_leave = threading.Event()
    inside_at_the_end: list[bool] = []  # whether tasks were reading as a proof ended; each connection has one

    def prove() -> None:
        proving.set()
        assert may_end.wait(PATIENCE_S)
        inside_at_the_end.append(entered.is_set() and not may_leave.is_set())

    with (
        ScriptedMaster(stay, stay) as master,
        session_of(Known(master.address, words=COUNTS_CONNECTIONS), prove=prove) as session,
    ):

        def read() -> None:
            with session.reading():
                entered.set()
                may_leave.wait(PATIENCE_S)

        session.acknowledge(up_to(100))
        assert proving.wait(PATIENCE_S)
        tasks = threading.Thread(target=read)
        tasks.start()
        assert not entered.wait(0.2)
        may_end.set()
        assert entered.wait(PATIENCE_S)
        assert inside_at_the_end == [False]
        may_leave.set()
        tasks.join(PATIENCE_S)
        assert eventually(lambda: any(100 in connection.reports for connection in master.connections))
    assert not any(inside_at_the_end)


# renewals

SOON_S = 0.1


def test_a_connection_that_has_stood_long_is_made_anew_before_the_old_one_ends() -> None:
    """A broker of 4.x tells producers that no slave is available as soon as there is none."""
    was_there: list[bool] = []

    def accept(connection: SlaveConnection) -> None:
        connection.await_reports()
        was_there.append(any(not one.has_ended() for one in master.connections if one is not connection))
        connection.send(encode_frame(Offset(connection.reports[0])))
        connection.await_end()

    with ScriptedMaster(accept) as master, session_of(Known(master.address), renew_after_s=SOON_S) as session:
        session.acknowledge(up_to(100))
        assert eventually(lambda: session.state.connected_since is not None)
        since = session.state.connected_since
        reported(session, master, 200, connection=3)
        master.await_connection(1).await_end()
        master.await_connection(2).await_end()
        assert session.state.reconnects == 0  # no interruption
        assert session.state.connected_since == since
        assert session.state.last_error is None
    assert was_there[:3] == [False, True, True]
    assert all(connection.has_ended() for connection in master.connections)


def test_a_master_that_is_another_one_by_then_keeps_no_old_connection() -> None:
    proven = iter([None])

    def prove() -> None:
        for _ in proven:
            return
        raise Rewritten("another log")

    with (
        ScriptedMaster(stay) as master,
        session_of(Known(master.address), renew_after_s=SOON_S, prove=prove) as session,
    ):
        session.acknowledge(up_to(100))
        master.await_connection(1).await_end()
        assert eventually(lambda: session.state.last_error == "another log")
        assert session.state.connected_since is None
    assert len(master.connections) == 1


@pytest.mark.parametrize("renews", [1, 2])
def test_to_a_master_that_counts_connections_the_old_one_ends_first(renews: int) -> None:
    were_there: list[bool] = []

    def accept(connection: SlaveConnection) -> None:
        were_there.append(any(not one.has_ended() for one in master.connections if one is not connection))
        connection.await_end()

    with ScriptedMaster(accept) as master:
        with session_of(Known(master.address, words=COUNTS_CONNECTIONS), renew_after_s=SOON_S) as session:
            with session.reading():
                pass  # that is when the session hears of it
            session.acknowledge(up_to(100))
            master.await_connection(1 + renews).await_report_of(100)
        assert eventually(lambda: all(one.has_ended() for one in master.connections))
    assert not any(were_there)
