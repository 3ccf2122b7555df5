"""What a session does not read stands still at the master, and with it a file of its log: not for ever."""

from __future__ import annotations

import pytest

from sources.errors import Rewritten
from sources.offsets import Offset
from sources.rocketmq.wire.ha import encode_frame
from tests.patience import eventually
from tests.sources.rocketmq.scripted_master import ScriptedMaster, SlaveConnection
from tests.sources.rocketmq.sessions import COUNTS_CONNECTIONS, Known, reported, session_of, stay, up_to

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
