"""One log being replicated: its replica, its session with the master, its streaming query.

It goes through `Phase`::

    starting ──▶ running ──▶ done          (--available-now: everything was there)
                  │   ▲
       transient  ▼   │ started again
                 waiting                   the master went away; asked again for ever, and it says so. Or it no longer
                  │                        holds what comes next: that was put on record, and the log goes on behind it;
                  │                        or a master that overrules has another past: the replica went back to it
    any ──────────▶ failed | stopped       an error nobody but an operator can end, among them that another job has
                                           the log; a stop that was asked for

A log that is owned by another run is found out by the next commit, or, while there is none, by looking: its session
must not go on reporting. Nor must it to a master that is not the one that was replicated: that is proven before the
first acknowledgement of a run and by the session before the first one of each connection, and ends the log.
What is lost, and what is done about it, `pipeline/loss_policy.py` decides. Every phase is published at once
(`pipeline/run_state.py`), before the log is claimed.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.checkpoint import Checkpoint, agrees
from pipeline.config import Config
from pipeline.loss_policy import explained
from pipeline.loss_record import LossRecord
from pipeline.master_watch import MasterWatch
from pipeline.mending import mend
from pipeline.metadata_sync import MetadataSync
from pipeline.progress import ENDED, Phase, Progress
from pipeline.run_state import Publisher, RunFile
from sinks.log_state import Writer
from sinks.replica import BatchResult, Replica, Step
from sources.errors import LogtwinError, ReplicaError, TakenOver, find_error
from sources.master import MasterLog, Session
from sources.metadata import Fetched
from sources.offsets import Offset
from sources.options import ReadOptions
from sources.registry import open_log

log = logging.getLogger(__name__)

CHECK_OWNERSHIP_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Totals:
    """What the batches of this run add up to. A value, so that whoever reads it finds it whole."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    commits: int = 0
    stage_s: Mapping[Step, float] = field(default_factory=dict)

    def plus(self, result: BatchResult) -> _Totals:
        if result.range.is_empty:  # a replay
            return replace(self, batches=self.batches + 1)
        stage_s = {step: self.stage_s.get(step, 0.0) + spent_s for step, spent_s in result.durations_s.items()}
        return _Totals(
            records=self.records + result.records,
            bytes=self.bytes + result.bytes,
            batches=self.batches + 1,
            commits=self.commits + 1,
            stage_s={**self.stage_s, **stage_s},
        )


class LogReplication:
    """Driver only. `start`, then `poll` now and then until the phase is one of ENDED, then `stop`."""

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
        self._spark = spark
        self._config = config
        self._options = options
        self._available_now = available_now
        self._take_over = take_over
        self._log: MasterLog = open_log(options)
        self._watch = MasterWatch(self._log)
        self._session: Session = self._log.open_session(self._prove_master)
        self._writer = writer = Writer.of_this_process()
        self._replica = Replica(spark, config.warehouse, self._log, self._session, writer, on_step or _no_step)
        mends = self._mend if self._log.overrules else None
        self._losses = LossRecord(options.on_loss, self._replica, self._watch, mends)
        self._publisher = Publisher(RunFile(config.warehouse, options.id), options.id, writer, self.progress)
        self._metadata: MetadataSync | None = None
        self._query: StreamingQuery | None = None
        self._is_open = False
        self._in_batch = threading.Lock()  # held by whoever uses the replica's tables
        self._stopping = False
        self._phase = Phase.STARTING
        self._error: LogtwinError | None = None
        self._last_failure: LogtwinError | None = None
        self._disproof: LogtwinError | None = None  # what a connection of the session has found
        self._first: Offset | None = None
        self._owned_at_s = 0.0  # when it was last certain that this run owns the log
        self._retry_at_s = 0.0
        self._retries = 0
        self._totals = _Totals()
        self._failures: Counter[str] = Counter()

    def start(self) -> None:
        """Claim the log and start its query. Raises LogtwinError; nothing was started then."""
        if not self._is_open:
            self._publisher.enter(take_over=self._take_over)
            self._take_over = False  # once: whoever takes it back has the last word
        self._log.check()
        self._watch.ask(self._position(), time.monotonic())
        position = self._replica.open()
        self._owned_at_s = time.monotonic()
        self._is_open = True
        if self._first is None:
            self._first = position
        if position is not None:
            # What the table holds may be promised at once: the master need not wait for new data to hear of it.
            self._replica.prove_master()
            self._session.acknowledge(position)
        self._query = self._start_query(position)
        self._error = None
        self._go_to(Phase.RUNNING)
        self._start_metadata()

    def _start_metadata(self) -> None:
        """Once a run, when the log is this run's; it stops by itself when the log has ended.

        Where metadata is not wanted it only says, in the same rhythm, how far master and replica are apart.
        """
        if self._metadata is None:
            fetch = self._log.metadata if self._config.metadata.enabled else _nothing
            self._metadata = MetadataSync(self._spark, self._config, self._log.log_id, fetch, self.progress)
            self._metadata.start()

    def poll(self, now_s: float) -> Phase:
        """Look at query, master and table, start the query again where that is due; the phase after that.

        `now_s` is of `time.monotonic`.
        """
        if self._disproof is not None and self._phase not in ENDED:
            self._end_disproven(self._disproof)
        elif self._phase is Phase.WAITING and now_s >= self._retry_at_s:
            self._restart()
        elif self._phase is Phase.RUNNING and self._query is not None and not self._query.isActive:
            self._ended(self._query)
        elif self._phase is Phase.RUNNING:
            self._watch.poll(self._position(), now_s)
        if self._is_open and self._phase not in ENDED and now_s >= self._owned_at_s + CHECK_OWNERSHIP_EVERY_S:
            self._check_ownership(now_s)
        return self._phase

    def _check_ownership(self, now_s: float) -> None:
        """A job that lost its log must not go on as its replica, also where no batch would tell it."""
        if not self._in_batch.acquire(blocking=False):
            return  # the batch that is under way finds out by itself
        try:
            self._replica.check_ownership()
        except TakenOver as error:
            self._stopping = True  # before any batch can begin
            self.fail(error, for_good=True)
        except ReplicaError as error:
            log.warning("%s: cannot tell whether this job still owns the log: %s", self._options.id, error)
        finally:
            self._owned_at_s = now_s
            self._in_batch.release()
        if self._stopping and self._query is not None:
            self._query.stop()

    def _prove_master(self) -> None:
        """For the session, in its thread, which tries again: a master that is another one must end the log instead."""
        try:
            self._replica.prove_master()
        except LogtwinError as error:
            if not error.is_transient:
                self._disproof = error
            raise

    def _end_disproven(self, error: LogtwinError) -> None:
        if not self._in_batch.acquire(blocking=False):
            return  # what is being read proves itself; the next poll looks again
        self._stopping = True  # before any batch can begin
        self._in_batch.release()
        if self._query is not None:
            self._query.stop()
        self.fail(error, for_good=True)

    def stop(self) -> None:
        """End the query between two batches and the session with it. Idempotent."""
        self._stopping = True
        with self._in_batch:
            pass  # the batch under way may end; the next one finds that a stop was asked for
        if self._query is not None:
            self._query.stop()
        if self._metadata is not None:
            self._metadata.stop()
        self._session.close()
        if self._phase not in ENDED:
            self._go_to(Phase.STOPPED)
        self._publisher.join()

    @property
    def phase(self) -> Phase:
        return self._phase

    def _go_to(self, phase: Phase) -> None:
        self._phase = phase
        self._publisher.changed()

    @property
    def error(self) -> LogtwinError | None:
        """What ended it, or what it waits out."""
        return self._error

    def progress(self) -> Progress:
        """How it stands, from any thread."""
        # In this order: a batch moves them in the other, so that each is at most the next at every moment.
        session = self._session.state
        position = self._position()
        received = self._replica.received() if self._is_open else None
        bounds, totals = self._watch.bounds, self._totals
        seen = [offset for offset in (None if bounds is None else bounds.end, position) if offset is not None]
        return Progress(
            log_id=self._options.id,
            phase=self._phase,
            role=self._log.role,
            master=self._log.place,
            master_role=self._watch.role,
            started_at=self._first,
            received=received,
            position=position,
            session=session,
            master_minimum=None if bounds is None else bounds.start,
            master_maximum=max(seen, default=None),
            lag_s=self._watch.lag_s(position, time.monotonic()),
            until_loss=self._watch.until_loss(position, self._replica.newest_stored_us() if self._is_open else None),
            records=totals.records,
            bytes=totals.bytes,
            batches=totals.batches,
            commits=totals.commits,
            stage_s=totals.stage_s,
            incidents=self._losses.counts,
            failures=dict(self._failures),
            error=self._error,
            last_failure=self._last_failure,
        )

    def _position(self) -> Offset | None:
        return self._replica.position() if self._is_open else None

    def _checkpoint_uri(self) -> str:
        """Each epoch has its own: what was planned before a repair may lie beyond the end of the master's log now."""
        epoch = self._replica.epoch()
        return f"{self._config.checkpoint_root}/{self._options.id}{f'@{epoch}' if epoch else ''}"

    def _start_query(self, position: Offset | None) -> StreamingQuery:
        checkpoint = Checkpoint(self._checkpoint_uri())
        planned = checkpoint.planned()
        minimum = Offset(0) if self._watch.bounds is None else self._watch.bounds.start
        if not agrees(planned, position, self._options.max_record_bytes, minimum):
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
        if self._available_now:
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
            self._owned_at_s = time.monotonic()
            if self._replica.last is not None and self._replica.last is not before:
                self._count(self._replica.last)
                self._publisher.changed()

    def _count(self, result: BatchResult) -> None:
        self._totals = self._totals.plus(result)
        self._losses.count(incident.condition for incident in result.incidents)
        if self._first is None:
            self._first = result.range.start

    def _ended(self, query: StreamingQuery) -> None:
        failure = query.exception()
        if failure is None:
            self._session.close()  # who does not replicate any more must not count as a replica
            self._go_to(Phase.DONE if self._available_now else Phase.STOPPED)
            return
        self.fail(error_of(failure, self._options.id), for_good=self._available_now)

    def fail(self, error: LogtwinError, *, for_good: bool) -> None:
        """`error` ended the query, or kept it from starting: for good; until the master can be asked again; or no
        longer than it takes to put a loss on record and pass it, or to mend the replica.
        """
        self._blame(error)
        try:
            is_passed = self._losses.meet(error, self._position())
        except LogtwinError as failure:
            self._blame(failure)
            error, is_passed = failure, False
        if is_passed:
            self._wait(0.0)
        elif for_good or not error.is_transient:
            self._session.close()
            self._go_to(Phase.FAILED)
        else:
            wait_s = min(2.0**self._retries, self._config.retry_wait_max_s)
            self._retries += 1
            self._wait(wait_s)
            log.warning("%s; trying again in %.0f s", error, wait_s)

    def _blame(self, error: LogtwinError) -> None:
        self._failures[type(error).__name__] += 1
        self._error = self._last_failure = explained(error, self._options.on_loss, self._position())

    def _mend(self) -> None:
        with self._in_batch:
            mend(self._spark, self._config.warehouse, self._log, self._writer, is_owner=self._is_open)

    def _wait(self, wait_s: float) -> None:
        self._retry_at_s = time.monotonic() + wait_s
        self._go_to(Phase.WAITING)

    def _restart(self) -> None:
        try:
            self.start()
        except LogtwinError as error:
            self.fail(error, for_good=self._available_now)


def _nothing() -> Iterable[Fetched]:
    """No metadata is wanted."""
    return ()


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
