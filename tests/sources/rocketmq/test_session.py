"""The acknowledging session: what it reports, in which order, to masters that come and go. Never above committed."""

import contextlib
import itertools
import logging
import socket
import threading
import time
from typing import Any

import pytest

from sources.access.address import Address
from sources.errors import MasterUnreachable
from sources.offsets import Offset
from sources.rocketmq.session.ha_connection import connect_slave, say_goodbye
from sources.rocketmq.wire.ha import encode_frame
from tests.deaf_port import deaf_port
from tests.patience import eventually
from tests.sources.rocketmq.scripted_master import (
    PATIENCE_S,
    HAScript,
    ScriptedMaster,
    SlaveConnection,
    after_the_report,
)
from tests.sources.rocketmq.sessions import Known, leave_after, reported, session_of, session_with, stay, up_to


def test_an_acknowledgement_is_reported_at_once() -> None:
    """HA-39, HA-47, HA-62: no report waits for a heartbeat or a slice of time; HA-61: all go over one connection."""
    with ScriptedMaster(stay) as master, session_with(master.address, heartbeat_interval_s=3600.0) as session:
        for offset in (100, 250, 251):
            reported(session, master, offset)
        assert eventually(lambda: session.state.acknowledged == 251)
        before = session.state
        session.close()
        after = session.state
    assert before.connected_since is not None
    assert after.connected_since is None
    assert master.reports == [100, 250, 251]
    assert len(master.connections) == 1


def test_without_an_acknowledgement_nobody_connects() -> None:
    """HA-66: who has nothing to acknowledge connects to nobody."""
    with ScriptedMaster(stay) as master, session_with(master.address) as session:
        assert session.state.acknowledged is None
        session.acknowledge(up_to(0))
        assert session.state.acknowledged is None
    assert master.connections == []


def test_the_last_report_is_repeated_as_heartbeat() -> None:
    """HA-37: so that the master does not take a replica without news for dead."""
    with ScriptedMaster(stay) as master, session_with(master.address, heartbeat_interval_s=0.02) as session:
        session.acknowledge(up_to(100))
        assert set(master.await_connection(1).await_reports(5)) == {100}
        reported(session, master, 200)
        count = len(master.reports)
        assert set(master.await_connection(1).await_reports(count + 3)[count:]) == {200}


def test_a_lower_acknowledgement_is_a_mistake_of_the_caller() -> None:
    """HA-48."""
    with ScriptedMaster(stay) as master, session_with(master.address) as session:
        session.acknowledge(up_to(100))
        session.acknowledge(up_to(100))
        with pytest.raises(ValueError, match="rocketmq/broker-a: acknowledging 99 after 100"):
            session.acknowledge(up_to(99))
        assert eventually(lambda: session.state.acknowledged == 100)


def test_a_closed_connection_is_made_anew_and_starts_with_the_last_acknowledgement() -> None:
    """HA-49, HA-59: the first report of a connection is what holds then. HA-54: it is made without a long wait."""
    with ScriptedMaster(leave_after(2), leave_after(1), stay) as master, session_with(master.address) as session:
        reported(session, master, 100)
        reported(session, master, 200, connection=3)
        assert eventually(lambda: session.state.acknowledged == 200)
        state = session.state
    assert [connection.reports[0] for connection in master.connections] == [100, 200, 200]
    assert state.reconnects == 2
    assert state.connected_since is not None
    assert state.acknowledged == 200
    assert state.last_error is not None


def test_no_acknowledgement_over_failing_connections_passes_the_committed_position() -> None:
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
                session.acknowledge(up_to(promised))
                time.sleep(0.0005)
            master.await_connection(9).await_report_of(1000)
        for connection in master.connections:
            assert connection.reports == sorted(connection.reports)
    assert lies == []


def test_a_master_that_comes_up_late_gets_the_promise() -> None:
    """HA-60: without a master it is tried for ever. Nothing is wrong any more once the master answers."""
    nobody = Address("127.0.0.1", deaf_port())
    with ScriptedMaster(after_the_report(encode_frame(Offset(100)))) as master:
        known = Known(nobody)
        with session_of(known) as session:
            session.acknowledge(up_to(100))
            assert eventually(lambda: session.state.last_error is not None)
            away = session.state
            known.address = master.address
            master.await_connection(1).await_report_of(100)
            assert eventually(lambda: session.state.last_error is None)
            assert session.state.connected_since is not None
    assert away.connected_since is None
    assert "cannot connect" in str(away.last_error)


def test_a_broken_connection_is_one_warning_and_a_lasting_one_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """HA-65: what a failure logs is the failure, once; HA-64: and the session goes on."""
    with ScriptedMaster(leave_after(1), stay) as master:
        known = Known(master.address)
        with session_of(known) as session:
            reported(session, master, 100, connection=2)
            (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.startswith(f"rocketmq/broker-a: acknowledging to {master.address} failed, will retry: ")


def test_a_master_that_cannot_be_asked_for_its_end_is_tried_again() -> None:
    """HA-64: what fails is tried again."""
    answers = iter([MasterUnreachable("away"), MasterUnreachable("still away")])

    def maximum() -> Offset:
        for error in answers:
            raise error
        return Offset(100)

    with ScriptedMaster(stay) as master, session_with(master.address, maximum=maximum) as session:
        reported(session, master, 100, connection=3)
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
        session.acknowledge(up_to(100))
        master.await_connection(1).await_reports()
        reported(session, master, 200)
        assert master.await_connection(2).await_reports()[0] == 200


def test_the_last_acknowledgement_gets_out_before_the_session_closes() -> None:
    for _ in range(5):
        with ScriptedMaster(stay) as master:
            with session_with(master.address) as session:
                session.acknowledge(up_to(100))
            assert master.await_connection(1).await_reports() == [100]


def test_the_last_acknowledgement_is_tried_once_more_after_a_broken_connection() -> None:
    with ScriptedMaster(leave_after(1), stay) as master:
        with session_with(master.address) as session:
            session.acknowledge(up_to(100))
            master.await_connection(1).await_end()
            session.acknowledge(up_to(200))
        assert master.await_connection(2).await_reports()[-1] == 200


def test_closing_leaves_no_thread_behind_and_is_bounded_idempotent_and_final() -> None:
    def threads() -> set[threading.Thread]:
        """Those of sessions of this name; the process has others, which tests before this one may have left."""
        return {thread for thread in threading.enumerate() if thread.name == "acknowledge rocketmq/broker-a"}

    before = threads()
    with ScriptedMaster(stay) as master:
        with session_with(master.address) as session:
            session.acknowledge(up_to(100))
            master.await_connection(1).await_reports()
            assert len(threads() - before) == 1
        assert threads() <= before
    with session_with(Address("127.0.0.1", deaf_port())) as session:  # also where nobody is there
        session.acknowledge(up_to(100))
        session.close()
        session.close()
        with pytest.raises(ValueError, match="closed session"):
            session.acknowledge(up_to(200))


def test_only_a_master_that_has_ended_its_half_counts_us_no_longer() -> None:
    """It has, too, if it has reset the connection; not if it sends on and on, for which nobody waits."""
    ours, masters = socket.socketpair()
    with ours, masters:
        ours.sendall(b"a report")
        masters.close()  # with that unread: a reset
        assert say_goodbye(ours, within_s=PATIENCE_S)
    ours, masters = socket.socketpair()

    def send_on() -> None:
        with contextlib.suppress(OSError):
            while True:
                masters.sendall(bytes(65536))

    sender = threading.Thread(target=send_on)
    with ours, masters:
        sender.start()
        assert not say_goodbye(ours, within_s=0.05)
        ours.close()
        sender.join(PATIENCE_S)


def test_acknowledging_does_not_wait_for_the_master() -> None:
    busy = threading.Event()
    was_set: list[bool] = []

    def maximum() -> Offset:
        was_set.append(busy.wait(PATIENCE_S))
        return Offset(2**62)

    with ScriptedMaster(stay) as master, session_with(master.address, maximum=maximum) as session:
        for offset in range(1, 20_001):  # more than the wake-up channel holds
            session.acknowledge(up_to(offset))
        busy.set()
        master.await_connection(1).await_report_of(20_000)
    assert all(was_set)


def test_a_report_that_cannot_be_sent_breaks_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-36: it is sent whole, in bounded time, or the link is given up; HA-63: and made anew without a long pause."""

    def deaf(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(listener.accept()[0])  # and never reads

    def full(*where: Any, **options: Any) -> socket.socket:
        sock = connect_slave(*where, **options)
        sock.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(bytes(1 << 16))
        sock.settimeout(0.2)
        return sock

    monkeypatch.setattr("sources.rocketmq.session.session.connect_slave", full)
    monkeypatch.setattr("sources.rocketmq.session.session._GOODBYE_S", 0.05)
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        thread = threading.Thread(target=deaf, args=(listener,), daemon=True)
        thread.start()
        master = Known(Address("127.0.0.1", listener.getsockname()[1]))
        with session_of(master, heartbeat_interval_s=0.0) as session:
            session.acknowledge(up_to(100))
            assert eventually(lambda: len(connections) > 1)
            assert "timed out" in str(session.state.last_error)
            assert eventually(lambda: session.state.reconnects > 0)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)
    for connection in connections:
        connection.close()


def test_heartbeats_keep_their_interval() -> None:
    """HA-38: to a master that says nothing one report goes out an interval, and not one each time it is looked at."""
    with ScriptedMaster(stay) as master, session_with(master.address, heartbeat_interval_s=0.2) as session:
        session.acknowledge(up_to(100))
        connection = master.await_connection(1)
        connection.await_reports()
        started = time.monotonic()
        connection.await_reports(6)
        assert time.monotonic() - started > 0.9


def test_a_changed_address_is_used_at_the_next_connection_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """HA-10: the same address again is no news, a new one is, once; HA-11: the live connection stays till it fails."""
    caplog.set_level(logging.INFO)
    moved = threading.Event()

    def leave_when_told(connection: SlaveConnection) -> None:
        moved.wait(PATIENCE_S)

    with ScriptedMaster(leave_after(1), leave_when_told) as old, ScriptedMaster(leave_after(1), stay) as new:
        known = Known(old.address)
        with session_of(known) as session:
            session.acknowledge(up_to(100))
            old.await_connection(2).await_report_of(100)
            known.address = new.address
            session.acknowledge(up_to(200))
            old.await_connection(2).await_report_of(200)
            assert new.connections == []
            moved.set()
            new.await_connection(2).await_report_of(200)
    news = [record.getMessage() for record in caplog.records if "is at" in record.getMessage()]
    assert news == [f"rocketmq/broker-a: the master is at {new.address} now, no longer at {old.address}"]
