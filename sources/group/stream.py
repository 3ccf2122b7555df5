"""Many logs as one stream of Spark's data source ``logtwin``: each batch says what to read of each of them.

====================  ==============================================================================================
option                meaning
====================  ==============================================================================================
``logs``              JSON: a list of objects, each with the options of one log (`sources.options.ReadOptions`), named
                      as in the configuration; all logs that the job may ever list
``topics``            the same for topics (`sources.kafka.options.ReplicatedTopicOptions`); their partitions are logs
``standing``          the file in which the job says which of them to read now (`sources.group.standing`); beside it
                      the planner says what their masters hold (`sources.group.seen`)
``triggerIntervalS``  how long a record waits for its batch at most, if no producer waits for the record
``lookDeadlineS``     how long a batch waits for a master to say what it holds; by default half a second, or the
                      interval if that is shorter
====================  ==============================================================================================

A batch is one of Spark's offsets (`sources.group.offsets`), planned from the positions that the job tells, whatever the
batch before it was. It has no rows: the job reads the offset in the query's offset log (`pipeline/job/offset_log.py`).
``latestOffset`` is a long poll: set the trigger's interval to 0, and the source decides when a batch is worth starting.

An error with a log is in the offset, too, once. The job must then take the log out of its standing, and list it anew
when it is to be tried again. Only an error that concerns all logs ends the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, field_validator
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from sources.errors import ConfigurationError, across_processes
from sources.group.lookout import Lookout
from sources.group.offsets import GroupOffset
from sources.group.seen import Teller
from sources.group.watch import GroupWatch, Pace
from sources.options import ReadOptions, parse_options
from sources.record_source import RecordSource
from sources.registry import FollowedOptions, open_master

LOOK_DEADLINE_S: Final = 0.5
SHORTEST_LOOK_DEADLINE_S: Final = 0.1
"""The shortest deadline, whatever the interval: a loaded machine that is not away may need this long to answer."""

LAST_LOOK_DEADLINE_S: Final = 60.0
"""The minimum for the looks of Trigger.AvailableNow. Hanging files have no deadline of their own."""

NO_ROWS: Final = pa.schema([pa.field("log_id", pa.string())])
"""The schema that Spark asks for."""


class GroupOptions(BaseModel):
    """Options of ``spark.readStream`` for a group of logs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    logs: tuple[ReadOptions, ...] = Field((), description="JSON: a list of the logs' options")
    topics: tuple[Mapping[str, Any], ...] = Field((), description="JSON: a list of the topics' options")
    standing: Path = Field(description="the job's file that says which logs are to be read")
    trigger_interval_s: PositiveFloat = Field(1.0, description="how long a record waits for its batch at most")
    look_deadline_s: PositiveFloat | None = Field(None, description="how long a batch waits for a master's answer")

    @field_validator("logs", mode="before")
    @classmethod
    def _each(cls, given: object) -> object:
        """Parse each log's options. Raises ConfigurationError naming the log by its number, from 0."""
        listed = _objects(given)
        return tuple(parse_options(ReadOptions, one, where=f"logs[{number}]") for number, one in enumerate(listed))

    @field_validator("topics", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return _objects(given)

    @field_validator("logs")
    @classmethod
    def _once(cls, given: tuple[ReadOptions, ...]) -> tuple[ReadOptions, ...]:
        if len({one.id for one in given}) < len(given):
            raise ValueError("each log once")
        return given

    @property
    def pace(self) -> Pace:
        shortest = max(self.trigger_interval_s, SHORTEST_LOOK_DEADLINE_S)
        connecting_s = [one.connect_timeout_ms * (one.connect_attempts + 1) / 1000 for one in self.logs]
        return Pace(
            interval_s=self.trigger_interval_s,
            look_deadline_s=self.look_deadline_s or min(LOOK_DEADLINE_S, shortest),
            last_look_deadline_s=max(LAST_LOOK_DEADLINE_S, 2 * max(connecting_s, default=0)),
        )

    @property
    def lookouts(self) -> tuple[Lookout, ...]:
        """The lookouts of all masters. Raises ConfigurationError; connects to nothing."""
        given: list[FollowedOptions] = [*self.logs]
        if self.topics:
            # Imported here, so that readers of other logs need not: it takes 0.2 s in each of Spark's processes.
            from sources.kafka.options import ReplicatedTopicOptions

            given += [
                parse_options(ReplicatedTopicOptions, one, where=f"topics[{number}]")
                for number, one in enumerate(self.topics)
            ]
        if not given:
            raise ConfigurationError("there is nothing to read", expected="logs or topics", found="neither")
        return tuple(Lookout(open_master(one), one.starting_offset) for one in given)


def _objects(given: object) -> list[dict[str, Any]]:
    listed = json.loads(given) if isinstance(given, str) else given
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("a JSON list of objects")
    return listed


def logs_options(given: Sequence[BaseModel]) -> dict[str, str]:
    """Return the options ``logs`` and ``topics`` for what a job replicates."""
    logs = [one for one in given if isinstance(one, ReadOptions)]
    topics = [one for one in given if not isinstance(one, ReadOptions)]
    found = {"logs": _as_option(logs), "topics": _as_option(topics)}
    return {name: option for name, option in found.items() if option != "[]"}


def _as_option(given: Sequence[BaseModel]) -> str:
    return json.dumps([{name: _as_json(value) for name, value in one if value is not None} for one in given])


def _as_json(value: object) -> object:
    return value if isinstance(value, bool | int | float) else str(value)


def group_source(given: Mapping[str, str]) -> RecordSource:
    """Make the source from the options of the data source. Raises ConfigurationError."""
    options = parse_options(GroupOptions, given, where='format("logtwin")', camel=True)
    return RecordSource(NO_ROWS, _no_batches, partial(GroupReader, options.lookouts, options))


def _no_batches() -> DataSourceReader:
    raise ConfigurationError(
        "a group of logs is a stream", expected="spark.readStream", found="spark.read", hint="Read one log by id."
    )


class GroupReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of ``spark.readStream``. Offsets are those of `GroupOffset.to_json`. Picklable until its first use."""

    def __init__(self, lookouts: Sequence[Lookout], options: GroupOptions) -> None:
        self._lookouts = lookouts
        self._options = options
        self._watch: GroupWatch | None = None
        self._teller: Teller | None = None

    def initialOffset(self) -> dict[str, Any]:
        return GroupOffset(0).to_json()

    @across_processes()
    def prepareForTriggerAvailableNow(self) -> None:
        self._watching().prepare_to_end()

    @across_processes()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next batch; `start` itself, so that Spark begins none, if none is worth it for about an interval.

        `limit` is ignored: the job says in its standing how many bytes a batch takes.
        """
        number = GroupOffset.from_json(start).number
        batch = self._watching().next()
        return start if batch is None else GroupOffset(number + 1, batch.batches, batch.errors).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one empty partition: given none, Spark makes up a partition of its own."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())

    def _watching(self) -> GroupWatch:
        if self._watch is None:
            self._teller = Teller(self._lookouts, self._options.standing)
            self._teller.start()
            self._watch = GroupWatch(self._teller.lookouts, self._options.standing, self._options.pace)
        return self._watch

    def stop(self) -> None:
        if self._teller is not None:
            self._teller.stop()
