"""Run Spark jobs of Python tasks, and find what ended one: the error that a task raised, or a line of Spark's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.storage.errors import failed_by
from sources.errors import LogtwinError, WorkerLost, find_error
from sources.extras import missing_package

# The worker did not start; it died at work; it had died before it was given any.
_WORKER_LOST = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "java.io.IOException: Stream closed",
)


# Of the JVM also behind what wraps it; of Python the last line of a traceback.
_OUT_OF_MEMORY = re.compile(
    r"^(?:(?:.*: )?java\.lang\.OutOfMemoryError|(?:pyarrow\.lib\.Arrow)?MemoryError)\b.{0,200}", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The facts of an error if Spark ends a job: what failed, in which log and from which offset on, and what to do."""

    problem: str
    log: object
    hint: str
    offset: int | None = None


Given = TypeVar("Given")
Made = TypeVar("Made")


def run_tasks(
    spark: SparkSession,
    work: Callable[[Iterable[Given]], Iterable[Made]],
    given: Sequence[Given],
    facts: JobFacts,
    *,
    tasks: int | None = None,
) -> list[Made]:
    """Run `work`, which must pickle, on `given` in one Spark job, and return the results in order.

    There is one task for each of `given`, or `tasks` at most. Raises the error that a task raised, or else one that
    says `facts`.
    """
    count = min(tasks or len(given), len(given))
    shares = [given[at * len(given) // count : (at + 1) * len(given) // count] for at in range(count)]
    return run_shares(spark, work, shares, facts)


def run_each(
    spark: SparkSession,
    work: Callable[[Given], Made],
    given: Sequence[Given],
    facts: JobFacts,
    *,
    tasks: int | None = None,
) -> list[Made]:
    """Like `run_tasks`, with what is to be done for one. Raises the first error that `work` raised.

    Such an error is a result for Spark, which would try a task that fails again.
    """
    found: list[Made] = []
    for made in run_tasks(spark, _Each(work), given, facts, tasks=tasks):
        if isinstance(made, LogtwinError):
            raise made
        found.append(made)
    return found


@dataclass(frozen=True, slots=True)
class _Each(Generic[Given, Made]):
    """The task function of `run_each`."""

    work: Callable[[Given], Made]

    def __call__(self, given: Iterable[Given]) -> Iterator[Made | LogtwinError]:
        for one in given:
            try:
                yield self.work(one)
            except LogtwinError as error:
                yield error


def run_shares(
    spark: SparkSession,
    work: Callable[[Iterable[Given]], Iterable[Made]],
    shares: Sequence[Sequence[Given]],
    facts: JobFacts,
) -> list[Made]:
    """Like `run_tasks`, with the share of each task.

    This is an RDD, because a query would be analysed, optimised and compiled again for each batch, which takes 40 ms.
    All tasks of a job use RDDs: Spark keeps separate Python workers for queries, which would make two for each core.
    """
    if not shares:
        return []
    try:
        made: list[Made] = spark.sparkContext.parallelize(shares, len(shares)).flatMap(work).collect()
    except (PySparkException, Py4JError) as error:
        raise job_failure(error, facts) from error
    return made


def job_failure(error: Exception, facts: JobFacts) -> LogtwinError:
    """The error behind the `error` that collecting raised: a task's own error, or a ReplicaError that says `facts`."""
    text = str(error)
    found = find_error(text) or lost_worker(text, log=facts.log, offset=facts.offset) or missing_package(text)
    return found or failed_by(error)(
        facts.problem, log=facts.log, offset=facts.offset, found=_last_line(text), hint=facts.hint
    )


def out_of_memory(error: Exception, facts: JobFacts) -> WorkerLost | None:
    """Return WorkerLost if a task ran out of memory, in Python or the JVM, as if that had killed it; else None."""
    found = _OUT_OF_MEMORY.search(str(error))
    if found is None:
        return None
    return WorkerLost(
        "a task ran out of memory", log=facts.log, offset=facts.offset, found=found[0].strip(), hint=facts.hint
    )


def lost_worker(text: str, *, log: object, offset: int | None = None) -> WorkerLost | None:
    """Return WorkerLost if Spark's `text` tells of a Python worker that died, perhaps for lack of memory; else None."""
    said = next((words for words in _WORKER_LOST if words in text), None)
    if said is None:
        return None
    return WorkerLost(
        "Spark lost a Python worker",
        log=log,
        offset=offset,
        found=said,
        hint="Nothing of the batch was committed; a running job does it again. If that repeats, look for what kills "
        "processes (memory), and whether the machine can start them within 10 s.",
    )


def first_line(error: Exception) -> str:
    """The first line of Spark's message, without the plan or the stack that follows it."""
    return str(error).strip().partition("\n")[0]


def first_cause(error: Py4JJavaError) -> Any:
    """The Java exception that all others of `error` wrap."""
    cause: Any = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause


def _last_line(trace: str) -> str:
    """The conclusion of a traceback, of Python or Java: its last line that is not indented."""
    lines = [line for line in trace.splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1] if lines else trace
