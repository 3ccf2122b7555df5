"""The one file of a task, and what the answers to each of its splits add up to. Runs in tasks.

One file for splits of several partitions: a topic has many of these, and a file for each would be a small one.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from types import TracebackType

import pyarrow as pa

from sinks.continuity import written
from sinks.coverage import check_offsets, failure
from sinks.file_statistics import ColumnRange
from sinks.files import DataFile, FileWriter, new_name
from sinks.kafka.split_report import Answered
from sinks.tables import KAFKA_LOG
from sources.master_topic import PartitionChunk
from sources.offsets import Offset, OffsetRange


class TopicFile:
    """Made with its first record. Use as a context manager: leaving it by an exception removes it."""

    def __init__(self, warehouse: str) -> None:
        self._folder = KAFKA_LOG.path(warehouse)
        self._files = ExitStack()
        self._file: FileWriter | None = None

    def __enter__(self) -> TopicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.__exit__(kind, error, at)

    def write(self, rows: pa.RecordBatch) -> None:
        """Append `rows` of table kafka_log, if there are any."""
        if rows.num_rows:
            self._opened(rows.column("offset")[0].as_py()).write(rows)

    def finish(self) -> DataFile | None:
        """Close the file and make it durable; None without a record."""
        return None if self._file is None else self._file.finish()

    def _opened(self, first: Offset) -> FileWriter:
        if self._file is None:
            self._file = self._files.enter_context(FileWriter(KAFKA_LOG, self._folder, new_name(first)))
        return self._file


class Answers:
    """The answers to one split: checks that they join, end with it, and that their records lie where they claim."""

    def __init__(self, partition: int, owned: OffsetRange) -> None:
        self._partition = partition
        self._owned = owned
        self._reached = owned.start
        self._records = 0
        self._bytes = 0
        self._digest = hashlib.sha256()
        self._times = ColumnRange()
        self._leader_epoch: int | None = None

    def add(self, chunk: PartitionChunk) -> None:
        """The next one. Raises CoverageError, which knows no log."""
        self._check(chunk)
        self._reached = chunk.covered.end
        self._records += chunk.records.num_rows
        self._bytes += len(chunk.raw)
        self._digest.update(chunk.raw)
        self._times.add(chunk.records.column("timestamp"))
        self._leader_epoch = chunk.epoch

    def finish(self) -> Answered:
        """All of them. Raises CoverageError, which knows no log, where they do not reach the end of the split."""
        if self._reached != self._owned.end:
            raise failure("the master's chunks end too early", self._reached, f"some up to {self._owned.end}", "none")
        return Answered(
            partition=self._partition,
            range=self._owned,
            records=self._records,
            bytes=self._bytes,
            checksum=written(self._digest),
            first_timestamp_us=self._times.least,
            last_timestamp_us=self._times.greatest,
            leader_epoch=self._leader_epoch,
        )

    def _check(self, chunk: PartitionChunk) -> None:
        if chunk.covered.start != self._reached:
            raise failure("the master's chunks do not join", self._reached, self._reached, chunk.covered.start)
        if chunk.covered.end > self._owned.end:
            raise failure("a chunk reaches past the split", self._owned.end, self._owned.end, chunk.covered.end)
        check_offsets(chunk.records, chunk.covered)
