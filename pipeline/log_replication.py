"""One log being replicated: its replica, its session with the master, its streaming query.

Its life is that of every `Replication`. What is proven before anything is promised: that the master is the one that was
replicated, before the first acknowledgement of a run and by the session before the first one of each connection. What
is lost, and what is done about it, `pipeline/loss_policy.py` decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.alone import check_alone
from pipeline.checkpoint import agrees, of_log
from pipeline.config import Config
from pipeline.loss_policy import explained
from pipeline.loss_record import LossRecord, LostLog
from pipeline.master_watch import MasterWatch
from pipeline.mending import mend
from pipeline.progress import Progress
from pipeline.replication import Replication, source_options
from sinks.replica import Replica
from sinks.steps import BatchResult, Step, no_step
from sources.errors import LogtwinError
from sources.master import MasterLog, Session
from sources.metadata import Fetched
from sources.offsets import Offset
from sources.options import ReadOptions
from sources.registry import open_log

log = logging.getLogger(__name__)


class LogReplication(Replication):
    """See `Replication`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        options: ReadOptions,
        *,
        available_now: bool,
        take_over: bool = False,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        super().__init__(spark, config, options.log_id, available_now=available_now, take_over=take_over)
        self._options = options
        self._log: MasterLog = open_log(options)
        self._watch = MasterWatch(self._log)
        self._session: Session = self._log.open_session(self._prove_master)
        self._replica = Replica(spark, config.warehouse, self._log, self._session, self._writer, on_step or no_step)
        self._losses = LossRecord(options.on_loss, self._mend if self._log.overrules else None)
        self._other_master: LogtwinError | None = None  # what a connection of the session has found

    def progress(self) -> Progress:
        """How it stands, from any thread."""
        # In this order: a batch moves them in the other, so that each is at most the next at every moment.
        session = self._session.state
        position = self._position()
        received = self._replica.received() if self._is_open else None
        bounds = self._watch.bounds
        seen = [offset for offset in (None if bounds is None else bounds.end, position) if offset is not None]
        return self._progress(
            role=self._log.role,
            master=self._log.place,
            master_role=self._watch.role,
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
        self._watch.ask(self._position(), time.monotonic())
        return self._replica.open()

    def _resume(self) -> StreamingQuery:
        position = self._replica.position()
        if position is not None:
            # What the table holds may be promised at once: the master need not wait for new data to hear of it.
            self._replica.prove_master()
            self._session.acknowledge(position)
        return self._start_query(position)

    def _apply(self, batch: DataFrame, batch_id: int) -> None:
        self._replica(batch, batch_id)

    def _last(self) -> BatchResult | None:
        return self._replica.last

    def _count(self, result: BatchResult) -> None:
        super()._count(result)
        self._losses.count(incident.condition for incident in result.incidents)

    def _check_owner(self) -> None:
        self._replica.check_ownership()

    def _ask_master(self, now_s: float) -> None:
        self._watch.poll(self._position(), now_s)

    def _disproof(self) -> LogtwinError | None:
        return self._other_master

    def _prove_master(self) -> None:
        """For the session, in its thread, which tries again: a master that is another one must end the log instead."""
        try:
            self._replica.prove_in_turn()
        except LogtwinError as error:
            if not error.is_transient:
                self._other_master = error
            raise

    def _meet(self, error: LogtwinError) -> bool:
        return self._losses.meet(error, LostLog(self._replica, self._watch, self._position()))

    def _explained(self, error: LogtwinError) -> LogtwinError:
        return explained(error, self._options.on_loss, self._position())

    def _mend(self) -> None:
        with self._in_batch:
            mend(self._spark, self._config.warehouse, self._log, self._writer, is_owner=self._is_open)

    def _fetch(self) -> Iterable[Fetched]:
        return self._log.metadata()

    def _close_session(self) -> None:
        self._session.close()

    def _position(self) -> Offset | None:
        return self._replica.position() if self._is_open else None

    def _checkpoint_uri(self) -> str:
        """Each epoch has its own: what was planned before a repair may lie beyond the end of the master's log now."""
        epoch = self._replica.epoch()
        return f"{self._config.checkpoint_root}/{self._options.id}{f'@{epoch}' if epoch else ''}"

    def _start_query(self, position: Offset | None) -> StreamingQuery:
        checkpoint = of_log(self._checkpoint_uri())
        planned = checkpoint.planned()
        minimum = Offset(0) if self._watch.bounds is None else self._watch.bounds.start
        if not agrees(planned, position, self._options.max_record_bytes, minimum):
            aside = checkpoint.move_aside(datetime.now(UTC))
            log.warning(
                "%s: the checkpoint plans up to %s and does not lead on from the table's position %s; "
                "the table is right. The checkpoint was moved to %s",
                self._options.id, planned.end if planned else None, position, aside,
            )  # fmt: skip
        cores = self._spark.sparkContext.defaultParallelism
        return self._stream(source_options(_given(self._options, position) | {"cores": cores}), checkpoint.uri)


def _given(options: ReadOptions, position: Offset | None) -> dict[str, object]:
    """What the data source is told: the options of the log, and the table's position over any starting offset."""
    given = {name: getattr(options, name) for name in type(options).model_fields} | {"emit": "ranges"}
    return given if position is None else given | {"starting_offset": position}
