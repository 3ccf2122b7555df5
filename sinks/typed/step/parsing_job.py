"""The Spark job that parses the messages of a step: Spark plans it once, and runs that plan for every step.

To analyse, optimize and compile the views takes Spark a second of a processor, and many seconds the first time; a step
of a running job has less. So the query has nothing that differs between steps. Instead of the log's table it has a task
that reads what the job tells it to read, and the parsing gets its parameters in the same way: as a local property of
the Spark job, which its tasks can see.

The plan must not keep results: a shuffle or a broadcast would bring back the rows of an earlier step. And only the rows
of the step are read from the log. So a condition may depend on the record of a message, but not on other records.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinks.delta.kernel import KernelTable, Overlap, Snapshot
from sinks.delta.spark_jobs import JobFacts, first_line, job_failure, out_of_memory
from sinks.tables import LOG_ID
from sinks.typed.columns import Column
from sinks.typed.state import TableWork
from sinks.typed.step.log_rows import LogRows, Share, shares
from sinks.typed.step.messages import messages_of, topic_names, wrong_condition
from sinks.typed.step.parsing import OfStep, Parsing
from sinks.typed.step.plan import share_size
from sinks.typed.step.report import REPORT_DDL, Report, reports
from sinks.typed.step.suspects import Ranges, Suspects
from sinks.warehouse import spark_schema
from sources.errors import across_processes
from sources.offsets import LogId, Offset, OffsetRange

_PROPERTY: Final = "logtwin.typed.step"
_MOST_TASKS: Final = 16
_NOW: Final = frozenset(
    ("CurrentTimestamp", "CurrentDate", "CurrentTime", "Now", "LocalTimestamp", "CurrentBatchTimestamp")
)
"""Expressions that Spark replaces by a value while it plans a query."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What the tasks of one step are told. The task of a partition reads the share of that number, if there is one."""

    shares: tuple[Share, ...]
    columns: tuple[str, ...]
    of_step: OfStep


class ParsingJob:
    """Makes rows of the messages of one definition in `log`. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, log: KernelTable, parsing: Parsing) -> None:
        self._spark = spark
        self._log = log
        self._parsing = parsing
        self._wanted = parsing.wanted
        self._tasks = min(spark.sparkContext.defaultParallelism, _MOST_TASKS)
        self._plan: tuple[DataFrame, tuple[str, ...]] | None = None

    def prepare(self) -> None:
        """Plan the query, which the first step does otherwise. Raises ConfigurationError for an invalid condition."""
        if self._plan is None:
            frame = self._frame()
            self._plan = frame, self._checked(frame)

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
            return reports(self._rows(on, ranges, of_step))
        except (PySparkException, Py4JError) as error:
            raise out_of_memory(error, facts) or job_failure(error, facts) from error

    def _rows(self, on: Snapshot, ranges: Ranges, of_step: OfStep) -> list[Any]:
        """What the tasks report of the messages whose records start in `ranges`, in version `on` of the log.

        Raises as `prepare` does, and what PySpark raises.
        """
        self.prepare()
        frame, columns = cast("tuple[DataFrame, tuple[str, ...]]", self._plan)
        offsets = sum(one.size for several in ranges.values() for one in several)
        tasks = max(1, min(self._tasks, offsets // share_size(self._wanted)))
        files = {
            log_id: self._log.files(
                on,
                {LOG_ID.name: str(log_id)},
                Overlap(OffsetRange(min(one.start for one in several), max(one.end for one in several)), "offset"),
            )
            for log_id, several in ranges.items()
        }
        step = _Step(tuple(shares(files, ranges, tasks)), columns, of_step)
        context: Any = self._spark.sparkContext
        context.setLocalProperty(_PROPERTY, base64.b64encode(pickle.dumps(step)).decode())
        try:
            return frame.collect()
        finally:
            context.setLocalProperty(_PROPERTY, None)

    def _frame(self) -> DataFrame:
        session = self._spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")  # there is nothing to adapt, and it would plan again
        spec, parsing = self._wanted.source, self._parsing
        reading = LogRows(spec, self._log.path, topic_names(self._wanted))
        log = session.range(0, self._tasks, 1, self._tasks).mapInArrow(
            lambda batches: _read(reading, batches), spark_schema(spec.schema)
        )
        messages = messages_of(session, log, self._wanted)
        return messages.mapInArrow(lambda batches: parsing(batches, _told().of_step), REPORT_DDL)

    def _checked(self, frame: DataFrame) -> tuple[str, ...]:
        """The columns of the log that the plan needs. Raises ConfigurationError if it needs more than one record."""
        try:
            execution = cast(Any, frame)._jdf.queryExecution()
            nodes = _chain(execution.optimizedPlan())
            if nodes is None or not execution.optimizedPlan().subqueriesAll().isEmpty() or not _is_one_stage(execution):
                raise wrong_condition(self._wanted, "one that depends on other records")
            if not execution.analyzed().deterministic() or _asks_for_now(execution.analyzed()):
                raise wrong_condition(self._wanted, "one that holds now and may not hold later")
        except (PySparkException, Py4JError) as error:
            raise wrong_condition(self._wanted, first_line(error)) from error
        *above, log, _ = nodes
        ids = {_id(attribute): str(attribute.name()) for attribute in _each(log.output())}
        return tuple(
            {ids[one]: None for node in above for one in map(_id, _each(node.references().toSeq())) if one in ids}
        )


def _told() -> _Step:
    """The step that this task belongs to. To be called in a task."""
    text = cast(TaskContext, TaskContext.get()).getLocalProperty(_PROPERTY)
    step: _Step = pickle.loads(base64.b64decode(text or ""))  # noqa: S301 - our own driver wrote it
    return step


def _read(reading: LogRows, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:  # only the task's number, which it knows already
        pass
    step, number = _told(), cast(TaskContext, TaskContext.get()).partitionId()
    with across_processes():
        for share in step.shares[number : number + 1]:
            yield from reading(share, step.columns)


def _chain(plan: Any) -> list[Any] | None:
    """The nodes of a plan from the top, each with one child; None if one has several."""
    found = [plan]
    while (below := found[-1].children()).size():
        if below.size() > 1:
            return None
        found.append(below.head())
    return found


def _is_one_stage(execution: Any) -> bool:
    """Whether no task waits for the results of others."""
    nodes = _chain(execution.executedPlan())
    return nodes is not None and not any("Exchange" in node.nodeName() for node in nodes)


def _asks_for_now(plan: Any) -> bool:
    """Whether the condition on the messages, which is at the top of the plan, depends on the time of the query."""
    (query,) = _each(plan.children())
    (condition,) = _each(query.children())
    return any(_names_now(one) for one in _each(condition.expressions()))


def _names_now(expression: Any) -> bool:
    if expression.getClass().getSimpleName() in _NOW:
        return True
    return any(_names_now(one) for one in _each(expression.children()))


def _each(several: Any) -> Iterator[Any]:
    """Iterate over a Scala sequence."""
    every = several.iterator()
    while every.hasNext():
        yield every.next()


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
