"""Replicates one log: holds its replica and its session with the master. `pipeline/job/log_group.py` reads it.

Its life cycle is that of every `Replication`. Before anything is acknowledged, the master is proven to be the one that
was replicated: before the first acknowledgement of a run, and by the session before the first one of each connection.
`pipeline/job/loss_policy.py` decides what happens on a loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.auto_repair import mend
from pipeline.job.loss_policy import explained
from pipeline.job.loss_record import LossRecord, LostLog
from pipeline.job.master_watch import MasterWatch
from pipeline.job.replication import Replication
from pipeline.monitoring.progress import Progress
from pipeline.monitoring.single_connection import check_alone
from sinks.batch.replica import Replica
from sinks.state.opening import Opening
from sources.bounds import check_within
from sources.errors import FailedOver, LogtwinError
from sources.group.seen import Seen
from sources.loss import WayPast, condition_of
from sources.master import MasterLog, Session
from sources.metadata import FetchedMetadata
from sources.offsets import Offset, OffsetRange
from sources.options import ReadOptions
from sources.registry import open_log
from sources.starting import resolved


class LogReplication(Replication):
    """The replication of one log; see `Replication`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        options: ReadOptions,
        *,
        available_now: bool,
        take_over: bool = False,
        opening: Opening | None = None,
    ) -> None:
        super().__init__(
            spark, config, options.log_id, available_now=available_now, take_over=take_over, opening=opening
        )
        self._options = options
        self._log: MasterLog = open_log(options)
        self._watch = MasterWatch(self._log.look)
        self._session: Session = self._log.open_session(self._prove_master)
        self._replica = Replica(spark, config.warehouse, self._log, self._session, self._writer)
        self._losses = LossRecord(options.on_loss, self._mend, overrules=self._log.overrules)
        self._other_master: LogtwinError | None = None  # a connection of the session met another master

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return {self.id: self._replica}

    @property
    def options(self) -> ReadOptions:
        return self._options

    @property
    def batch_bytes(self) -> int:
        return self._options.max_bytes_per_trigger

    def progress(self) -> Progress:
        """The progress now. From any thread."""
        # Read in this order, because a batch moves them in the reverse one: so each is at most the next at all times.
        session = self._session.state
        position = self._position()
        received = self._replica.received() if self._is_open else None
        bounds = self._watch.bounds
        seen = [offset for offset in (None if bounds is None else bounds.end, position) if offset is not None]
        return self._progress(
            role=self._log.role,
            master=self._log.place,
            master_role=self._watch.role,
            master_epoch=self._watch.epoch,
            confirmed=self._watch.confirmed,
            received=received,
            position=position,
            session=session,
            master_minimum=None if bounds is None else bounds.start,
            master_maximum=max(seen, default=None),
            lag_s=self._watch.lag_s(position, time.monotonic()),
            until_loss=self._watch.until_loss(position, self._replica.newest_stored_us() if self._is_open else None),
            incidents=self._losses.counts,
        )

    def _claim(self) -> Offset | None:
        self._log.check()
        counted_for_s = self._log.counted_for_s()
        if counted_for_s is not None:
            check_alone(self._config.warehouse, self._log_id, self._writer.run, counted_for_s, self._publisher.before)
        self._ask_bounds()
        self._opening.open(self._replica)
        self._replica.follow()
        return self._replica.position()

    def _resume(self) -> None:
        position = self._replica.position()
        if position is not None:
            # What the table holds may be acknowledged at once: the master need not wait for new data.
            self._replica.prove_master()
            self._session.acknowledge(position)
        if self._replica.is_too_slow:
            self._bring_alone()

    def _bring_alone(self) -> None:
        """Read what one batch may take outside of the group, where a slow log would hold up the others."""
        bounds = self._log.bounds()
        start = self._replica.position()
        if start is None:
            start = resolved(self._options.starting_offset, bounds, self._log)
        check_within(OffsetRange(start, start), bounds, log=self._log_id)
        end = self._log.end_of_batch(start, bounds.end, self._options.max_bytes_per_trigger)
        if start < end:
            self.took([self._replica.bring(OffsetRange(start, end))])

    def _ask_bounds(self) -> None:
        known = self._watch.bounds
        held = self._log.bounds(None if known is None else known.end)
        self._watch.begin({self.id: held}, self._position(), time.monotonic())

    def hear(self, seen: Seen, now_s: float) -> None:
        if (one := seen.get(self.id)) is not None and one.turn == self.turn:
            self._watch.hear({self.id: one.held}, self._position(), now_s)

    def _ask_master(self, now_s: float) -> None:
        self._watch.poll(now_s)

    def _disproof(self) -> LogtwinError | None:
        return self._other_master

    def _prove_master(self) -> None:
        """Prove the master, for the session in its thread.

        The session tries again after an error. A different master must end the log instead, so it is kept for `poll`.
        """
        try:
            self._replica.prove_in_turn()
        except LogtwinError as error:
            if not error.is_transient:
                self._other_master = error
            raise

    def _meet(self, error: LogtwinError) -> bool:
        return self._losses.meet(
            self._by_epochs(error), LostLog(self._replica, self._watch, self._ask_bounds, self._position())
        )

    def _by_epochs(self, error: LogtwinError) -> LogtwinError:
        """`error`, or the fail-over that caused it. Raises what keeps the master from answering."""
        condition, state = condition_of(error), self._replica.state
        if condition is None or condition.way is not WayPast.REPAIR or isinstance(error, FailedOver) or state is None:
            return error
        parted = self._log.continuing(state.known).parting()
        return error if parted is None else parted.error().at(self._log_id)

    def _explained(self, error: LogtwinError) -> LogtwinError:
        return explained(error, self._options.on_loss, self._position())

    def _mend(self) -> None:
        """Repair the replica between two sessions: within one, acknowledged offsets never go back."""
        self._session.close()
        try:
            mend(self._spark, self._config.warehouse, self._log, self._writer, is_owner=self._is_open)
        finally:
            self._session = self._log.open_session(self._prove_master)
            self._replica.speak_through(self._session)
            self._other_master = None

    def _fetch(self) -> Iterable[FetchedMetadata]:
        return self._log.metadata()

    def _close_session(self) -> None:
        self._session.close()

    def _position(self) -> Offset | None:
        """The committed position; None before the replica is open, and before the first commit."""
        return self._replica.position() if self._is_open else None
