"""Many logs as one stream of Spark's data source ``logtwin``: each batch says what to read of each of them.

====================  ==============================================================================================
option                meaning
====================  ==============================================================================================
``masters``           the file in which the job says which masters there are, and adds those that it finds later
                      (`sources.group.masters`)
``standing``          the file in which the job says which of their logs to read now (`sources.group.standing`);
                      beside it the planner says what their masters hold (`sources.group.standing`)
``triggerIntervalS``  how long a record waits for its batch at most, if no producer waits for the record
``pollDeadlineS``     how long a batch waits for a master to say what it holds; by default half a second, or the
                      interval if that is shorter
====================  ==============================================================================================

A batch is one of Spark's offsets (`sources.group.offsets`), planned from the positions that the job tells, whatever the
batch before it was. It has no rows: the job reads the offset in the query's offset log (`pipeline/job/stream.py`).
``latestOffset`` is a long poll: set the trigger's interval to 0, and the source decides when a batch is worth starting.

An error with a log is in the offset, too, once. The job must then take the log out of its standing, and list it anew
when it is to be tried again. Only an error that concerns all logs ends the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from sources.bounds import StartingOffset
from sources.errors import ConfigurationError, across_processes
from sources.group.masters import MastersFile
from sources.group.offsets import GroupOffset
from sources.group.planner import GroupPlanner, Pace
from sources.group.poller import Poller, Teller
from sources.master import Master
from sources.options import ReadOptions, parse_options
from sources.record_source import RecordSource
from sources.registry import FollowedOptions, open_master

POLL_DEADLINE_S: Final = 0.5
SHORTEST_POLL_DEADLINE_S: Final = 0.1
"""The shortest deadline, whatever the interval: a loaded machine that is not away may need this long to answer."""

FIRST_INTERVALS: Final = 10
FIRST_WITHIN_S: Final = 10.0
"""For how long the first batch is waited for, at most: many logs take a while to be listed and polled."""

LAST_POLL_DEADLINE_S: Final = 60.0
"""The minimum for the polls of Trigger.AvailableNow. Hanging files have no deadline of their own."""

NO_ROWS: Final = pa.schema([pa.field("log_id", pa.string())])
"""The schema that Spark asks for."""


class GroupOptions(BaseModel):
    """Options of ``spark.readStream`` for a group of logs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    masters: Path = Field(description="the job's file that says which masters there are")
    standing: Path = Field(description="the job's file that says which of their logs are to be read")
    trigger_interval_s: PositiveFloat = Field(1.0, description="how long a record waits for its batch at most")
    poll_deadline_s: PositiveFloat | None = Field(None, description="how long a batch waits for a master's answer")

    def pace(self, masters: Sequence[FollowedOptions]) -> Pace:
        """Return how long to wait for these masters."""
        shortest = max(self.trigger_interval_s, SHORTEST_POLL_DEADLINE_S)
        logs = [one for one in masters if isinstance(one, ReadOptions)]
        connecting_s = [one.connect_timeout_ms * (one.connect_attempts + 1) / 1000 for one in logs]
        return Pace(
            interval_s=self.trigger_interval_s,
            poll_deadline_s=self.poll_deadline_s or min(POLL_DEADLINE_S, shortest),
            last_poll_deadline_s=max(LAST_POLL_DEADLINE_S, 2 * max(connecting_s, default=0)),
        )


_Opened = tuple[Master, StartingOffset]
"""A master, and where to begin to read its logs."""


def _opened(masters: Iterable[FollowedOptions]) -> list[_Opened]:
    """Open each master. Raises ConfigurationError; connects to nothing."""
    return [(open_master(one), one.starting_offset) for one in masters]


def group_source(given: Mapping[str, str]) -> RecordSource:
    """Open the masters that the options name. Raises ConfigurationError, OSError, ValueError."""
    options = parse_options(GroupOptions, given, where='format("logtwin")', camel=True)
    file = MastersFile(options.masters)
    masters = file.added()
    if not masters:
        raise ConfigurationError("there is nothing to read", expected="a master", found="none")
    reader = partial(GroupReader, file, _opened(masters), options.pace(masters), options.standing)
    return RecordSource(NO_ROWS, _no_batches, reader)


def _no_batches() -> DataSourceReader:
    raise ConfigurationError(
        "a group of logs is a stream", expected="spark.readStream", found="spark.read", hint="Read one log by id."
    )


class GroupReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of ``spark.readStream``. Offsets are those of `GroupOffset.to_json`. Picklable until its first use."""

    def __init__(self, masters: MastersFile, first: Sequence[_Opened], pace: Pace, standing: Path) -> None:
        """`first` are those that were taken from `masters` so far."""
        self._masters = masters
        self._first = first
        self._pace = pace
        self._standing = standing
        self._planner: GroupPlanner | None = None
        self._teller: Teller | None = None

    def initialOffset(self) -> dict[str, Any]:
        return GroupOffset(0).to_json()

    @across_processes()
    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().prepare_to_end()

    @across_processes()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next batch; `start` itself, so that Spark begins none, if none is worth it for about an interval.

        A stream begins with a batch in any case, an empty one if there is no other, so that one is waited for longer.
        `limit` is ignored: the job says in its standing how many bytes a batch takes.
        """
        number = GroupOffset.from_json(start).number
        interval_s = self._pace.interval_s
        within_s = interval_s if number else max(interval_s, min(FIRST_INTERVALS * interval_s, FIRST_WITHIN_S))
        batch = self._planning().next(within_s)
        return start if batch is None else GroupOffset(number + 1, batch.batches, batch.errors).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one empty partition: given none, Spark makes up a partition of its own."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())

    def _planning(self) -> GroupPlanner:
        if self._planner is None:
            self._teller = Teller(self._standing)
            self._planner = GroupPlanner(self._pollers(self._first), self._standing, self._pace, self._added)
            self._teller.start()
        return self._planner

    def _added(self) -> list[Poller]:
        return self._pollers(_opened(self._masters.added()))

    def _pollers(self, masters: Iterable[_Opened]) -> list[Poller]:
        """Return a poller of each master; the job is told what is seen through it."""
        found = [Poller(master, starting_offset) for master, starting_offset in masters]
        if self._teller is not None:
            self._teller.add(found)
        return found

    def stop(self) -> None:
        if self._teller is not None:
            self._teller.stop()
