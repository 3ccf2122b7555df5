"""The acknowledging session: what it reports, in which order, to masters that come and go. Never above committed."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from sources.errors import MasterUnreachable
from sources.offsets import LogId, Offset
from sources.rocketmq.address import Address
from sources.rocketmq.ha import encode_frame
from sources.rocketmq.session import HASession
from tests.sources.rocketmq.scripted_master import PATIENCE_S, HAScript, ScriptedMaster, SlaveConnection

LOG_ID = LogId("rocketmq", "broker-a")


def stay(connection: SlaveConnection) -> None:
    connection.await_end()


def leave_after(count: int) -> HAScript:
    """Close the connection after `count` reports."""

    def script(connection: SlaveConnection) -> None:
        connection.await_reports(count)

    return script


@contextmanager
def session_with(
    address: Address, *, maximum: Callable[[], Offset] = lambda: Offset(2**62), heartbeat_interval_s: float = 60.0
) -> Iterator[HASession]:
    session = HASession(
        address,
        LOG_ID,
        maximum=maximum,
        heartbeat_interval_s=heartbeat_interval_s,
        longest_wait_s=0.2,
        connect_timeout_ms=10_000,
    )
    with closing(session):
        yield session


def test_an_acknowledgement_is_reported_at_once() -> None:
    with ScriptedMaster(stay) as master, session_with(master.address) as session:
        for offset in (100, 250, 251):
            started = time.monotonic()
            session.acknowledge(Offset(offset))
            master.await_connection(1).await_report_of(offset)
            assert time.monotonic() - started < 5  # and not the 60 s to the next heartbeat
        assert session.acknowledged == 251
        before = session.state
        session.close()
        after = session.state
    assert before.connected_since is not None
    assert after.connected_since is None
    assert master.reports == [100, 250, 251]
    assert len(master.connections) == 1


def test_without_an_acknowledgement_nobody_connects() -> None:
    with ScriptedMaster(stay) as master, session_with(master.address) as session:
        assert session.state.acknowledged is None
        session.acknowledge(Offset(0))
        assert session.acknowledged == 0
    assert master.connections == []


def test_zero_is_never_reported() -> None:
    with ScriptedMaster(stay) as master, session_with(master.address) as session:
        session.acknowledge(Offset(0))
        session.acknowledge(Offset(7))
        master.await_connection(1).await_report_of(7)
    assert master.reports == [7]


def test_the_last_report_is_repeated_as_heartbeat() -> None:
    with ScriptedMaster(stay) as master, session_with(master.address, heartbeat_interval_s=0.02) as session:
        session.acknowledge(Offset(100))
        assert set(master.await_connection(1).await_reports(5)) == {100}
        session.acknowledge(Offset(200))
        master.await_connection(1).await_report_of(200)
        count = len(master.reports)
        assert set(master.await_connection(1).await_reports(count + 3)[count:]) == {200}


def test_a_lower_acknowledgement_is_a_mistake_of_the_caller() -> None:
    with ScriptedMaster(stay) as master, session_with(master.address) as session:
        session.acknowledge(Offset(100))
        session.acknowledge(Offset(100))
        with pytest.raises(ValueError, match="rocketmq/broker-a: acknowledging 99 after 100"):
            session.acknowledge(Offset(99))
        assert session.acknowledged == 100


def test_a_closed_connection_is_made_anew_and_starts_with_the_last_acknowledgement() -> None:
    with ScriptedMaster(leave_after(2), leave_after(1), stay) as master, session_with(master.address) as session:
        session.acknowledge(Offset(100))
        master.await_connection(1).await_report_of(100)
        session.acknowledge(Offset(200))
        master.await_connection(3).await_report_of(200)
        state = session.state

    assert [connection.reports[0] for connection in master.connections] == [100, 200, 200]
    assert state.reconnects == 2
    assert state.connected_since is not None
    assert state.acknowledged == 200
    assert state.last_error is not None


def test_a_thousand_acknowledgements_over_failing_connections_never_pass_the_committed_position() -> None:
    committed = itertools.count(1)
    promised = Offset(0)
    lies: list[Offset] = []

    def watch(count: int) -> HAScript:
        def script(connection: SlaveConnection) -> None:
            for seen in range(1, count + 1):
                lies.extend(report for report in connection.await_reports(seen) if report > promised)

        return script

    with ScriptedMaster(*map(watch, (1, 2, 3, 5, 8, 13, 21, 34)), stay) as master:
        with session_with(master.address, heartbeat_interval_s=0.005) as session:
            for offset in itertools.islice(committed, 1000):
                promised = Offset(offset)
                session.acknowledge(promised)
                time.sleep(0.0005)
            master.await_connection(9).await_report_of(1000)
        for connection in master.connections:
            assert connection.reports == sorted(connection.reports)
    assert lies == []


def test_a_master_that_comes_up_late_gets_the_promise() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = Address("127.0.0.1", listener.getsockname()[1])
    with session_with(nobody) as session:
        session.acknowledge(Offset(100))
        deadline = time.monotonic() + PATIENCE_S
        while session.state.last_error is None and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        state = session.state
    assert state.connected_since is None
    assert "cannot connect" in str(state.last_error)


def test_a_master_whose_log_ends_below_the_promise_is_promised_nothing() -> None:
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
        session.acknowledge(Offset(100))
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
        session.acknowledge(Offset(100))
        master.await_connection(1).await_report_of(100)
        session.acknowledge(Offset(200))  # read before the master lost its tail, committed after
        master.await_connection(1).await_end()
        master.await_connection(2)
    assert set(master.reports) == {100}


def test_a_master_that_cannot_be_asked_for_its_end_is_tried_again() -> None:
    answers = iter([MasterUnreachable("away"), MasterUnreachable("still away")])

    def maximum() -> Offset:
        for error in answers:
            raise error
        return Offset(100)

    with ScriptedMaster(stay) as master, session_with(master.address, maximum=maximum) as session:
        session.acknowledge(Offset(100))
        master.await_connection(3).await_report_of(100)
    assert set(master.reports) == {100}


def test_what_the_master_streams_is_left_unread_and_its_close_is_noticed() -> None:
    def flood(connection: SlaveConnection) -> None:
        connection.await_reports()
        body = bytes(32 * 1024)
        sender = threading.Thread(target=send_for_ever, args=(connection, body), daemon=True)
        sender.start()
        connection.await_reports(3)  # honoured although nothing is read

    def send_for_ever(connection: SlaveConnection, body: bytes) -> None:
        try:
            for at in itertools.count(100, len(body)):
                connection.send(encode_frame(Offset(at), body))
        except OSError:
            return

    with ScriptedMaster(flood, stay) as master, session_with(master.address, heartbeat_interval_s=0.05) as session:
        session.acknowledge(Offset(100))
        master.await_connection(1).await_reports()
        session.acknowledge(Offset(200))
        master.await_connection(1).await_report_of(200)
        assert master.await_connection(2).await_reports()[0] == 200


def test_the_last_acknowledgement_gets_out_before_the_session_closes() -> None:
    for _ in range(20):
        with ScriptedMaster(stay) as master:
            with session_with(master.address) as session:
                session.acknowledge(Offset(100))
            assert master.await_connection(1).await_reports() == [100]


def test_the_last_acknowledgement_is_tried_once_more_after_a_broken_connection() -> None:
    with ScriptedMaster(leave_after(1), stay) as master:
        with session_with(master.address) as session:
            session.acknowledge(Offset(100))
            master.await_connection(1).await_end()
            session.acknowledge(Offset(200))
        assert master.await_connection(2).await_reports()[-1] == 200


def test_closing_is_bounded_idempotent_and_final() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = Address("127.0.0.1", listener.getsockname()[1])
    with session_with(nobody) as session:
        session.acknowledge(Offset(100))
        started = time.monotonic()
        session.close()
        session.close()
        assert time.monotonic() - started < 5
        with pytest.raises(ValueError, match="closed session"):
            session.acknowledge(Offset(200))


def test_closing_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with ScriptedMaster(stay) as master:
        with session_with(master.address) as session:
            session.acknowledge(Offset(100))
            master.await_connection(1).await_reports()
            during = {thread.name for thread in threading.enumerate()}
        after = {thread.name for thread in threading.enumerate()}
    assert "acknowledge rocketmq/broker-a" in during
    assert "acknowledge rocketmq/broker-a" not in after
    assert threading.active_count() == before


def test_acknowledging_does_not_wait_for_the_master() -> None:
    busy = threading.Event()

    def maximum() -> Offset:
        busy.wait(PATIENCE_S)
        return Offset(2**62)

    with ScriptedMaster(stay) as master, session_with(master.address, maximum=maximum) as session:
        started = time.monotonic()
        for offset in range(1, 20_001):  # more than the wake-up channel holds
            session.acknowledge(Offset(offset))
        assert time.monotonic() - started < PATIENCE_S / 2
        busy.set()
        master.await_connection(1).await_report_of(20_000)
