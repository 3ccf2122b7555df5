"""What a task does with its splits: read, write files, report. Runs in Spark's Python workers (`spark_jobs`).

A task gets planned splits, and returns a small report of each: the range covered, the files, their statistics, the
checksums of the master's bytes. Rows of the log never pass through the JVM.

Logs that one reader can read are read together: a Kafka broker is asked once for all its partitions. Masters that have
one log each are read side by side, a few at a time. Either way the bytes that are read at once are limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from sinks.batch.receiver import LogWriter, Receiver, receive
from sinks.batch.shared_file import SharedFile
from sinks.batch.split_report import SplitReport
from sources.errors import across_processes
from sources.master import PlannedSplit
from sources.reading import LogReader
from sources.splits import SMALL_BYTES, WORTH_A_TASK_BYTES

READ_AT_ONCE: Final = 8
"""How many masters one task reads at once, at most; and how many times what is worth a task: the memory adds up."""

AT_ONCE_BYTES: Final = READ_AT_ONCE * WORTH_A_TASK_BYTES


Given = tuple[PlannedSplit, LogWriter]
"""A split, and what reads and writes it."""


def write_splits(given: Iterable[Given]) -> Iterator[SplitReport]:
    """Read and write splits of logs that have one table; yield a report of each, in order. This is the task function.

    Splits that are whole batches share a file.
    """
    splits = list(given)
    with across_processes(), splits[0][1].new_file() as shared, ExitStack() as failing:
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
    """What to read together: as much as one reader can read, and is read at once."""
    turns: dict[LogReader, list[_Turn]] = {}
    for receiver in received:
        if receiver.wanted is None:
            continue
        size_bytes = receiver.log.master.size_bytes(receiver.wanted.owned) or 0
        log = receiver.log.patient
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
