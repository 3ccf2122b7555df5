"""Many logs as one stream of Spark's data source ``logtwin``: what is to be read of each of them, in one batch.

====================  ==============================================================================================
option                meaning
====================  ==============================================================================================
``logs``              JSON: a list of objects, each with the options of one log (`sources.options.ReadOptions`), by
                      the names that the configuration has for them; all that the job may ever list
``standing``          the file by which the job says which of them are to be read now (`sources.standing`)
``cores``             how many tasks can run at once: a batch is cut so that none waits
``triggerIntervalS``  how long a record waits for its batch at most, where nobody waits for the record
``lookDeadlineS``     how long a batch waits for a master to say what it holds; by default half a second, or the
                      interval where that is shorter
====================  ==============================================================================================

A batch is one offset of Spark's (`sources.group_offsets`), planned from the positions that the job says, whatever the
batch before it was; and one partition with one record batch of RANGES_SCHEMA, so that Spark runs one small task for it.
``latestOffset`` is a long poll: the trigger's interval is to be 0, the source says when a batch is worth beginning.

What goes wrong with a log is a row, too, once: then the job has to take the log out of its standing, and to list it
anew when it is to be tried again. An error that ends the stream is one of all logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from sources.errors import ConfigurationError, across_processes, of_log
from sources.group_offsets import GroupOffset
from sources.group_watch import GroupWatch, Pace
from sources.master import RANGES_SCHEMA, MasterLog, PlanFailed, Planned, PlannedSplit, as_batch
from sources.offsets import OffsetRange
from sources.options import ReadOptions, parse_options
from sources.registry import open_log

LOOK_DEADLINE_S: Final = 0.5
SHORTEST_LOOK_DEADLINE_S: Final = 0.1
"""However short the interval: a machine under load answers later than that without being away."""

LAST_LOOK_DEADLINE_S: Final = 60.0
"""At least, for the looks of Trigger.AvailableNow. Files that hang know no end of their own."""


class GroupOptions(BaseModel):
    """Options of ``spark.readStream`` for a group of logs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    logs: tuple[ReadOptions, ...] = Field(min_length=1, description="JSON: a list of the logs' options")
    standing: Path = Field(description="the job's file that says which logs are to be read")
    cores: PositiveInt = Field(1, description="how many tasks can run at once")
    trigger_interval_s: PositiveFloat = Field(1.0, description="how long a record waits for its batch at most")
    look_deadline_s: PositiveFloat | None = Field(None, description="how long a batch waits for a master's answer")

    @field_validator("logs", mode="before")
    @classmethod
    def _each(cls, given: object) -> object:
        """Raises ConfigurationError naming the log by its number, from 0."""
        listed = json.loads(given) if isinstance(given, str) else given
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise ValueError("a JSON list of objects")
        return tuple(parse_options(ReadOptions, one, where=f"logs[{number}]") for number, one in enumerate(listed))

    @field_validator("logs")
    @classmethod
    def _once(cls, given: tuple[ReadOptions, ...]) -> tuple[ReadOptions, ...]:
        if len({one.id for one in given}) < len(given):
            raise ValueError("each log once")
        return given

    @property
    def pace(self) -> Pace:
        """How long is waited for what."""
        shortest = max(self.trigger_interval_s, SHORTEST_LOOK_DEADLINE_S)
        connecting_s = max(one.connect_timeout_ms * (one.connect_attempts + 1) / 1000 for one in self.logs)
        return Pace(
            interval_s=self.trigger_interval_s,
            look_deadline_s=self.look_deadline_s or min(LOOK_DEADLINE_S, shortest),
            last_look_deadline_s=max(LAST_LOOK_DEADLINE_S, 2 * connecting_s),
        )


def logs_option(logs: Sequence[ReadOptions]) -> str:
    """`logs` as the option of that name."""
    return json.dumps([{name: _as_json(getattr(one, name)) for name in ReadOptions.model_fields} for one in logs])


def _as_json(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


@dataclass(frozen=True)
class GroupPartition(InputPartition):
    """All rows of a batch."""

    planned: tuple[Planned, ...]


class GroupSource:
    """The logs of a group and how they are asked for."""

    def __init__(self, options: GroupOptions) -> None:
        """Raises ConfigurationError."""
        self._options = options
        self._logs = {one.id: open_log(one) for one in options.logs}

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Raises ConfigurationError."""
        return cls(parse_options(GroupOptions, given, where='format("logtwin")', camel=True))

    @property
    def schema(self) -> pa.Schema:
        return RANGES_SCHEMA

    def batch_reader(self) -> DataSourceReader:
        """Raises ConfigurationError: there is none."""
        raise ConfigurationError(
            "a group of logs is a stream", expected="spark.readStream", found="spark.read", hint="Read one log by id."
        )

    def stream_reader(self) -> DataSourceStreamReader:
        return GroupReader(self._logs, self._options)


class GroupReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``: offsets are those of `GroupOffset.to_json`. Picklable until it is first asked."""

    def __init__(self, logs: Mapping[str, MasterLog], options: GroupOptions) -> None:
        self._logs = logs
        self._options = options
        self._watch: GroupWatch | None = None

    def initialOffset(self) -> dict[str, Any]:
        return GroupOffset(0).to_json()

    @across_processes()
    def prepareForTriggerAvailableNow(self) -> None:
        self._watching().prepare_to_end()

    @across_processes()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next batch; `start` itself, so that Spark begins none, where none is worth it for about an interval.

        `limit` is not heeded: the job says in its standing how many bytes a batch takes.
        """
        number = GroupOffset.from_json(start).number
        batch = self._watching().next()
        return start if batch is None else GroupOffset(number + 1, batch.batches, batch.errors).to_json()

    @across_processes()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One, also where nothing is planned: given none, Spark makes up a partition of its own."""
        return [GroupPartition(tuple(self._planned(GroupOffset.from_json(end))))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, GroupPartition):
            raise TypeError(f"not a batch of this source: {partition!r}")
        yield as_batch(partition.planned)

    def _planned(self, offset: GroupOffset) -> Iterator[Planned]:
        # A checkpoint may name a log that the configuration has no more.
        batches = {log_id: batch for log_id, batch in offset.batches.items() if log_id in self._logs}
        cores = self._cores(batches)
        for log_id, batch in batches.items():
            yield from _splits(self._logs[log_id], log_id, batch, cores[log_id])
        yield from (PlanFailed(log_id, error) for log_id, error in offset.errors.items() if log_id in self._logs)

    def _cores(self, batches: Mapping[str, OffsetRange]) -> dict[str, int]:
        """The part of the cores that each log's bytes are worth, rounded up."""
        sizes = {log_id: batch.size for log_id, batch in batches.items() if self._logs[log_id].log_id.counts_bytes}
        total, cores = sum(sizes.values()) or 1, self._options.cores
        return {log_id: max(1, -(-cores * sizes.get(log_id, 0) // total)) for log_id in batches}

    def _watching(self) -> GroupWatch:
        if self._watch is None:
            starts = {one.id: one.starting_offset for one in self._options.logs}
            logs = {log_id: (log, starts[log_id]) for log_id, log in self._logs.items()}
            self._watch = GroupWatch(logs, self._options.standing, self._options.pace)
        return self._watch


def _splits(log: MasterLog, log_id: str, batch: OffsetRange, cores: int) -> Sequence[Planned]:
    try:
        return [PlannedSplit(log_id, batch, owned) for owned in log.plan(batch, cores=cores)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this log's
        return [PlanFailed(log_id, of_log(error, log_id))]
