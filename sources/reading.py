"""Reading many logs at once: what is wanted of each, what comes of it, and how many splits a batch is cut into.

A master may answer for many logs at once, so a task hands all splits of such logs to one `LogReader`. Pieces of
different splits come in any order; those of one split come in the order of its log, and the last that comes is `Ended`.

Every core gets a split of a batch, all of them take as long, and a small batch is one file. Sizes are bytes of the
master's log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from sources.master import Chunk, Damage, MasterLog
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class WantedSplit:
    """What is to be read of `log`. For `committed` and `boundary` see `MasterLog.read`."""

    log: MasterLog
    owned: OffsetRange
    committed: Offset | None = None
    boundary: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes of a split, because of `error`; None: all of it has come. TimeIsUp says that time was up."""

    error: Exception | None = None


Come = tuple[int, Chunk | Damage | Ended]
"""What has come, and of which: an index into what was wanted."""


class LogReader(Protocol):
    """Reads any number of splits of some logs. Hashable; equal for all logs that are to be read together. Picklable."""

    def read(self, wanted: Sequence[WantedSplit]) -> Iterator[Come]:
        """Yield the records of each of `wanted`, checked, and how it ended.

        Raises nothing that concerns only some of the logs: that is how these ended. For what comes of each see
        `MasterLog.read`.
        """


@dataclass(frozen=True, slots=True, eq=False)
class OneByOne:
    """The reader of a log whose master has no other: each split is read by itself, over a connection of its own."""

    log: MasterLog

    def read(self, wanted: Sequence[WantedSplit]) -> Iterator[Come]:
        """Implement `LogReader`."""
        for number, one in enumerate(wanted):
            error: Exception | None = None
            try:
                for piece in self.log.read(one.owned, committed=one.committed, boundary=one.boundary):
                    yield number, piece
            except Exception as raised:  # noqa: BLE001 - whatever it is, it is this log's
                error = raised
            yield number, Ended(error)


def alone(reader: LogReader, wanted: WantedSplit) -> Iterator[Chunk | Damage]:
    """Yield what comes of one split by itself. Raises what it ended with."""
    for _, piece in reader.read([wanted]):
        if not isinstance(piece, Ended):
            yield piece
        elif piece.error is not None:
            raise piece.error


def rows_of(log: MasterLog, owned: OffsetRange, *, boundary: bool, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records that start in `owned` as rows of `schema`, which has the log's id before their columns.

    Raises the error of damage. For `boundary` see `MasterLog.read`.
    """
    for piece in log.read(owned, committed=None, boundary=boundary):
        if isinstance(piece, Damage):
            raise piece.error
        log_ids = pa.repeat(str(log.log_id), piece.records.num_rows)
        yield pa.RecordBatch.from_arrays([log_ids, *piece.records.columns], schema=schema)


WORTH_A_TASK_BYTES: Final = 16 * 1024 * 1024
"""A smaller split is read in less time than a second task takes to start, and would leave another small file."""

SMALL_BYTES: Final = 64 * 1024
"""Of a smaller split, reading takes less time than all that is done once for it."""

LONGER_BY: Final = 8
"""A split may exceed its target by this fraction (1/8), because one more split per core would cost more.

A batch ends with the record that its limit falls into, so a batch of four full splits is a
little longer than four of them.
"""


def longest(most_bytes: int) -> int:
    """Return the largest size of a split that should take at most `most_bytes`."""
    return most_bytes + most_bytes // LONGER_BY


def split_bytes(total_bytes: int, *, most_bytes: int, cores: int) -> int:
    """Return the size of each split of a batch of `total_bytes`; at most `longest` of `most_bytes`.

    If there is enough for every core, the number of splits is a multiple of `cores`: a left-over task would keep the
    others waiting for its whole length.
    """
    splits = max(-(-total_bytes // longest(most_bytes)), 1)
    if total_bytes >= cores * WORTH_A_TASK_BYTES:
        splits = -(-splits // cores) * cores
    else:
        splits = max(splits, total_bytes // WORTH_A_TASK_BYTES)
    return max(-(-total_bytes // splits), 1)
