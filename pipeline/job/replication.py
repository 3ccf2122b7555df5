"""Something being replicated, a log or all partitions of a topic: its life, whatever its master is.

It goes through `Phase`::

    starting ──▶ running ──▶ done          (--available-now: everything was there)
                  │   ▲
       transient  ▼   │ started again
                 waiting                   the master or the tables' storage went away; asked again for ever, and it
                  │                        says so. Or the master no longer holds what comes next: that was put on
                  │                        record, and the log goes on behind it;
                  │                        or a master that overrules has another past: the replica went back to it
    any ──────────▶ failed | stopped       an error nobody but an operator can end, among them that another job has
                                           the log; a stop that was asked for

A log that is owned by another run is found out by the next commit, or, while there is none, by looking: its session
must not go on reporting. Nor must it to a master that is not the one that was replicated, which ends the log. Every
phase is published at once (`pipeline/monitoring/run_state.py`), before the log is claimed.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.loss_record import LossRecord
from pipeline.job.metadata_sync import MetadataSync
from pipeline.monitoring.progress import ENDED, LEADS_TO, Phase, Progress
from pipeline.monitoring.run_state import Publisher, RunFile
from sinks.batch.replica import Replica
from sinks.batch.result import BatchResult, Step, in_all
from sinks.delta.retries import doubled_s
from sinks.state.opening import Opening
from sources.errors import LogtwinError, WorkerLost
from sources.group.standing import Place
from sources.metadata import Fetched
from sources.offsets import LogId, Offset

log = logging.getLogger(__name__)

LOST_WORKERS = 5  # in a row, which a run to the end of the log waits out: many logs that start at once can be too much


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


class Replication(ABC):
    """Driver only. `start`, then `poll` now and then until the phase is one of ENDED, then `stop`.

    A subclass knows the replica, the session with its master, what its master is asked, and what it has lost.
    """

    _losses: LossRecord

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        log_id: LogId,
        *,
        available_now: bool,
        take_over: bool,
        opening: Opening | None,
    ) -> None:
        self._spark = spark
        self._config = config
        self._log_id = log_id
        self._available_now = available_now
        self._take_over = take_over
        self._opening = opening or Opening()
        self._writer = self._opening.writer
        self._publisher = Publisher(RunFile(config.warehouse, str(log_id)), str(log_id), self._writer, self.progress)
        self._metadata: MetadataSync | None = None
        self._is_open = False
        self.in_use = threading.Lock()  # held by whoever uses the replica's tables
        self.turn = 0  # how often it was started
        self._noted: LogtwinError | None = None  # by a batch, in Spark's thread
        self._phase = Phase.STARTING
        self._going = threading.Lock()  # the job's thread ends it, also while another one still starts it
        self._error: LogtwinError | None = None
        self._last_failure: LogtwinError | None = None
        self._first: Offset | None = None
        self._retry_at_s = 0.0
        self._retries = 0
        self._totals = _Totals()
        self._failures: Counter[str] = Counter()

    @property
    def id(self) -> str:
        """The log's, or the topic's."""
        return str(self._log_id)

    @property
    @abstractmethod
    def replicas(self) -> Mapping[str, Replica]:
        """Of the logs that live and end with it, by log id: one, or a topic's partitions as far as they are known."""

    @property
    @abstractmethod
    def options(self) -> BaseModel:
        """What its configuration says."""

    @property
    @abstractmethod
    def batch_bytes(self) -> int:
        """What a batch takes of it at most."""

    @property
    def places(self) -> dict[str, Place]:
        """Where its logs stand, for the planner. Nothing before they are open."""
        states = {log_id: one.state for log_id, one in self.replicas.items()}
        return {
            log_id: Place(state.offset, self.turn, state.identity)
            for log_id, state in states.items()
            if state is not None
        }

    @abstractmethod
    def progress(self) -> Progress:
        """How it stands, from any thread."""

    @abstractmethod
    def _claim(self) -> Offset | None:
        """Make sure that the master can be replicated, and take the log; the position. Raises LogtwinError."""

    @abstractmethod
    def _resume(self) -> None:
        """Once it is claimed: prove the master, acknowledge what is committed, have it read from now on."""

    @abstractmethod
    def _ask_master(self, now_s: float) -> None:
        """What a running log asks its master now and then. Raises nothing."""

    @abstractmethod
    def _disproof(self) -> LogtwinError | None:
        """What the session has found that must end the log."""

    @abstractmethod
    def _meet(self, error: LogtwinError) -> bool:
        """What is done about a loss that has ended the query; whether the log may go on. Raises LogtwinError."""

    @abstractmethod
    def _explained(self, error: LogtwinError) -> LogtwinError:
        """`error` with what an operator can do about it."""

    @abstractmethod
    def _fetch(self) -> Iterable[Fetched]:
        """What the master knows beside its log, as it is taken."""

    @abstractmethod
    def _close_session(self) -> None:
        """End the session. Idempotent."""

    def start(self) -> None:
        """Claim the log and have it read. Raises LogtwinError; nothing was started then."""
        if not self._is_open:
            self._publisher.enter(take_over=self._take_over)
            self._take_over = False  # once: whoever takes it back has the last word
        with self.in_use:
            position = self._claim()
            self._is_open = True
            if self._first is None:
                self._first = position
            self._resume()
        self._noted = self._error = None
        self.turn += 1
        if self._go_to(Phase.RUNNING):
            self._start_metadata()
        else:
            self._close_session()  # a stop did not wait for it: nobody acknowledges for a log that is not read

    def _start_metadata(self) -> None:
        """Once a run, when the log is this run's; it stops by itself when the log has ended.

        Where metadata is not wanted it only says, in the same rhythm, how far master and replica are apart.
        """
        if self._metadata is None:
            fetch = self._fetch if self._config.metadata.enabled else _nothing
            self._metadata = MetadataSync(self._spark, self._config, self._log_id, fetch, self.progress)
            self._metadata.start()

    def poll(self, now_s: float) -> Phase:
        """Look at what has happened and at the master, start again where that is due; the phase after that.

        `now_s` is of `time.monotonic`.
        """
        disproof, noted = self._disproof(), self._noted
        if self._phase in ENDED:
            return self._phase
        if disproof is not None:
            self._end_disproven(disproof)
        elif noted is not None:
            with self.in_use:
                self.fail(noted, for_good=self._available_now and not self._is_passing(noted))
                self._noted = None  # only here: until it has left its phase, this keeps it from being read
        elif self._phase is Phase.WAITING and now_s >= self._retry_at_s:
            self._restart()
        elif self._phase is Phase.RUNNING:
            self._ask_master(now_s)
        return self._phase

    def _end_disproven(self, error: LogtwinError) -> None:
        if not self.in_use.acquire(blocking=False):
            return  # what is being read proves itself; the next poll looks again
        try:
            self.fail(error, for_good=True)
        finally:
            self.in_use.release()

    def note(self, error: LogtwinError) -> None:
        """From any thread: `error` keeps it from being read; the next poll decides what comes of it."""
        self._noted = error

    @property
    def is_read(self) -> bool:
        """Whether the next batch may have some of it."""
        return self._phase is Phase.RUNNING and self._noted is None

    def took(self, results: Sequence[BatchResult]) -> None:
        """A batch has brought its logs on, or had nothing new; one result of each of them that it was about."""
        if not results:
            return
        result = in_all(results)
        self._losses.count(incident.condition for incident in result.incidents)
        self._retries = 0
        self._totals = self._totals.plus(result)
        if self._first is None:
            self._first = result.range.start

    def end(self) -> None:
        """It is not read any more, and nothing is wrong: who does not replicate must not count as a replica."""
        self._close_session()
        self._go_to(Phase.DONE if self._available_now else Phase.STOPPED)

    def stop(self, last_fetch_by_s: float) -> None:
        """Once nothing reads it any more: end the session. Idempotent.

        Where all is well its metadata is fetched once more, until `last_fetch_by_s` of `time.monotonic`: after the
        session's end, which tells the master the last of what is committed.
        """
        has_ended_well = self._phase in (Phase.RUNNING, Phase.DONE)
        self._close_session()
        if self._metadata is not None and has_ended_well:
            self._metadata.finish(last_fetch_by_s)
            self._metadata = None
        elif self._metadata is not None:
            self._metadata.stop()
        self._go_to(Phase.STOPPED)
        self._publisher.join()

    @property
    def phase(self) -> Phase:
        return self._phase

    def _go_to(self, phase: Phase) -> bool:
        """Whether it went there: nothing leads away from an end. Raises RuntimeError, a defect, where no way leads."""
        with self._going:
            if self._phase in ENDED:
                return False
            if phase not in LEADS_TO[self._phase]:
                raise RuntimeError(f"{self.id} cannot go from {self._phase.value} to {phase.value}")
            self._phase = phase
        self._publisher.changed()
        return True

    @property
    def error(self) -> LogtwinError | None:
        """What ended it, or what it waits out."""
        return self._error

    def _progress(self, **place: Any) -> Progress:
        """What is the same of every kind, and `place`: the other fields."""
        totals = self._totals
        return Progress(
            log_id=str(self._log_id),
            phase=self._phase,
            started_at=self._first,
            records=totals.records,
            bytes=totals.bytes,
            batches=totals.batches,
            commits=totals.commits,
            stage_s=totals.stage_s,
            failures=dict(self._failures),
            error=self._error,
            last_failure=self._last_failure,
            **place,
        )

    def _is_passing(self, error: LogtwinError) -> bool:
        """Whether also a run that does not wait for its master should try again: Spark lost a worker, for once."""
        return isinstance(error, WorkerLost) and self._retries < LOST_WORKERS

    def fail(self, error: LogtwinError, *, for_good: bool) -> None:
        """`error` ended the query, or kept it from starting: for good; until the master can be asked again; or no
        longer than it takes to put a loss on record and pass it, or to mend the replica. Of one that has ended nothing
        comes any more.
        """
        if self._phase in ENDED:
            return
        self._blame(error)
        try:
            is_passed = self._meet(error)
        except LogtwinError as failure:
            self._blame(failure)
            error, is_passed = failure, False
        if is_passed:
            self._wait(0.0)
        elif for_good or not error.is_transient:
            self._close_session()
            self._go_to(Phase.FAILED)
        else:
            wait_s = doubled_s(1.0, self._retries, self._config.retry_wait_max_s)
            self._retries += 1
            self._wait(wait_s)
            log.warning("%s; trying again in %.0f s", error, wait_s)

    def _blame(self, error: LogtwinError) -> None:
        self._failures[type(error).__name__] += 1
        self._error = self._last_failure = self._explained(error)

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
