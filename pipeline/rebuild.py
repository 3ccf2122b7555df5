"""What ``logtwin rebuild`` does: the master's segment files, byte for byte, out of the tables alone.

Everything is read from one version of the log table. Each range of the ledger is compared with its checksum while it is
written, and the files take their place only after the last: what arrives is what the master had, or nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sinks.healing.ledger_rows import LedgerRows
from sinks.holes import joined
from sinks.kernel import KernelTable
from sinks.position import LogTable
from sinks.proof.proven import Proof, check_joined, not_joined, proven_ranges
from sinks.proof.stored import parts, read
from sinks.tables import log_table
from sinks.warehouse import absolute
from sources.errors import ConfigurationError, ReplicaError, naming
from sources.master import BLANK, RECORD_SCHEMA
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import MasterOptions
from sources.registry import open_log
from sources.rocketmq.rebuilt_files import DEFAULT_FILE_SIZE_BYTES, RebuiltFiles, check_file_ends, file_size_bytes

_PIECE_BYTES: Final = 64 * 1024 * 1024
_BLANK_COLUMNS: Final = ("offset", "size", "kind")
_HOLES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was made: files of one size, the offsets of the log in them, and what of that is zeros."""

    files: int
    file_size_bytes: int
    log: OffsetRange
    zeroed: tuple[OffsetRange, ...]


class Rebuild:
    """The replica of one log at one version of its table. Driver only."""

    def __init__(self, spark: SparkSession, warehouse: str, options: MasterOptions) -> None:
        """Raises ConfigurationError where there is nothing to rebuild, or no segment files are made of such a log;
        ReplicaError where the tables contradict each other."""
        self._log_id = options.log_id
        if not self._log_id.counts_bytes:
            raise _without_segments(self._log_id)
        self._master = open_log(options)
        self._folder = log_table(self._log_id).path(absolute(warehouse))
        table = KernelTable(spark, self._folder)
        if table.snapshot() is None:
            raise _nothing(self._log_id, self._folder)
        log = LogTable(spark, self._folder, self._log_id)
        held = log.read()
        log.refuse_repair(held.state)
        if held.state is None or held.state.offset is None:
            raise _nothing(self._log_id, self._folder)
        self._position = held.state.offset
        self._holes = held.holes
        below = OffsetRange(Offset(0), self._position)
        ledger = LedgerRows(spark, warehouse, self._log_id).overlapping(below)
        owed = held.state.ledger + held.holes.ledger
        self._proven = proven_ranges(self._log_id, ledger, owed, held.holes, self._position)
        self._stretches = joined(row.range for row in self._proven)
        if not self._stretches:
            raise _nothing(self._log_id, self._folder)
        self._parts = parts(table, held.snapshot, self._log_id, below)

    @property
    def size_bytes(self) -> int:
        """What there is to write; holes take none."""
        return sum(one.size for one in self._stretches)

    def file_size_bytes(self, given: int | None) -> int:
        """How large the master's files are: as the table shows, else as `given`, else RocketMQ's own default.

        Raises ConfigurationError where the table shows another size than is given.
        """
        found = file_size_bytes((one.start, self._blank_ends(one)) for one in self._stretches)
        if found is not None and given not in (None, found):
            raise ConfigurationError(
                "the files of this log have another size", log=self._log_id, expected=f"{found} bytes", found=given
            )
        return found or given or DEFAULT_FILE_SIZE_BYTES

    def missing(self, size_bytes: int) -> tuple[OffsetRange, ...]:
        """What the files lack. Whole files before the first one are no hole: a log may begin at any file."""
        first = self._stretches[0].start
        return self._holes.within(OffsetRange(Offset(first - first % size_bytes), self._position))

    def write(
        self, to: Path, size_bytes: int, *, zero_holes: bool, on_written: Callable[[int], None] = lambda _: None
    ) -> Rebuilt:
        """Make files of `size_bytes` in the directory `to`, which is empty or not there. `on_written` hears of bytes.

        Raises ReplicaError (holes, unless they shall be zeros; rows that are not what was replicated),
        ConfigurationError, CorruptRecord.
        """
        missing = self.missing(size_bytes)
        if missing and not zero_holes:
            raise _holed(self._log_id, missing)
        proof = Proof(self._log_id, self._proven)
        with RebuiltFiles(to, size_bytes) as files:
            for stretch in self._stretches:
                for at, data in self._bytes(stretch, size_bytes):
                    proof.take(data)
                    files.write(at, data)
                    on_written(len(data))
            starts = files.finish(self._position)
        log = OffsetRange(starts[0], self._position)
        return Rebuilt(files=len(starts), file_size_bytes=size_bytes, log=log, zeroed=missing)

    def _bytes(self, stretch: OffsetRange, size_bytes: int) -> Iterator[tuple[Offset, memoryview]]:
        """The master's bytes of `stretch`, in order, each piece with its offset."""
        at = stretch.start
        for records in self._records(stretch, RECORD_SCHEMA.names):
            check_joined(self._log_id, records, at)
            with naming(self._log_id):
                check_file_ends(records, size_bytes)
                data = self._master.restore(records)
            yield at, memoryview(data)
            at = Offset(at + len(data))
        if at != stretch.end:
            raise not_joined(self._log_id, at, "none")

    def _blank_ends(self, stretch: OffsetRange) -> Iterator[Offset]:
        for records in self._records(stretch, _BLANK_COLUMNS):
            blanks = pa.table(records).filter(pc.field("kind") == BLANK)
            yield from map(Offset, pc.add(blanks["offset"], blanks["size"].cast(pa.int64())).to_pylist())

    def _records(self, stretch: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for piece in stretch.in_pieces(_PIECE_BYTES):
            yield from read(self._folder, self._parts, self._log_id, piece, columns)


def _without_segments(log_id: LogId) -> ConfigurationError:
    return ConfigurationError(
        f"the files of a {log_id.kind} master cannot be rebuilt",
        log=log_id,
        expected="a log of segment files, as of RocketMQ",
        found=f"one of kind {log_id.kind!r}",
        hint="The table has every byte of it, nonetheless: logtwin verify proves that.",
    )


def _nothing(log_id: LogId, path: str) -> ConfigurationError:
    return ConfigurationError(
        "there is nothing to rebuild",
        log=log_id,
        expected=f"records of the log in {path}",
        found="none",
        hint="Check warehouse and the id of the log.",
    )


def _holed(log_id: LogId, missing: Sequence[OffsetRange]) -> ReplicaError:
    shown = ", ".join(map(str, missing[:_HOLES_SHOWN]))
    more = f" and {len(missing) - _HOLES_SHOWN:,} more" if len(missing) > _HOLES_SHOWN else ""
    return ReplicaError(
        "the files would have holes, and a broker does not get over one",
        log=log_id,
        offset=missing[0].start,
        expected="every byte from the first file on",
        found=f"no records in {shown}{more}",
        hint="Fill them with logtwin backfill, or have zeros written there with --zero-holes.",
    )
