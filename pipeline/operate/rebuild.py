"""``logtwin rebuild``: the segment files of a RocketMQ broker, byte for byte, from one version of the table.

Each range of the ledger is compared with its checksum while it is written, and the files are moved into place only
after the last. So either exactly what the master had arrives, or nothing. The files of a topic are made by
`pipeline.operate.rebuild_topic`, which needs the Kafka client; `opened` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.selection import subjects
from sinks.proof.proven_log import Proof, check_joined, not_joined, nothing, proven_log
from sources.errors import ConfigurationError, ReplicaError, naming
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import MasterOptions
from sources.records import BLANK, RECORD_SCHEMA
from sources.registry import open_log
from sources.rocketmq.files.rebuilt_files import DEFAULT_FILE_SIZE_BYTES, RebuiltFiles, check_file_ends, file_size_bytes
from sources.rocketmq.files.segment_files import EPOCH_FILE, encode_epoch_file

if TYPE_CHECKING:
    from pipeline.operate.rebuild_topic import TopicRebuild

_HOLES_SHOWN: Final = 20

OnWritten = Callable[[int], None]
"""Receives the number of bytes just written, as `size_bytes` of a rebuild counts them."""
_PIECE_BYTES: Final = 64 * 1024 * 1024
_BLANK_COLUMNS: Final = ("offset", "size", "kind")


def holed(log_id: LogId, missing: Sequence[OffsetRange], expected: str, with_zero_holes: str) -> ReplicaError:
    """Return the error for files that would lack the ranges `missing`; `with_zero_holes` says what that option does."""
    shown = ", ".join(map(str, missing[:_HOLES_SHOWN]))
    more = f" and {len(missing) - _HOLES_SHOWN:,} more" if len(missing) > _HOLES_SHOWN else ""
    return ReplicaError(
        "the files would have holes",
        log=log_id,
        offset=missing[0].start,
        expected=expected,
        found=f"no records in {shown}{more}",
        hint=f"Fill them with logtwin backfill, or {with_zero_holes} with --zero-holes.",
    )


def opened(
    spark: SparkSession, config: Config, log: str, *, with_epochs: bool = False
) -> CommitLogRebuild | TopicRebuild:
    """The rebuild of `log` in `config`: a log, a topic with all of its replicated partitions, or one of these.

    `with_epochs` is that of `pipeline.operate.rebuild_topic.TopicRebuild`, and only for topics. Raises
    ConfigurationError if there is nothing that can be rebuilt; ReplicaError.
    """
    if config.logs:
        if with_epochs:
            raise ConfigurationError(f"{log} has no leader epochs", expected="--with-epochs of a topic alone")

        return CommitLogRebuild(spark, config.warehouse, config.logs[0])
    from pipeline.operate.rebuild_topic import TopicRebuild

    partitions = [one.log_id for one in subjects(config, log)]
    if not partitions:
        raise nothing(LogId.parse(log), config.warehouse, to="rebuild")
    return TopicRebuild(spark, config.warehouse, partitions, with_epochs=with_epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltCommitLog:
    """The rebuilt files, all of one size, the offsets that they hold, and the ranges that are zeros.

    `epoch_file` is the file beside them for a log whose master was elected.
    """

    log_id: LogId
    files: int
    file_size_bytes: int
    log: OffsetRange
    zeroed: tuple[OffsetRange, ...]
    epoch_file: Path | None = None

    def text(self, to: Path) -> str:
        files = f"{self.files:,} files of {self.file_size_bytes:,} bytes in {to}"
        zeros = "".join(f"; zeros in {hole}" for hole in self.zeroed)
        epochs = "" if self.epoch_file is None else f"; its epochs in {self.epoch_file}"
        return f"{self.log_id}: {files}, the log from {self.log.start:,} to {self.log.end:,}{zeros}{epochs}"


class CommitLogRebuild:
    """The rebuild of one commit log, at one version of its table. Driver only."""

    def __init__(self, spark: SparkSession, warehouse: str, options: MasterOptions) -> None:
        """Raises ConfigurationError if there is nothing to rebuild, or such a log has no segment files; ReplicaError if
        the tables contradict each other.
        """
        self._log_id = options.log_id
        if not self._log_id.counts_bytes:
            raise _without_segments(self._log_id)
        self._master = open_log(options)
        self._stored = proven_log(spark, warehouse, self._log_id, to="rebuild")
        if not self._stored.stretches:
            raise nothing(self._log_id, warehouse, to="rebuild")

    @property
    def size_bytes(self) -> int:
        """How many bytes there are to write; holes do not count."""
        return sum(one.size for one in self._stored.stretches)

    def file_size_bytes(self, given: int | None) -> int:
        """The size of the master's files: as the table shows, else as `given`, else RocketMQ's default.

        Raises ConfigurationError if the table shows another size than `given`.
        """
        found = file_size_bytes((one.start, self._blank_ends(one)) for one in self._stored.stretches)
        if found is not None and given not in (None, found):
            raise ConfigurationError(
                "the files of this log have another size", log=self._log_id, expected=f"{found} bytes", found=given
            )
        return found or given or DEFAULT_FILE_SIZE_BYTES

    def missing(self, size_bytes: int) -> tuple[OffsetRange, ...]:
        """The ranges that the files lack. Whole files before the first are no hole: a log may begin at any file."""
        first = self._stored.stretches[0].start
        return self._stored.holes.within(OffsetRange(Offset(first - first % size_bytes), self._stored.position))

    def write(
        self, to: Path, file_size_bytes: int | None, *, zero_holes: bool, on_written: OnWritten = lambda _: None
    ) -> Sequence[RebuiltCommitLog]:
        """Make all of the files in the directory `to`, or none. It must be empty, or not exist.

        `file_size_bytes` is passed to the method of that name. Raises ReplicaError (holes, unless `zero_holes`; rows
        that are not what was replicated), ConfigurationError, CorruptRecord.
        """
        size_bytes = self.file_size_bytes(file_size_bytes)
        missing = self.missing(size_bytes)
        if missing and not zero_holes:
            raise holed(self._log_id, missing, "every byte from the first file on", "have zeros written there")
        epoch_file = self._epoch_file(to)
        proof = Proof(self._log_id, self._stored.proven)
        with RebuiltFiles(to, size_bytes) as files:
            for stretch in self._stored.stretches:
                for at, data in self._bytes(stretch, size_bytes):
                    proof.take(data)
                    files.write(at, data)
                    on_written(len(data))
            starts = files.finish(self._stored.position)
        if epoch_file is not None:
            epoch_file.write_bytes(encode_epoch_file(self._stored.epochs))
        log = OffsetRange(starts[0], self._stored.position)
        return [
            RebuiltCommitLog(
                log_id=self._log_id,
                files=len(starts),
                file_size_bytes=size_bytes,
                log=log,
                zeroed=missing,
                epoch_file=epoch_file,
            )
        ]

    def _epoch_file(self, to: Path) -> Path | None:
        """Where a broker whose log is in `to` looks for its epochs; None if there are none.

        Raises ConfigurationError if that file exists.
        """
        path = to.absolute().parent / EPOCH_FILE
        if not self._stored.epochs:
            return None
        if path.exists():
            raise ConfigurationError(
                "the epochs of the log belong beside its directory, where there are others",
                log=self._log_id,
                expected=f"no file {path}",
                found="one",
                hint="Rebuild into an empty directory of its own, DIR/commitlog.",
            )
        return path

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
            yield from self._stored.rows(piece, columns)


def _without_segments(log_id: LogId) -> ConfigurationError:
    return ConfigurationError(
        f"the files of a {log_id.kind} master cannot be rebuilt",
        log=log_id,
        expected="a log of segment files, as of RocketMQ",
        found=f"one of kind {log_id.kind!r}",
        hint="The table has every byte of it, nonetheless: logtwin verify proves that.",
    )
