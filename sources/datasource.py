"""The Spark data source ``logtwin``: a master log as a stream or a batch, by physical offset. Needs Spark 4.2.

An id of kind kafka names a topic, which `sources.kafka.streaming` reads; the rest of this text is about other kinds.

The source yields the records themselves, for any Spark job. With ``masters`` it is `sources.group.stream`, the source
of logtwin's own sink. That one yields only what is to be read; the sink reads the bytes in the task that writes them.

=====================  =============================================================================================
option                 meaning (besides those of `sources.options.MasterOptions`)
=====================  =============================================================================================
``startingOffset``     earliest (default), latest or an offset; used only if no checkpoint says otherwise
``endingOffset``       batch reads only: latest (default) or an offset
``maxBytesPerTrigger`` streams only: limit of a batch; also under Trigger.AvailableNow
=====================  =============================================================================================

A stream or batch of records keeps nothing durable, so it never passes for a replica. Over HA, asking for bytes promises
all bytes below them. So if producers wait for slaves (SYNC_MASTER), a stream is refused, and so is a batch that starts
above the oldest record, unless ``parallelReads`` says that nobody waits. Files, slaves and ASYNC_MASTERs give any part.

Spark keeps one streaming reader per query in a planner process of its own, and unpickles a fresh one in every task.
So a reader remembers only what it can afford to forget: the last maximum it saw.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sources.bounds import EARLIEST, LATEST, StartingOffset, check_within, resolve_offset
from sources.errors import ConfigurationError, across_processes, told_by_spark
from sources.extras import naming_extras
from sources.group.stream import group_source
from sources.master import MasterLog, SoleMaster
from sources.offsets import Offset, OffsetRange
from sources.options import ReadOptions, offset_or_name, parse_options
from sources.reading import rows_of
from sources.record_source import RecordSource
from sources.records import RECORD_SCHEMA
from sources.registry import open_log

RECORDS_SCHEMA = pa.schema([pa.field("log_id", pa.string()), *RECORD_SCHEMA])


class SourceOptions(ReadOptions):
    """Options of ``spark.read`` and ``spark.readStream``."""

    id: str = Field("rocketmq/unnamed", description="log id: names the log in rows and errors")
    ending_offset: StartingOffset = Field(LATEST, description="batch reads: where to end")
    cores: PositiveInt = Field(1, description="how many tasks can run at once: a batch is cut so that none waits")

    @field_validator("ending_offset", mode="before")
    @classmethod
    def _ending(cls, given: object) -> object:
        if given == EARLIEST:
            raise ValueError("latest, or an offset")
        return offset_or_name(given)


def register(spark: SparkSession) -> None:
    """Make ``format("logtwin")`` known to `spark`.

    If all of Spark runs on this machine and nobody has chosen a Python for its workers, they use the interpreter that
    runs this: Spark's default, the ``python3`` on the PATH, may not have logtwin.
    """
    context = SparkContext._active_spark_context
    if context is not None and (context.master or "").startswith("local"):
        is_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
        if not is_chosen:
            context.pythonExec = sys.executable
    spark.dataSource.register(LogtwinDataSource)


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """One split of a batch. For `boundary` see `MasterLog.read`."""

    owned: OffsetRange
    boundary: bool


def log_source(given: Mapping[str, str]) -> RecordSource:
    """Open the log that the options name. Raises ConfigurationError."""
    options = parse_options(SourceOptions, given, where='format("logtwin")', camel=True)
    _check_loss(options)
    log = open_log(options)
    return RecordSource(RECORDS_SCHEMA, partial(BatchReader, log, options), partial(OffsetStreamReader, log, options))


class LogtwinDataSource(DataSource):
    """The data source's entry point, which parses the options once and makes readers."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with across_processes() if _is_of_a_job(options) else told_by_spark(), naming_extras():
            self._source = _source_of(dict(options))

    @classmethod
    def name(cls) -> str:
        return "logtwin"

    def schema(self) -> StructType:
        return from_arrow_schema(self._source.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._source.batch_reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self._source.stream_reader()


def _is_of_a_job(given: Mapping[str, str]) -> bool:
    return "masters" in given


def _source_of(given: Mapping[str, str]) -> RecordSource:
    if _is_of_a_job(given):
        return group_source(given)
    if not given.get("id", "").startswith("kafka/"):
        return log_source(given)
    # Imported here, so that readers of other logs need not: it takes 0.2 s in each of Spark's processes.
    from sources.kafka.streaming import topic_source

    return topic_source(given)


class BatchReader(DataSourceReader):
    """The reader of ``spark.read``: the records of ``[startingOffset, endingOffset)``."""

    def __init__(self, log: SoleMaster, options: SourceOptions) -> None:
        self._log = log
        self._options = options

    @told_by_spark()
    def partitions(self) -> Sequence[InputPartition]:
        bounds = self._log.bounds()
        start = resolve_offset(self._options.starting_offset, bounds, self._log)
        end = resolve_offset(self._options.ending_offset, bounds, self._log)
        if end < start:
            raise ConfigurationError(
                "endingOffset lies before startingOffset", log=self._log.log_id, expected=f"{start} or more", found=end
            )
        return _split(self._log, OffsetRange(start, end), cores=self._options.cores)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(self._log, partition)


class OffsetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of ``spark.readStream``: offsets are ``{"offset": <next to read>}``."""

    def __init__(self, log: SoleMaster, options: SourceOptions) -> None:
        self._log = log
        self._options = options
        self._maximum: Offset | None = None
        self._last_wanted: Offset | None = None

    @told_by_spark()
    def initialOffset(self) -> dict[str, int]:
        self._check()
        return to_json(resolve_offset(self._options.starting_offset, self._log.bounds(), self._log))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._options.max_bytes_per_trigger)

    @told_by_spark()
    def prepareForTriggerAvailableNow(self) -> None:
        self._last_wanted = self._log.bounds().end

    @told_by_spark()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        at = from_json(start)
        bounds = self._log.bounds(self._maximum)
        check_within(OffsetRange(at, at), bounds, log=self._log.log_id)
        self._maximum = bounds.end
        end = bounds.end if self._last_wanted is None else max(at, min(bounds.end, self._last_wanted))
        return to_json(self._limited(at, end, limit))

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._maximum is None else to_json(self._maximum)

    @told_by_spark()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._check()
        return _split(self._log, OffsetRange(from_json(start), from_json(end)), cores=self._options.cores)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(self._log, partition)

    def _check(self) -> None:
        """Check the master in every batch, because a broker's role can change."""
        self._log.check(is_replica=False)

    def _limited(self, start: Offset, end: Offset, limit: ReadLimit) -> Offset:
        if isinstance(limit, ReadAllAvailable):
            return end
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes_per_trigger
        return self._log.end_of_batch(start, end, most)


def to_json(offset: Offset) -> dict[str, int]:
    """Return the offset as Spark stores it in its checkpoint. Spark compares its text, so there is one form."""
    return {"offset": int(offset)}


def from_json(stored: Mapping[str, Any]) -> Offset:
    """Return the offset that Spark has stored: the inverse of `to_json`."""
    return Offset(int(stored["offset"]))


def _split(log: MasterLog, batch: OffsetRange, *, cores: int) -> list[SplitPartition]:
    # Every cut is a record boundary, unless nobody knows the boundaries before the bytes have come (HA).
    # An empty range is a split, too: given none, Spark makes up a partition of its own.
    pieces = log.plan(batch, cores=cores) or (batch,)
    return [SplitPartition(owned, log.traits.cuts_at_records) for owned in pieces]


def _check_loss(options: SourceOptions) -> None:
    if options.on_loss == "record":
        raise ConfigurationError(
            "a stream of records cannot record losses",
            log=options.id,
            expected="onLoss fail",
            found="onLoss record",
            hint="Leave onLoss away, or replicate the log: logtwin keeps incidents and quarantine beside its records.",
        )


def _records(log: MasterLog, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, SplitPartition):
        raise TypeError(f"not a split of this source: {partition!r}")
    with told_by_spark():
        yield from rows_of(log, partition.owned, boundary=partition.boundary, schema=RECORDS_SCHEMA)
