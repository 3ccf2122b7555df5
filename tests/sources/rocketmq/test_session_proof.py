"""Before a session promises anything over a connection, the job has to know the master again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sources.errors import MasterUnreachable, Rewritten
from tests.patience import eventually
from tests.sources.rocketmq.scripted_master import PATIENCE_S, ScriptedMaster
from tests.sources.rocketmq.sessions import COUNTS_CONNECTIONS, Known, leave_after, reported, session_of, stay, up_to


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
