"""Reading many logs at once: what is wanted of each, and what comes of it.

A master may answer for many logs at once, so a task hands all splits of such logs to one `LogReader`. Pieces of
different splits come in any order; those of one split come in the order of its log, and the last that comes is `Ended`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

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
