"""Sessions with masters that a test speaks for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sources.access.address import Address
from sources.master import Committed
from sources.offsets import LogId, Offset
from sources.rocketmq.session.session import HASession
from tests.sources.rocketmq.scripted_master import HAScript, ScriptedMaster, SlaveConnection

LOG_ID = LogId("rocketmq", "broker-a")
COUNTS_CONNECTIONS = {"inSyncReplicas": "3", "haHousekeepingInterval": "100"}


def up_to(offset: int, log_id: LogId = LOG_ID) -> dict[LogId, Committed]:
    """What a session is given to acknowledge."""
    return {log_id: Committed(Offset(offset))}


def stay(connection: SlaveConnection) -> None:
    connection.await_end()


def leave_after(count: int) -> HAScript:
    def script(connection: SlaveConnection) -> None:
        connection.await_reports(count)

    return script


@dataclass
class Known:
    """A master whose answers a test sets, and may change."""

    address: Address
    end: Callable[[], Offset] = lambda: Offset(2**62)
    words: dict[str, str] = field(default_factory=dict)

    def ha(self) -> Address:
        return self.address

    def maximum(self) -> Offset:
        return self.end()

    def config(self) -> dict[str, str]:
        return self.words

    def look_again(self) -> None: ...


@contextmanager
def session_of(master: Known, *, heartbeat_interval_s: float = 60.0, **options: Any) -> Iterator[HASession]:
    session = HASession(
        master,
        LOG_ID,
        heartbeat_interval_s=heartbeat_interval_s,
        longest_wait_s=0.2,
        **{"connect_timeout_ms": 10_000} | options,
    )
    with closing(session):
        yield session


def session_with(
    address: Address, *, maximum: Callable[[], Offset] = lambda: Offset(2**62), heartbeat_interval_s: float = 60.0
) -> AbstractContextManager[HASession]:
    return session_of(Known(address, maximum), heartbeat_interval_s=heartbeat_interval_s)


def reported(session: HASession, master: ScriptedMaster, offset: int, *, connection: int = 1) -> None:
    """Acknowledge `offset`, and wait until it is reported over that connection, from 1."""
    session.acknowledge(up_to(offset))
    master.await_connection(connection).await_report_of(offset)
