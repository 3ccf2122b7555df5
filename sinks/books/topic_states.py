"""The states of topics' partitions in table ``kafka_log``: each partition is a log, with a state of its own.

Older tables have one domain, ``logtwin.kafka/<cluster>/<topic>``, for all partitions of a topic. Such a table can be
read as it is. The first job that starts on one of its topics splits that topic's state, in one commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger
from sinks.delta.commits import retrying
from sinks.delta.delta_log import Version, newest
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.state.holes import HOLES_DOMAIN, Holes
from sinks.state.log_state import DOMAIN, LogState, Writer, new_id
from sinks.tables import KAFKA_LOG, LEDGER
from sinks.values.incident import Incident
from sinks.values.ledger_row import LedgerEntry, LedgerRow
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.offsets import LogId, Offset, OffsetRange, Position, partition_log, topic_and_number


def topics_held(warehouse: str) -> dict[LogId, dict[int, LogState]]:
    """The states of the partitions, by number, of every topic that a job has ever claimed. Raises ReplicaError."""
    version = newest(KAFKA_LOG.path(absolute(warehouse)))
    return {} if version is None else _topics(version)


def take_apart(spark: SparkSession, warehouse: str, topic: LogId) -> None:
    """Give each partition of `topic` a state of its own, if the table has one of an older version.

    What the older state owes to other tables is written first. If killed at any point, it can be repeated.
    Raises ReplicaError.
    """

    def refused(found: str) -> ReplicaError:
        hint = "Is a job of an older version running? Stop it."
        return ReplicaError("the topic's state cannot be split by partition", log=topic, found=found, hint=hint)

    table = KernelTable(spark, KAFKA_LOG.path(absolute(warehouse)))
    for attempt in retrying(refused):
        with attempt:
            snapshot = table.snapshot()
            text = None if snapshot is None else snapshot.domain(f"{DOMAIN}{topic}")
            if snapshot is not None and text is not None:
                whole = _Whole.from_json(topic, text)
                whole.settle(spark, absolute(warehouse))
                whole.take_apart(table, snapshot)


def _topics(version: Version) -> dict[LogId, dict[int, LogState]]:
    found: dict[LogId, dict[int, LogState]] = {}
    domains = version.domains()
    for name, text in domains.items():
        if not name.startswith(f"{DOMAIN}kafka/"):
            continue
        log_id = LogId.parse(name.removeprefix(DOMAIN))
        try:
            found.setdefault(log_id.master, {}).update(_states(log_id, domains))
        except (KeyError, TypeError, ValueError) as error:
            raise ReplicaError(
                f"the domain metadata {name} cannot be read",
                log=log_id,
                expected="what this version writes",
                found=text,
            ) from error
    return dict(sorted(found.items()))


def _states(log_id: LogId, domains: Mapping[str, str]) -> dict[int, LogState]:
    if log_id.has_partitions:
        return _Whole.from_json(log_id, domains[f"{DOMAIN}{log_id}"]).states()
    state = LogState.of_domains(log_id, domains.get)
    return {} if state is None else {topic_and_number(log_id)[1]: state}


@dataclass(frozen=True, slots=True)
class _Whole:
    """A topic's state in one piece: JSON with topic_id, commits, writer, ledger and incidents by partition, and
    partitions, each with epoch, offset, leader_epoch, first, holes."""

    topic: LogId
    values: Mapping[str, Any]

    @classmethod
    def from_json(cls, topic: LogId, text: str) -> _Whole:
        return cls(topic, json.loads(text))

    def states(self) -> dict[int, LogState]:
        """The state of each partition. Raises KeyError, TypeError or ValueError for what no version wrote."""
        return {int(number): self._state(one) for number, one in self.values["partitions"].items()}

    def settle(self, spark: SparkSession, warehouse: str) -> None:
        """Write what the topic's newest commit owes to other tables, unless it is there."""
        partitions = self.values["partitions"]
        rows = [
            LedgerEntry(partition_log(self.topic, number), partitions[str(number)]["epoch"], LedgerRow.from_dict(row))
            for number, row in self.values["ledger"]
        ]
        Ledger(spark, LEDGER.path(warehouse)).append_topic(self.topic, self.values["commits"], rows)
        for number, one in self.values["incidents"]:
            incidents = IncidentsTable(spark, warehouse, partition_log(self.topic, number))
            incidents.record(partitions[str(number)]["epoch"], [Incident.from_dict(one)])

    def take_apart(self, table: KernelTable, on: Snapshot) -> None:
        """Commit the partitions' states. Raises KernelConflict."""
        domains: dict[str, str | None] = {f"{DOMAIN}{self.topic}": None}
        transactions: dict[str, int] = {}
        for number, state in self.states().items():
            log_id, offset = partition_log(self.topic, number), state.offset or Offset(0)
            domains |= state.domains(log_id, None)
            domains[f"{HOLES_DOMAIN}{log_id}"] = self._holes(number, state).as_json()
            transactions[Position(log_id, state.epoch, offset).app_id] = offset
        table.commit(on, transactions=transactions, domains=domains)

    def _state(self, one: Mapping[str, Any]) -> LogState:
        return LogState(
            writer=Writer(**self.values["writer"]),
            commit=new_id(),
            epoch=one["epoch"],
            offset=Offset(one["offset"]),
            first=Offset(one["first"]),
            identity=self.values["topic_id"],
            mark=one["leader_epoch"],
        )

    def _holes(self, number: int, state: LogState) -> Holes:
        passed = [OffsetRange(*hole) for hole in self.values["partitions"][str(number)]["holes"]]
        return Holes.before(state.first or Offset(0)).with_lost(passed)
