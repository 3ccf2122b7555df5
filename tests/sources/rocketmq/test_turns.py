"""The session and the tasks that read take turns with a master that counts connections."""

import threading
import time
from dataclasses import replace
from itertools import product

import pytest

from sources.access.address import Address
from sources.errors import MasterUnreachable
from sources.offsets import Offset
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.session.session import HASession
from sources.rocketmq.session.turns import LEADS_TO, Turn, Turns, TurnStep
from tests.patience import eventually
from tests.sources.rocketmq.scripted_master import PATIENCE_S, ScriptedMaster, SlaveConnection
from tests.sources.rocketmq.sessions import COUNTS_CONNECTIONS, LOG_ID, Known, reported, session_of, stay, up_to

WAYS = {
    (Turn.NOBODYS, TurnStep.BEGIN): Turn.SESSIONS,
    (Turn.NOBODYS, TurnStep.ASK): Turn.READERS,
    (Turn.SESSIONS, TurnStep.END): Turn.NOBODYS,
    (Turn.SESSIONS, TurnStep.ASK): Turn.ENDING,
    (Turn.ENDING, TurnStep.END): Turn.READERS,
    (Turn.ENDING, TurnStep.GIVE_BACK): Turn.SESSIONS,
    (Turn.READERS, TurnStep.GIVE_BACK): Turn.NOBODYS,
}


def at(turn: Turn) -> Turns:
    turns = Turns(lambda: None)
    turns._turn = turn
    return turns


@pytest.mark.parametrize(("before", "step"), list(product(Turn, TurnStep)), ids=lambda one: one.name)
def test_each_step_leads_where_the_table_says_and_else_nowhere(before: Turn, step: TurnStep) -> None:
    after = WAYS.get((before, step), before)
    assert LEADS_TO[before].get(step, before) is after
    turns = at(before)
    turns._step(step)
    assert turns._turn is after
    assert {before, after} != {Turn.SESSIONS, Turn.READERS}  # one's connection has ended before the other's begins


@pytest.mark.parametrize("words", [{}, {"inSyncReplicas": "1"}, {"inSyncReplicas": "2"}])
def test_a_master_that_counts_no_connections_sees_none_leave(words: dict[str, str]) -> None:
    with ScriptedMaster(stay) as master, session_of(Known(master.address, words=words)) as session:
        reported(session, master, 100)
        with session.reading():
            reported(session, master, 200)
        assert len(master.connections) == 1


def test_tasks_read_while_the_session_is_away() -> None:
    with ScriptedMaster(stay) as master, session_of(Known(master.address, words=COUNTS_CONNECTIONS)) as session:
        reported(session, master, 100)
        assert eventually(lambda: session.state.acknowledged == 100)
        before = session.state
        for batch in range(2, 5):
            with session.reading():
                assert master.connections[-1].has_ended()
                session.acknowledge(up_to(100 * batch))
                during = session.state
                assert len(master.connections) == batch - 1
            # a pause, no loss of connection; what is left to be sent meanwhile was not sent yet
            assert during == replace(before, acknowledged=Offset(100 * batch - 100))
            master.await_connection(batch).await_report_of(100 * batch)
            expected = replace(before, acknowledged=Offset(100 * batch))
            assert eventually(lambda now=expected: session.state == now)  # type: ignore[misc]
    assert [connection.reports for connection in master.connections] == [[100], [200], [300], [400]]


def test_the_turn_is_the_tasks_only_when_the_master_has_ended_too() -> None:
    """A master takes a connection off its list before it ends the stream."""
    may_end = threading.Event()
    entered = threading.Event()

    def linger(connection: SlaveConnection) -> None:
        connection.await_end()
        may_end.wait(PATIENCE_S)

    def enter(session: HASession) -> None:
        with session.reading():
            entered.set()

    with ScriptedMaster(linger, stay) as master, session_of(Known(master.address, words=COUNTS_CONNECTIONS)) as session:
        reported(session, master, 100)
        job = threading.Thread(target=enter, args=(session,))
        job.start()
        master.await_connection(1).await_end()
        assert not entered.wait(0.2)
        may_end.set()
        assert entered.wait(PATIENCE_S)
        job.join(PATIENCE_S)


def test_a_connection_that_has_not_reported_yet_has_the_turn_too() -> None:
    """A master lists it as soon as it is there."""
    asked, may_answer, entered = threading.Event(), threading.Event(), threading.Event()

    def maximum() -> Offset:
        asked.set()
        assert may_answer.wait(PATIENCE_S)
        return Offset(2**62)

    known = Known(Address("127.0.0.1", 1), maximum, words=COUNTS_CONNECTIONS)
    with ScriptedMaster(stay) as master, session_of(known) as session:
        known.address = master.address

        def read() -> None:
            with session.reading():
                assert all(connection.has_ended() for connection in master.connections)
                entered.set()

        session.acknowledge(up_to(100))
        assert asked.wait(PATIENCE_S)
        job = threading.Thread(target=read)
        job.start()
        assert not entered.wait(0.2)
        may_answer.set()
        assert entered.wait(PATIENCE_S)
        job.join(PATIENCE_S)


def test_a_master_that_cannot_be_connected_to_costs_nobody_a_turn() -> None:
    known = Known(Address("127.0.0.1", 1), words=COUNTS_CONNECTIONS | {"haHousekeepingInterval": "600000"})
    with session_of(known) as session:
        session.acknowledge(up_to(100))
        assert eventually(lambda: session.state.last_error is not None)
        with session.reading():
            assert session.state.connected_since is None


def test_after_failed_tasks_nobody_connects_until_the_master_forgot_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.rocketmq.broker_words._HOUSEKEEPING_MARGIN_S", 0.0)
    words = {"inSyncReplicas": "3", "haHousekeepingInterval": "500"}
    with ScriptedMaster(stay) as master, session_of(Known(master.address, words=words)) as session:
        reported(session, master, 100)
        with pytest.raises(ZeroDivisionError), session.reading():
            raise ZeroDivisionError
        failed_at = time.monotonic()
        with session.reading():  # the next attempt waits as well
            assert time.monotonic() - failed_at > 0.5
            assert len(master.connections) == 1
        master.await_connection(2).await_report_of(100)


def test_a_master_is_not_asked_again_whether_it_counts_until_something_has_failed() -> None:
    """Those who read ask it themselves, and are told so; what failed may linger when it has begun to count."""
    known = Known(Address("127.0.0.1", 1), words={"haHousekeepingInterval": "600000"})
    log = RocketMQLog(log_id=LOG_ID, master=known.address, remoting=known.address)
    with session_of(known) as session:
        with session.reading():
            assert session.reader_of(log) == replace(log, takes_no_turn=True)
        known.words = known.words | {"inSyncReplicas": "3"}
        with pytest.raises(ZeroDivisionError), session.reading():
            assert session.reader_of(log) == replace(log, takes_no_turn=True)
            raise ZeroDivisionError
        closing_soon = threading.Timer(0.2, session.close)
        closing_soon.start()
        with pytest.raises(MasterUnreachable, match="closed while"), session.reading():
            raise AssertionError("the connections of those who failed may be counted")
        assert session.reader_of(log) == log
        closing_soon.join()


def test_who_reads_without_a_turn_gets_none_when_the_session_learns_that_they_are_counted() -> None:
    with ScriptedMaster(stay) as master:
        known = Known(master.address, words={"haHousekeepingInterval": "600000"})
        log = RocketMQLog(log_id=LOG_ID, master=known.address, remoting=known.address)
        with session_of(known) as session:
            with session.reading():
                pass
            with session.reading():  # a batch begins
                known.words = known.words | {"inSyncReplicas": "3"}
                reported(session, master, 100)
                assert session.reader_of(log) == replace(log, takes_no_turn=True)
            assert session.reader_of(log) == log


def test_readers_take_turns_and_may_leave_in_another_thread() -> None:
    """A turn that was given up comes to its end before the next one begins: two readers would be two replicas."""
    turns, entered = Turns(lambda: None), threading.Event()
    first = turns.of_readers(0.1)
    first.__enter__()

    def read() -> None:
        with turns.of_readers(0.1):
            entered.set()
            assert turns.are_readers

    second = threading.Thread(target=read)
    second.start()
    assert not entered.wait(0.1)
    leaving = threading.Thread(target=first.__exit__, args=(None, None, None))
    leaving.start()
    assert entered.wait(PATIENCE_S)
    for thread in (leaving, second):
        thread.join(PATIENCE_S)
    assert not turns.are_readers
