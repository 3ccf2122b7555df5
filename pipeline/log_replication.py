"""One log being replicated: its replica, its session with the master, its streaming query.

It goes through `Phase`::

    starting ──▶ running ──▶ done          (--available-now: everything was there)
                  │   ▲
       transient  ▼   │ started again
                 waiting                   the master went away; asked again for ever, and it says so
                  │
    any ──────────▶ failed | stopped       an error nobody but an operator can end; a stop that was asked for
"""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.checkpoint import Checkpoint, agrees
from pipeline.config import Config
from sinks.replica import BatchResult, Replica, Step
from sources.errors import LogtwinError, find_error
from sources.master import MasterLog, Session
from sources.offsets import Offset
from sources.options import ReadOptions
from sources.registry import open_log

log = logging.getLogger(__name__)


class Phase(enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


ENDED = {Phase.DONE, Phase.STOPPED, Phase.FAILED}

LOOK_EVERY = timedelta(seconds=1)
LOOK_AFTER_ERROR = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one log's replica is. Bytes and records are those committed by this run."""

    log_id: str
    phase: Phase
    started_at: Offset | None
    position: Offset | None
    master_minimum: Offset | None
    master_maximum: Offset | None
    acknowledged: Offset | None
    records: int
    bytes: int
    batches: int
    error: LogtwinError | None

    @property
    def lag_bytes(self) -> int | None:
        """What the master has and the replica has not; None before the master was asked."""
        reached = self.position if self.position is not None else self.master_minimum
        if reached is None or self.master_maximum is None:
            return None
        return max(0, self.master_maximum - reached)


class LogReplication:
    """Driver only. `start`, then `poll` now and then until the phase is one of ENDED, then `stop`."""

    def __init__(
        self, spark: SparkSession, config: Config, options: ReadOptions, on_step: Callable[[Step], None] | None = None
    ) -> None:
        self._spark = spark
        self._config = config
        self._options = options
        self._log: MasterLog = open_log(options)
        self._session: Session = self._log.open_session()
        self._replica = Replica(spark, config.warehouse, self._log, self._session, on_step=on_step or _no_step)
        self._query: StreamingQuery | None = None
        self._is_open = False
        self._in_batch = threading.Lock()
        self._stopping = False
        self._phase = Phase.STARTING
        self._error: LogtwinError | None = None
        self._first: Offset | None = None
        self._minimum: Offset | None = None
        self._maximum: Offset | None = None
        self._look_at = datetime.min.replace(tzinfo=UTC)
        self._retry_at: datetime | None = None
        self._retries = 0
        self._totals = (0, 0, 0)

    def start(self, *, available_now: bool) -> None:
        """Claim the log and start its query. Raises LogtwinError; nothing was started then."""
        self._log.check()
        bounds = self._log.bounds()
        self._minimum, self._maximum = bounds.start, bounds.end
        position = self._replica.open()
        self._is_open = True
        if self._first is None:
            self._first = position
        if position is not None:
            # What the table holds may be promised at once: the master need not wait for new data to hear of it.
            self._session.acknowledge(position)
        self._query = self._start_query(position, available_now)
        self._phase = Phase.RUNNING

    def poll(self, *, available_now: bool, now: datetime) -> Phase:
        """Look at the query, start it again where that is due; the phase after that."""
        if self._phase is Phase.WAITING and self._retry_at is not None and now >= self._retry_at:
            self._restart(available_now)
        elif self._phase is Phase.RUNNING and self._query is not None and not self._query.isActive:
            self._ended(self._query, available_now)
        elif self._phase is Phase.RUNNING and now >= self._look_at:
            self._look_at_master(now)
        return self._phase

    def _look_at_master(self, now: datetime) -> None:
        """See how far the master is. Spark knows only what it was when the last batch was planned."""
        try:
            self._maximum = self._log.bounds(self._maximum).end
            self._look_at = now + LOOK_EVERY
        except LogtwinError:
            self._look_at = now + LOOK_AFTER_ERROR  # the query meets the same error, and says it

    def stop(self) -> None:
        """End the query between two batches and the session with it. Idempotent."""
        self._stopping = True
        with self._in_batch:
            pass  # the batch under way may end; the next one finds that a stop was asked for
        if self._query is not None:
            self._query.stop()
        self._session.close()
        if self._phase not in ENDED:
            self._phase = Phase.STOPPED

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def error(self) -> LogtwinError | None:
        """What ended it, or what it waits out."""
        return self._error

    def progress(self) -> Progress:
        records, size, batches = self._totals
        position = self._replica.position() if self._is_open else None
        seen = [offset for offset in (self._maximum, position) if offset is not None]
        return Progress(
            log_id=self._options.id,
            phase=self._phase,
            started_at=self._first,
            position=position,
            master_minimum=self._minimum,
            master_maximum=max(seen, default=None),
            acknowledged=self._session.acknowledged,
            records=records,
            bytes=size,
            batches=batches,
            error=self._error,
        )

    def _start_query(self, position: Offset | None, available_now: bool) -> StreamingQuery:
        checkpoint = Checkpoint(f"{self._config.checkpoint_root.rstrip('/')}/{self._options.id}")
        planned = checkpoint.planned()
        if not agrees(planned, position, self._options.max_record_bytes):
            aside = checkpoint.move_aside(datetime.now(UTC))
            log.warning(
                "%s: the checkpoint plans up to %s and does not lead on from the table's position %s; "
                "the table is right. The checkpoint was moved to %s",
                self._options.id, planned.end if planned else None, position, aside,
            )  # fmt: skip
        reader = self._spark.readStream.format("logtwin").options(**source_options(self._options, position))
        # A name must be unique in a session, also while an older query of the same log is still ending.
        name = f"{self._options.id} {uuid.uuid4().hex[:8]}"
        writer = reader.load().writeStream.foreachBatch(self._process).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint.uri)
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(self._config.trigger_interval_s * 1000)} milliseconds").start()

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        with self._in_batch:
            if self._stopping:
                # Returning would tell Spark that the batch is done.
                raise LogtwinError("a stop was asked for", log=self._options.id)
            before = self._replica.last
            self._replica(batch, batch_id)
            self._retries = 0
            if self._replica.last is not None and self._replica.last is not before:
                self._count(self._replica.last)

    def _count(self, result: BatchResult) -> None:
        records, size_bytes, batches = self._totals
        self._totals = (records + result.records, size_bytes + result.bytes, batches + 1)
        if self._first is None:
            self._first = result.range.start

    def _ended(self, query: StreamingQuery, available_now: bool) -> None:
        failure = query.exception()
        if failure is None:
            self._phase = Phase.DONE if available_now else Phase.STOPPED
            return
        self.fail(error_of(failure, self._options.id), for_good=available_now)

    def fail(self, error: LogtwinError, *, for_good: bool) -> None:
        """`error` ended the query, or kept it from starting: for good, or until the master can be asked again."""
        self._error = error
        if for_good or not error.is_transient:
            self._phase = Phase.FAILED
            self._session.close()  # who does not replicate any more must not count as a replica
            return
        wait_s = min(2.0**self._retries, self._config.retry_wait_max_s)
        self._retries += 1
        self._retry_at = datetime.now(UTC) + timedelta(seconds=wait_s)
        self._phase = Phase.WAITING
        log.warning("%s; trying again in %.0f s", error, wait_s)

    def _restart(self, available_now: bool) -> None:
        try:
            self.start(available_now=available_now)
        except LogtwinError as error:
            self.fail(error, for_good=available_now)
        else:
            self._error = None


def _no_step(step: Step) -> None:
    """Nobody listens."""


def source_options(options: ReadOptions, position: Offset | None) -> dict[str, str]:
    """The data source's options for one log: those given, and the table's position over any starting offset."""
    given = {name: getattr(options, name) for name in type(options).model_fields}
    given["emit"] = "ranges"
    if position is not None:
        given["starting_offset"] = position
    return {name.replace("_", ""): _as_option(value) for name, value in given.items() if value is not None}


def error_of(failure: StreamingQueryException, log_id: str) -> LogtwinError:
    """What ended a query, as the error that was raised in whichever process it was."""
    text = str(failure)
    return find_error(text) or LogtwinError(
        "the streaming query failed", log=log_id, found=text.strip()[-2000:], hint="This is a defect: please report it."
    )


def _as_option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
