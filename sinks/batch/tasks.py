"""The Spark job of one batch: its tasks read splits, write files and report, in Spark's Python workers (`spark_jobs`).

A task gets planned splits, and returns a small report of each: the range covered, the files, their statistics, the
checksums of the master's bytes. Rows of the log never pass through the JVM.

Logs that one reader can read are read together: a Kafka broker is asked once for all its partitions. Masters that have
one log each are read side by side, a few at a time. Either way the bytes that are read at once are limited.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from sinks.batch.proof import SplitReport
from sinks.batch.receiver import LogWriter, Receiver, receive
from sinks.batch.shared_file import SharedFile
from sinks.delta.files import discard
from sinks.delta.spark_jobs import JobFacts, run_shares
from sinks.storage.errors import is_no_room
from sinks.tables import QUARANTINE, log_table
from sources.errors import StorageUnreachable, across_processes
from sources.master import PlannedSplit
from sources.offsets import LogId
from sources.reading import SMALL_BYTES, WORTH_A_TASK_BYTES, LogReader, longest

READ_AT_ONCE: Final = 8
"""The most masters that one task reads at once; also the most bytes, in units of what is worth a task."""

AT_ONCE_BYTES: Final = READ_AT_ONCE * WORTH_A_TASK_BYTES

TASK_BYTES: Final = longest(256 * 1024 * 1024)
"""The most bytes that a task reads of several splits; a single one may be longer."""

_FULL: Final = "Nothing was committed; a running job waits until there is room."

Given = tuple[PlannedSplit, LogWriter]
"""A split, and what reads and writes it."""


def run_splits(spark: SparkSession, splits: Sequence[PlannedSplit], logs: Mapping[str, LogWriter]) -> list[SplitReport]:
    """Read and write `splits`, each by the writer in `logs` that has its id. Raises Spark's error if it ends the job.

    A task is sent only what its own splits need. If one finds the disk full, the files of the others are removed: each
    try would leave more, until nothing else has room.
    """
    facts = JobFacts(
        problem="the Spark job that writes the batch failed",
        log=", ".join(logs),
        hint="Nothing was committed; the batch is done again at the next start.",
    )
    sized = [(split, logs[split.log_id].master.size_bytes(split.owned) or 0) for split in splits]
    shares = in_tasks(sized, cores=spark.sparkContext.defaultParallelism)
    given = [[pickle.dumps([(split, logs[split.log_id]) for split in share])] for share in shares]
    results = [pickle.loads(result) for result in run_shares(spark, _work, given, facts)]  # noqa: S301 - our own task's
    full = [result for result in results if isinstance(result, StorageUnreachable)]
    reports = [report for result in results if isinstance(result, list) for report in result]
    if full:
        discard_files(next(iter(logs.values())).warehouse, reports)
        raise full[0].of(facts.log)
    return reports


def _work(given: Iterable[bytes]) -> Iterator[bytes]:
    """The work of a task. It pickles by itself: Spark's own way of pickling takes three times as long."""
    for share in given:
        with across_processes():
            result: list[SplitReport] | StorageUnreachable
            try:
                result = list(write_splits(pickle.loads(share)))  # noqa: S301 - the driver's
            except OSError as error:
                if not is_no_room(error):
                    raise
                result = StorageUnreachable("there is no room for what was read", found=error, hint=_FULL)
        yield pickle.dumps(result)


def in_tasks(splits: Sequence[tuple[PlannedSplit, int]], *, cores: int) -> list[list[PlannedSplit]]:
    """Share `splits`, each with its bytes (0 if unknown), among tasks, so that each has about the same.

    There are as many tasks as cores, and more only if one would read for long: each costs 50 ms beside its bytes.
    """
    total_bytes = sum(size_bytes for _, size_bytes in splits)
    rounds = max(1, -(-total_bytes // (cores * TASK_BYTES)))
    tasks = [_Task() for _ in range(min(len(splits), rounds * cores))]
    for split, size_bytes in sorted(splits, key=lambda one: one[1], reverse=True):
        min(tasks, key=lambda task: (task.bytes, len(task.splits))).add(split, size_bytes)
    return [task.splits for task in tasks]


@dataclass(slots=True)
class _Task:
    bytes: int = 0
    splits: list[PlannedSplit] = field(default_factory=list)

    def add(self, split: PlannedSplit, size_bytes: int) -> None:
        self.bytes += size_bytes
        self.splits.append(split)


def write_splits(given: Iterable[Given]) -> Iterator[SplitReport]:
    """Read and write splits of logs that have one table; yield a report of each, in order. This is a task's work.

    Splits that are whole batches share a file. Raises OSError or ArrowException if the tables' storage fails.
    """
    splits = list(given)
    with splits[0][1].new_file() as shared, ExitStack() as failing:
        received = [failing.enter_context(_receiver(split, log, shared)) for split, log in splits]
        turns = _turns(received)
        with ThreadPoolExecutor(_at_once(turns)) as pool:
            list(pool.map(lambda turn: receive(turn.reader, turn.received), turns))
        shared.finish()
        for receiver in received:
            yield receiver.report()


def _receiver(split: PlannedSplit, log: LogWriter, shared: SharedFile) -> Receiver:
    # If one of a log's several splits fails, none is committed, and a file that they share with others goes, too.
    return Receiver(log, split, shared if split.owned == split.batch else None)


def _turns(received: Sequence[Receiver]) -> list[_Turn]:
    """Group splits into turns: as much as one reader can read, and is read at once."""
    turns: dict[LogReader, list[_Turn]] = {}
    for receiver in received:
        if receiver.wanted is None:
            continue
        size_bytes = receiver.log.master.size_bytes(receiver.wanted.owned) or 0
        log = receiver.wanted.log
        reader = log.small_reader if size_bytes <= SMALL_BYTES else log.reader
        of_reader = turns.setdefault(reader, [])
        if not of_reader or of_reader[-1].bytes + size_bytes > AT_ONCE_BYTES:
            of_reader.append(_Turn(reader))
        of_reader[-1].add(receiver, size_bytes)
    return [turn for of_reader in turns.values() for turn in of_reader]


@dataclass(slots=True)
class _Turn:
    """Splits that one reader reads together."""

    reader: LogReader
    received: list[Receiver] = field(default_factory=list)
    bytes: int = 0

    def add(self, receiver: Receiver, size_bytes: int) -> None:
        self.received.append(receiver)
        self.bytes += size_bytes


def _at_once(turns: Sequence[_Turn]) -> int:
    """How many turns are read side by side."""
    largest = max((turn.bytes for turn in turns), default=0)
    return max(1, min(len(turns), READ_AT_ONCE, AT_ONCE_BYTES // max(largest, 1)))


def discard_files(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove the files that tasks wrote: no commit will name them."""
    for report in reports:
        discard(log_table(LogId.parse(report.log_id)).path(warehouse), report.files)
        discard_quarantined(warehouse, [report])


def discard_quarantined(warehouse: str, reports: Iterable[SplitReport]) -> None:
    """Remove the files in which tasks kept damage."""
    kept = [one.quarantined.name for one in reports if one.quarantined is not None]
    if kept:
        discard(QUARANTINE.path(warehouse), kept)
