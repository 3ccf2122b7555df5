"""A RocketMQ commit log as a master log: read from its segment files, or from its broker over HA.

To its master a reader of files does not exist; a reader over HA is a slave, which producers may wait for.

Over HA, three rules hold. A range is checked against what the broker says it holds (remoting request 28) before any HA
connection, because HA answers a wrong offset with nothing but heartbeats. A reading connection never starts above the
committed position, because its first report is an acknowledgement; unless the broker says that nobody waits for slaves
(`broker_words.may_let_wait`), or the operator does. And acknowledging has a connection of its own, the session's. If a
broker counts connections, each of them must have ended before another one begins (`sources.rocketmq.session.turns`).

If the broker's master is elected (controller mode), only what lies below its confirm offset is replicated, because no
fail-over takes that back: planning stops there, and a reader yields nothing from above. There we are an asynchronous
learner, which nobody waits for and nobody elects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.access.address import Address
from sources.epochs import Parting, parting
from sources.errors import ConfigurationError, naming
from sources.master import (
    EMPTY_QUERY,
    NOTHING_KNOWN,
    Chunk,
    Damage,
    Holding,
    Known,
    LogQuery,
    MasterView,
    Session,
    Traits,
)
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange
from sources.reading import LogReader, split_bytes
from sources.rocketmq.broker_words import (
    check_broker,
    counted_for_s,
    is_elected,
    lets_wait,
    log_bounds,
    may_let_wait,
    retention,
)
from sources.rocketmq.columns import restore
from sources.rocketmq.files.segment_files import controller_warning
from sources.rocketmq.files.segments import Segments
from sources.rocketmq.format.layout import DEFAULT_MAX_RECORD_BYTES, Limits
from sources.rocketmq.metadata import fetch
from sources.rocketmq.over_ha import OverHA, SmallSplits
from sources.rocketmq.remote_broker import BrokerAt, ElectedBroker, NamedBroker, RemoteBroker
from sources.rocketmq.session.ha_connection import confirmed_end, epochs_of
from sources.rocketmq.session.session import HASession
from sources.rocketmq.wire.auto_switch import AutoSwitch
from sources.rocketmq.wire.connection import NO_SECURITY
from sources.rocketmq.wire.ha import DEFAULT_MAX_FRAME_BYTES
from sources.rocketmq.wire.security import RemotingSecurity
from sources.sole_log import SilentSession, SoleLog
from sources.steps import Steps

MIB = 1024 * 1024
_WAYS: Final = ("path", "master", "remoting", "name_server", "controllers")
_ONE_WAY: Final = (("path",), ("master", "remoting"), ("name_server",), ("controllers",))
_STREAM: Final = Traits(restored_from=restore.COLUMNS, measured_by=("size",))
_FILES: Final = replace(_STREAM, cuts_at_records=True, cuts_batches=True)
_PARALLEL: Final = replace(_STREAM, cuts_batches=True)
_logger = logging.getLogger(__name__)


class _Manner(TypedDict):
    """The arguments that all kinds of brokers share."""

    connect_timeout_ms: int
    connect_attempts: int
    security: RemotingSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQLog(SoleLog):
    """A RocketMQ broker: the `sources.master.Master` of one `MasterLog`, and that log.

    Give either `path`, a directory of segment files; or `master` (HA port) and `remoting` (normal port) of one broker;
    or `name_servers` or `controllers`, which are asked at each connection for the master of the broker that the log id
    names. With `past_damage`, `read` yields damage instead of raising it.
    `parallel_reads` says that no producer waits for slaves: several tasks may read over HA at once, and may read from a
    SYNC_MASTER above the committed position. `connect_timeout_ms` is also how long the broker may take to answer a
    request. `takes_no_turn` is for tasks of a job that has found that the broker does not count connections: if it does
    now, they make none. Raises ConfigurationError.
    """

    log_id: LogId
    master: Address | None = None
    remoting: Address | None = None
    name_servers: tuple[Address, ...] = ()
    controllers: tuple[Address, ...] = ()
    path: str | None = None
    split_bytes: int = 256 * MIB
    chunk_bytes: int = 16 * MIB
    parallel_reads: bool = False
    past_damage: bool = False
    connect_timeout_ms: int = 5000
    connect_attempts: int = 3
    silence_timeout_ms: int = 20_000
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    security: RemotingSecurity = NO_SECURITY
    beyond_confirm: bool = False
    patience_s: float | None = None
    takes_no_turn: bool = False
    known: Known = NOTHING_KNOWN

    def __post_init__(self) -> None:
        ways = (self.path, self.master, self.remoting, self.name_servers, self.controllers)
        if tuple(name for name, given in zip(_WAYS, ways, strict=True) if given) not in _ONE_WAY:
            sought = (";".join(map(str, some)) or None for some in (self.name_servers, self.controllers))
            found = zip(_WAYS, (self.path, self.master, self.remoting, *sought), strict=True)
            raise ConfigurationError(
                "not one way to the log",
                log=self.log_id,
                expected="either path, or master and remoting, or name_server, or controllers",
                found=", ".join(f"{name} {given}" for name, given in found),
                hint="Give path to read segment files; master (HA port) and remoting (normal port), or the name_server "
                "or the controllers that know both, to be a slave.",
            )
        if self.path is not None and self.security != NO_SECURITY:
            raise ConfigurationError(
                "access_key and tls have no effect with path", log=self.log_id, hint="Remove them: nobody is asked."
            )

    def _broker(self) -> RemoteBroker | None:
        """Return the broker; None for a path."""
        if self.master is not None and self.remoting is not None:
            return BrokerAt(master=self.master, broker=self.remoting, **self._manner())
        if self.name_servers:
            return NamedBroker(name=self.log_id.name, asked=self.name_servers, **self._manner())
        if self.controllers:
            return ElectedBroker(name=self.log_id.name, asked=self.controllers, **self._manner())
        return None

    def _manner(self) -> _Manner:
        return {
            "connect_timeout_ms": self.connect_timeout_ms,
            "connect_attempts": self.connect_attempts,
            "security": self.security,
        }

    @property
    def traits(self) -> Traits:
        """Its constants. Offsets count bytes, and `verify` can find a rewritten past of the same lengths, so the last
        record proves enough. A slave of RocketMQ would cut its log, but a wrong address is likelier than a lost log, so
        the master does not overrule."""
        return _FILES if self.path is not None else _PARALLEL if self.parallel_reads else _STREAM

    @property
    def address(self) -> str:
        broker = self._broker()
        return str(self.path) if broker is None else broker.address

    @property
    def role(self) -> str:
        return "reader" if self.path is not None else "slave"

    def check(self, *, is_replica: bool = True) -> None:
        """Refuse a broker with an unknown protocol at its HA port, or one that would count this replica wrongly.

        That is one that would count it twice, or would count a reader that is no replica. For files that a fail-over
        may cut, a replica gets a warning.
        """
        broker = self._broker()
        if broker is None:
            if is_replica and (warning := controller_warning(Path(self.path or ""))) is not None:
                _logger.warning("%s: %s", self.log_id, warning)
            return
        with naming(self.log_id):
            config = broker.config()
            check_broker(config, parallel_reads=self.parallel_reads)
            if not (is_replica or self.parallel_reads) and may_let_wait(config):
                raise _no_replica(config)

    def counted_for_s(self) -> float | None:
        """Implement the contract; ask the broker for its configuration."""
        broker = self._broker()
        if broker is None:
            return None
        with naming(self.log_id):
            return counted_for_s(broker.config())

    def is_waited_for(self) -> bool:
        """Implement the contract; ask the broker, unless the operator says by `parallel_reads` that nobody waits."""
        broker = self._broker()
        if broker is None or self.parallel_reads:
            return False
        with naming(self.log_id):
            return lets_wait(broker.config())

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Implement the contract. `known`, an end found earlier, spares looking at the files below it."""
        broker = self._broker()
        with naming(self.log_id):
            return self._segments().bounds(known) if broker is None else self._held(broker, known)

    def _held(self, broker: RemoteBroker, known: Offset | None) -> OffsetRange:
        """Return all that it holds; if its master is elected and `known` is given, the end of what is confirmed."""
        with broker.client() as client:
            held = client.commit_log_bounds()
            if known is None or self.beyond_confirm or held.end <= known or not client.is_of_elected():
                return held
        end = confirmed_end(broker.ha(), held, timeout_ms=self.connect_timeout_ms)
        return OffsetRange(held.start, Offset(max(end, known)))

    def poll_in_steps(self, asked: Mapping[LogId, LogQuery]) -> Steps[Mapping[LogId, Holding] | None] | None:
        """Implement `sources.master.AskedInSteps`."""
        one, broker = asked.get(self.log_id, EMPTY_QUERY), self._broker()
        known = None if self.beyond_confirm else one.seen_end
        steps = None if broker is None else broker.bounds_in_steps(known)
        return None if steps is None else self._poll_in_steps(steps, one.position)

    def _poll_in_steps(
        self, steps: Steps[OffsetRange | None], position: Offset | None
    ) -> Steps[Mapping[LogId, Holding] | None]:
        with naming(self.log_id):
            held = yield from steps
        return None if held is None or held.end < (position or 0) else {self.log_id: Holding(held)}

    def view(self) -> MasterView:
        """Implement the contract. Files do not tell how long they are kept."""
        broker = self._broker()
        if broker is None:
            return MasterView(role=None, bounds=self.bounds(self._segments().seen_end), retention=None)
        with naming(self.log_id), broker.client() as client:
            info, config = client.runtime_info(), client.broker_config()
        bounds = log_bounds(info)
        view = MasterView(
            role=config.get("brokerRole"),
            bounds=bounds,
            retention=retention(info, config),
            name=config.get("brokerName"),
            version=info.get("brokerVersionDesc"),
        )
        if bounds.is_empty or not is_elected(config):
            return view
        with naming(self.log_id):
            dialect = AutoSwitch()
            confirmed = confirmed_end(broker.ha(config), bounds, timeout_ms=self.connect_timeout_ms, dialect=dialect)
        return replace(view, epoch=dialect.epochs[-1] if dialect.epochs else None, confirmed=confirmed)

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        if self.path is None:
            return offset
        with naming(self.log_id):
            return self._segments().boundary_after(offset, maximum)

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        if maximum - start <= max_bytes:
            return maximum
        return self.boundary_after(Offset(start + max_bytes), maximum)

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        if not self.traits.cuts_batches:
            return () if wanted.is_empty else (wanted,)
        size_bytes = split_bytes(wanted.size, most_bytes=self.split_bytes, cores=cores)
        if self.path is not None:
            with naming(self.log_id):
                return tuple(self._segments().pieces(wanted, size_bytes))
        return wanted.in_pieces(size_bytes)

    @property
    def small_reader(self) -> LogReader:
        return self.reader if self.path is not None or self.parallel_reads else SmallSplits()

    def over_ha(self) -> OverHA:
        """Return what reads it from its broker. Raises ValueError for a path."""
        broker = self._broker()
        if broker is None:
            raise ValueError(f"{self.log_id} has no broker")
        return OverHA(self, broker)

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        if owned.is_empty:
            return
        with naming(self.log_id):
            if self.path is None:
                yield from self.over_ha().read(owned, committed, boundary)
                return
            with closing(self._segments().chunks(owned, boundary, self.chunk_bytes)) as pieces:
                for piece in pieces:
                    yield piece if isinstance(piece, Chunk) else replace(piece, error=piece.error.at(self.log_id))

    def size_bytes(self, wanted: OffsetRange) -> int:
        return wanted.size

    def continuing(self, known: Known) -> RocketMQLog:
        """Return the log with `known`. The last record identifies a history; elected masters have epochs, too."""
        return replace(self, known=known)

    def parting(self) -> Parting | None:
        """Implement the contract, with the master's answer to a handshake."""
        broker = self._broker()
        if broker is None or not self.known.epochs:
            return None
        with naming(self.log_id):
            config = broker.config()
            if not is_elected(config):
                return None
            maximum, epochs = epochs_of(broker.ha(config), timeout_ms=self.connect_timeout_ms)
        return parting(self.known.epochs, self.known.offset or Offset(0), epochs, maximum)

    def hurried(self, patience_s: float) -> RocketMQLog:
        """Return a log whose questions and connections to the broker take no longer either, with one attempt each."""
        timeout_ms = min(self.connect_timeout_ms, max(1, round(patience_s * 1000)))
        return replace(self, patience_s=patience_s, connect_timeout_ms=timeout_ms, connect_attempts=1)

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        if wanted.is_empty:
            return
        with naming(self.log_id):
            if self.path is None:
                yield from self.over_ha().raw(wanted, committed)
            else:
                yield from self._segments().raw(wanted, self.chunk_bytes)

    def restore(self, records: pa.RecordBatch) -> bytes:
        return restore.encode(records)

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        lengths: npt.NDArray[np.int64] = records.column("size").fill_null(0).to_numpy()
        return lengths

    def metadata(self) -> Iterator[FetchedMetadata]:
        broker = self._broker()
        if broker is not None:
            yield from fetch(broker.answer)

    def open_session(self, prove: Callable[[], None] | None = None) -> Session:
        broker = self._broker()
        if broker is None:
            return SilentSession()
        return HASession(
            broker,
            self.log_id,
            prove=prove,
            connect_timeout_ms=self.connect_timeout_ms,
            silence_timeout_ms=self.silence_timeout_ms,
            max_frame_bytes=self.max_frame_bytes,
        )

    def acknowledged_by_master(self) -> Mapping[LogId, Offset]:
        """Return the highest offset that the master counts as acknowledged by a slave connected now (request 907).

        Nothing if nobody can say: for a path, for a broker without that request (4.x), for one without slaves.
        """
        broker = self._broker()
        if broker is None:
            return {}
        with naming(self.log_id), broker.client() as client:
            found = client.highest_slave_offset()
        return {} if found is None else {self.log_id: found}

    def _segments(self) -> Segments:
        limits = Limits(max_record_bytes=self.max_record_bytes)
        return Segments(self.path or "", limits, past_damage=self.past_damage)


def _no_replica(config: Mapping[str, str]) -> ConfigurationError:
    return ConfigurationError(
        "a stream of records is no replica, and would pass for one: what it asks for counts as acknowledged",
        expected="brokerRole=ASYNC_MASTER, whose producers wait for nobody, or SLAVE",
        found=f"brokerRole={config.get('brokerRole')}",
        hint="Read from a slave's HA port, or the segment files by path, or the tables of a replica; or set "
        "parallelReads, if no producer waits for this master's slaves.",
    )
