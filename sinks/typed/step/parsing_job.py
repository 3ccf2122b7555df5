"""The Spark job that parses the messages of a step, and the one that only looks where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable, Snapshot
from sinks.delta.spark_jobs import JobFacts, job_failure, out_of_memory
from sinks.typed.columns import Column
from sinks.typed.definition import Definition
from sinks.typed.state import TableWork
from sinks.typed.step.parsing import OfStep, Parsing, Report, reports
from sinks.typed.step.plan import share_size
from sinks.typed.step.prepared import PreparedMessages
from sinks.typed.step.suspects import Ranges, Suspects
from sinks.typed.step.task_reports import REPORT_DDL
from sources.offsets import LogId, Offset, OffsetRange


class ParsingJob:
    """Runs `parsing` on messages of one definition. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, log: KernelTable, wanted: Definition, parsing: Parsing) -> None:
        self._wanted = wanted
        self._messages = PreparedMessages(spark, log, wanted, parsing, REPORT_DDL)

    def prepare(self) -> None:
        """Plan the job in advance. Raises ConfigurationError for an invalid condition."""
        self._messages.prepare()

    def report(
        self,
        on: Snapshot,
        ways: Mapping[LogId, TableWork],
        columns: Sequence[Column],
        unwidened: Sequence[str],
        generation: int,
        suspects: Suspects,
    ) -> Report:
        """Make rows and dead letters of what `ways` bring, but do not read what `suspects` say must not be read.

        Raises WorkerLost also if a task runs out of memory; or what else ended the job.
        """
        ranges = {log_id: one.into for log_id, one in ways.items() if one.into}
        of_step = OfStep(
            tuple(one for one in columns if one.sql is None),
            tuple(unwidened),
            generation,
            {str(log_id): ways[log_id].to.epoch for log_id in ranges},
            unread=suspects.unread,
        )
        return self._run(on, ranges, of_step)

    def held(self, on: Snapshot, ranges: Ranges) -> tuple[dict[LogId, OffsetRange], int]:
        """Where the messages in `ranges` are: from the record of the first up to that of the last, by log.

        And how many messages an inner batch has at most. Raises as `report` does: a worker that dies here has not met
        the content of a message.
        """
        found: dict[LogId, OffsetRange] = {}
        spans = self._run(on, ranges, OfStep((), only_looks=True)).held
        for one, first, last, _ in spans:
            log_id, span = LogId.parse(one), OffsetRange(Offset(first), Offset(last + 1))
            before = found.get(log_id, span)
            found[log_id] = OffsetRange(min(before.start, span.start), max(before.end, span.end))
        return found, 1 + max((index for *_, index in spans), default=0)

    def _run(self, on: Snapshot, ranges: Ranges, of_step: OfStep) -> Report:
        if not ranges:
            return Report()
        first = next(iter(ranges))
        facts = JobFacts(
            problem=f"the Spark job that makes rows of the typed table {self._wanted.name} failed",
            log=first,
            offset=min(one.start for one in ranges[first]),
            hint="Nothing of the step was committed; a running job does it again.",
        )
        try:
            return reports(self._messages.run(on, ranges, share_size(self._wanted), of_step))
        except (PySparkException, Py4JError) as error:
            raise out_of_memory(error, facts) or job_failure(error, facts) from error
