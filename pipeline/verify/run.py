"""``logtwin verify``: compares a replica with its master, every byte or a sample.

One version of the log table is compared, section by section, several in each Spark job (`pipeline/verify/`: `plan`,
`task`). After each job, differences become incidents, and equal sections are remembered: a kill costs only
the current job. Whole runs prove the queues, too, if there are any (`queues`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from pipeline.config.configuration import Config
from pipeline.config.found import found_now
from pipeline.inspect.selection import ConfiguredLog, subjects
from pipeline.monitoring.single_connection import alone_at
from pipeline.spark.session import session_for
from pipeline.system.console import err
from pipeline.verify.queues import Jump, jumps
from pipeline.verify.sections import (
    Asked,
    ClaimSection,
    SectionComparer,
    VerifyFile,
    VerifyState,
    claims_of,
    sampled,
    sections,
)
from pipeline.verify.summary import Tally, VerifySummary, incident_of, incident_of_jump
from sinks.books.incidents import IncidentsTable
from sinks.delta.spark_jobs import JobFacts, first_line, job_failure, run_tasks
from sinks.proof.proven_log import proven_log
from sinks.proof.verdicts import Compared, Verdict
from sinks.values.incident import State
from sources.errors import ConfigurationError, LogError, LogtwinError
from sources.loss import Condition
from sources.offsets import END, Offset, OffsetRange

_MB = 1_000_000
_SECTIONS_A_TASK = 16
"""A task costs 25 ms, and each core has one in each job. With a speed limit a task gets one section only."""
_log = logging.getLogger(__name__)

OnProgress = Callable[[int, int], None]
"""Receives after each job how many bytes are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The ranges to compare, and how fast. With neither `share` nor a range it is a whole run.

    `path` is a directory of the master's files, to compare with instead of the configured master.
    """

    share: float | None = None
    seed: int | None = None
    start: int | None = None
    end: int | None = None
    path: str | None = None
    restart: bool = False
    max_mb_per_s: float | None = None
    queues: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigurationError for impossible values."""
        if self.share is not None and not 0 < self.share <= 1:
            raise ConfigurationError("--sample is not usable", expected="above 0, at most 1", found=self.share)
        if self.max_mb_per_s is not None and not self.max_mb_per_s > 0:
            raise ConfigurationError("--max-mb-per-s is not usable", expected="above 0", found=self.max_mb_per_s)
        if self.end is not None and not 0 <= (self.start or 0) < self.end:
            found = f"--from {self.start} --to {self.end}"
            raise ConfigurationError("there is nothing in that range", expected="offsets from 0, rising", found=found)

    @property
    def range(self) -> OffsetRange:
        """The offsets to compare; without an `end` also whether there is anything beyond the position."""
        return OffsetRange(Offset(self.start or 0), END if self.end is None else Offset(self.end))

    @property
    def is_whole(self) -> bool:
        return self.share is None and self.start is None and self.end is None


def verify_logs(
    config: Config, scope: Scope, log: str | None, on_failure: Callable[[LogtwinError], None]
) -> list[VerifySummary]:
    """Verify each log of a configuration, or only `log`; a terminal shows progress bars.

    A log that cannot be verified does not hold up the others: `on_failure` gets what `verify_log` raised.
    """
    spark = session_for(config, writes=True)
    figures = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    found: list[VerifySummary] = []
    with Progress(TextColumn("{task.description}"), BarColumn(), *figures, console=err, transient=True) as shown:
        for one in subjects(found_now(config), log):
            try:
                found.append(verify_log(spark, config.warehouse, one, scope, _bar(shown, str(one.log_id))))
            except LogtwinError as error:
                on_failure(error)
    return found


def _bar(shown: Progress, name: str) -> OnProgress:
    task = shown.add_task(name, total=None)
    return lambda done_bytes, all_bytes: shown.update(task, completed=done_bytes, total=all_bytes)


def verify_log(
    spark: SparkSession,
    warehouse: str,
    subject: ConfiguredLog,
    scope: Scope,
    on_progress: OnProgress = lambda done_bytes, all_bytes: None,
) -> VerifySummary:
    """Compare one log. Continues an unfinished run if that was to compare the same.

    Raises ConfigurationError (no replica), ReplicaError (contradictory tables), MasterError, and, if the master counts
    connections, what `alone_at` raises.
    """
    verification = _Verification(spark, warehouse, subject, scope)
    with alone_at(warehouse, verification.master, "verify"):
        return verification.run(on_progress)


class _Verification:
    """One verification run over one log. Driver only."""

    def __init__(self, spark: SparkSession, warehouse: str, subject: ConfiguredLog, scope: Scope) -> None:
        self._began_s = time.monotonic()
        self._spark = spark
        self._scope = scope
        self._subject = subject if scope.path is None else subject.by_path(scope.path)
        self._log_id = subject.log_id
        self.master = self._subject.open()
        self._stored = proven_log(spark, warehouse, self._log_id, to="verify", wanted=scope.range)
        self._file = VerifyFile(warehouse, str(self._log_id))
        self._incidents = IncidentsTable(spark, warehouse, self._log_id)

    def run(self, on_progress: OnProgress) -> VerifySummary:
        stored, tally = self._stored, Tally()
        state = self._state()
        chosen = self._chosen(state)
        all_bytes = sum(section.compared_bytes for section in chosen)
        waiting = [section for section in chosen if not state.holds(section)]
        earlier_bytes = all_bytes - sum(section.compared_bytes for section in waiting)
        for results in self._jobs(waiting):
            found = [one for _, compared in results for one in compared]
            self._record(found)
            tally.add(found)
            equal = [one for one, compared in results if all(each.verdict is Verdict.EQUAL for each in compared)]
            state = state.with_proven(equal)
            self._file.write(state)
            on_progress(earlier_bytes + tally.bytes, all_bytes)
        is_queue_proof = (self._scope.is_whole or self._scope.queues) and self._log_id.kind == "rocketmq"
        in_holes = sum(hole.size for hole in stored.holes.within(self._scope.range))
        summary = VerifySummary(
            log_id=self._log_id,
            master=self.master.address,
            position=stored.position,
            seed=state.asked.seed,
            bytes=tally.bytes,
            claims=tally.claims,
            earlier_bytes=earlier_bytes,
            without_master_bytes=tally.without_master_bytes,
            compacted=tally.compacted,
            holes=in_holes,
            differing=tally.differing,
            differences=tuple(tally.differences),
            seconds=time.monotonic() - self._began_s,
            jumps=self._jumps(is_equal=not tally.differing) if is_queue_proof else None,
        )
        self._file.remove()
        return summary

    def _state(self) -> VerifyState:
        """The state of the run that is continued, or a new one."""
        scope, found = self._scope, None if self._scope.restart else self._file.read()
        seed = scope.seed
        if scope.share is not None and seed is None:
            seed = secrets.randbelow(1_000_000) if found is None or found.asked.seed is None else found.asked.seed
        asked = Asked(
            place=self.master.address,
            epoch=self._stored.epoch,
            start=scope.start,
            end=scope.end,
            share=scope.share,
            seed=seed if scope.share is not None else None,
        )
        if found is not None and found.asked == asked:
            _log.info("%s: goes on with the verification begun at %s", self._log_id, found.begun_at)
            return found
        return VerifyState(asked=asked, begun_at=datetime.now(UTC).isoformat(timespec="seconds"))

    def _chosen(self, state: VerifyState) -> list[ClaimSection]:
        stored, nothing_beyond = self._stored, OffsetRange(self._stored.position, END)
        claims = claims_of(stored.proven, [*stored.holes.ranges, nothing_beyond], self._scope.range)
        found = sections(claims, self._bounds(), stored.parts)
        share, seed = state.asked.share, state.asked.seed
        return found if share is None or seed is None else sampled(found, share, seed)

    def _bounds(self) -> OffsetRange | None:
        """The bounds of the master; None if its files contradict themselves: the comparison then says where."""
        try:
            return self.master.bounds(self._stored.position)
        except LogError as error:
            _log.warning("%s", error)
            return None

    def _jobs(self, waiting: Sequence[ClaimSection]) -> Iterator[list[tuple[ClaimSection, list[Compared]]]]:
        """Run one Spark job after the other, and yield what each found.

        Over HA a job has a single task, because connections count as replicas.
        """
        reads_at_once = self._subject.reads_in_parallel or self.master.traits.cuts_at_records
        cores = self._spark.sparkContext.defaultParallelism if reads_at_once else 1
        count = cores * (_SECTIONS_A_TASK if self._scope.max_mb_per_s is None else 1)
        compare = SectionComparer(
            master=self.master,
            folder=self._stored.folder,
            position=self._stored.position,
            bytes_per_s=None if self._scope.max_mb_per_s is None else self._scope.max_mb_per_s * _MB / cores,
        )
        facts = JobFacts(
            problem="the Spark job that compares failed",
            log=self._log_id,
            hint="What was compared before is remembered: run it again.",
        )
        for at in range(0, len(waiting), count):
            together = waiting[at : at + count]
            yield run_tasks(self._spark, compare, together, facts, tasks=cores)

    def _record(self, found: Sequence[Compared]) -> None:
        incidents = (incident_of(one, self._stored.position) for one in found)
        self._incidents.record(self._stored.epoch, [one for one in incidents if one is not None])

    def _jumps(self, *, is_equal: bool) -> tuple[Jump, ...] | None:
        """The jumps in the queues, each with its incident if it has one. None if they cannot be read and the comparison
        found differences (not `is_equal`), which must be reported all the same.

        If a whole log is equal, its jumps are the master's own: they become incidents.
        """
        stored, known = self._stored, self._told_jumps()
        try:
            found = jumps(
                self._spark, stored.folder, stored.version, self._log_id, stored.position, stored.holes, len(known)
            )
        except (PySparkException, Py4JError) as error:
            if is_equal:
                facts = JobFacts(
                    problem="the query that proves the queues failed", log=self._log_id, hint="Run it again."
                )
                raise job_failure(error, facts) from error
            _log.warning("%s: its queues were not looked at: %s", self._log_id, first_line(error))
            return None
        if is_equal and self._scope.is_whole:
            new = [incident_of_jump(one) for one in found if one.is_masters and one.at not in known]
            self._incidents.record(stored.epoch, new)
            known = self._told_jumps()
        return tuple(replace(one, incident=known.get(one.at)) if one.is_masters else one for one in found)

    def _told_jumps(self) -> dict[Offset, str]:
        """The ids of the incidents of jumps, by where the queue goes on: those that are open or accepted."""
        return {
            row.found.start: row.id
            for row in self._incidents.all()
            if row.found.condition is Condition.QUEUE_JUMP and row.state is not State.HEALED
        }
