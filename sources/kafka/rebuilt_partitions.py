"""Segment files of a topic's partitions, rebuilt from their records (`sources.rebuilt_folder`).

They are named ``<topic>-<partition>/<20 digits>.log``, as in a broker's log.dirs. The digits are an offset; no batch of
the earlier files begins at or above it, and that of the first file is where the log starts. When a broker starts
without indexes and all the rest, it makes them from these files; it goes on behind the last batch. So a log whose last
offsets have no record ends with an empty batch, and a log without any record is an empty file.

A topic that was created anew counts its leader epochs from 0. To its brokers, batches of later epochs are from the
future: they tell clients that the log was cut there (KIP-320), and these skip records, or stop. Batches without an
epoch do no harm.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from sources.kafka.format.batch_encoding import MAX_DELTA, EncodedBatch, empty_batch, encode
from sources.offsets import LogId, Offset, topic_and_number
from sources.rebuilt_folder import RebuiltFolder

DEFAULT_FILE_SIZE_BYTES: Final = 1024 * 1024 * 1024
"""The default of log.segment.bytes."""
OWN: Final = re.compile(r"[^/]+-\d+(/\d{20}\.log)?")
"""The names in a folder of partitions."""


def folder_name(log_id: LogId) -> str:
    topic, number = topic_and_number(log_id)
    return f"{topic.name.partition('/')[2]}-{number}"


class RebuiltPartition:
    """The files of one partition, whose log begins at `first`, written in order to a `RebuiltFolder`.

    `last_epoch` is the latest leader epoch in them, None as long as there is none. Without `with_epochs` there are
    none.
    """

    def __init__(
        self, folder: RebuiltFolder, log_id: LogId, first: Offset, file_size_bytes: int, *, with_epochs: bool = False
    ) -> None:
        self._folder = folder
        self._name = folder_name(log_id)
        self._file_size_bytes = file_size_bytes
        self._end = first  # where the written log ends
        self._with_epochs = with_epochs
        self.last_epoch: int | None = None
        self.files = 0
        self._next_file(first)

    def write(self, records: pa.RecordBatch) -> None:
        """Append `records`, which have the columns of UNLOCATED_SCHEMA."""
        for batch in encode(records if self._with_epochs else _without_epochs(records)):
            self._append(batch)

    def finish(self, end: Offset, epoch: int | None) -> None:
        """Make the log end at `end`, in leader epoch `epoch` if that is known."""
        if end > self._end:
            self._append(empty_batch(end, self._end, self._later(epoch) if self._with_epochs else None))

    def _append(self, batch: EncodedBatch) -> None:
        covered = batch.covered
        is_full = self._size_bytes and self._size_bytes + len(batch.whole) > self._file_size_bytes
        if is_full or covered.end - 1 - self._start > MAX_DELTA:
            self._next_file(covered.start)
        self._folder.append(batch.whole)
        self._size_bytes += len(batch.whole)
        self._end, self.last_epoch = covered.end, self._later(batch.epoch)

    def _later(self, epoch: int | None) -> int | None:
        return max((one for one in (epoch, self.last_epoch) if one is not None), default=None)

    def _next_file(self, start: Offset) -> None:
        self._folder.next_file(f"{self._name}/{start:020d}.log")
        self._start, self._size_bytes = start, 0
        self.files += 1


def _without_epochs(records: pa.RecordBatch) -> pa.RecordBatch:
    at = records.schema.get_field_index("leader_epoch")
    field = records.schema.field(at)
    return records.set_column(at, field, pa.nulls(len(records), field.type))
