"""Where topics stand: as this version writes it, and in one piece, as an older one did, which is taken apart."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinks.books import topic_states
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger import Ledger
from sinks.books.topic_states import take_apart, topics_held
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.tables import KAFKA_LOG
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError
from sources.offsets import LogId, OffsetRange
from tests.around import at_each, at_first
from tests.sinks.batches import rows
from tests.sinks.killed import Killed, killed
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, partitions
from tests.sinks.one_log import OneLog

PAYMENTS = LogId("kafka", "prod/payments")
TOPIC = partitions(tuple(range(40)), tuple(range(40)), (), end=40)

# What logtwin wrote before topics had one engine with the logs, text for text: its class TopicState of one that began
# at 5 and 0, lost [20, 30) of partition 0, and whose newest commit was of both.
ROW = (
    '{{"start":{start},"end":{end},"records":{records},"bytes":{bytes},"checksum":"sha256:x",'
    '"first_store_timestamp":1,"last_store_timestamp":2,"committed_at":3,"origin":"stream","deleted_at":null}}'
)
OLD = (
    '{"writer":{"run":"r","host":"h","pid":1,"since":"2026-11-22T00:00:00+00:00"},"commit":"c","commits":4,'
    f'"topic_id":"{TOPIC_ID}","partitions":{{'
    '"0":{"epoch":0,"offset":35,"leader_epoch":3,"first":5,"holes":[[20,30]]},'
    '"1":{"epoch":0,"offset":10,"leader_epoch":0,"first":0,"holes":[]}},'
    f'"ledger":[[0,{ROW.format(start=30, end=35, records=5, bytes=50)}],'
    f"[1,{ROW.format(start=0, end=10, records=10, bytes=100)}]],"
    '"incidents":[[0,{"condition":"below_minimum","start":20,"end":30,"cause":"gone","action":"skipped",'
    '"detected_at":7}]]}'
)
CLAIMED = '{"writer":{"run":"r","host":"h","pid":1,"since":"s"},"commit":"c","commits":0,"topic_id":null,"partitions":{},"ledger":[],"incidents":[]}'  # noqa: E501 - one line of JSON


class Lake:
    """Table kafka_log as an older version left it."""

    def __init__(self, plain: SparkSession, folder: Path) -> None:
        self.spark = plain
        self.path = str(folder)
        ensure_tables(plain, self.path, KAFKA_LOG)
        self.table = KernelTable(plain, KAFKA_LOG.path(self.path))

    def says(self, text: str, topic: LogId = ORDERS) -> None:
        commits = json.loads(text)["commits"]
        transaction = (f"logtwin/{topic}", commits) if commits else None
        self.table.commit(self.table.existing(), transaction=transaction, domains={f"logtwin.{topic}": text})

    def read(self, number: int) -> Any:
        return OneLog(self.spark, KAFKA_LOG.path(self.path), TOPIC[number].log_id).read()

    def rows(self, table: str) -> list[Any]:
        return rows(f"{self.path}/{table}", "log_id", "start")

    def version(self) -> int:
        return self.table.existing().version

    def settled(self) -> None:
        """As it is once the topic was taken apart, and everything that it owed is where it belongs."""
        assert [(row["log_id"], row["start"], row["end"], row["records"]) for row in self.rows("ledger")] == [
            (f"{ORDERS}/0", 30, 35, 5), (f"{ORDERS}/1", 0, 10, 10),
        ]  # fmt: skip
        assert [(row["log_id"], row["start"], row["end"]) for row in self.rows("incidents")] == [
            (f"{ORDERS}/0", 20, 30)
        ]
        assert self.table.existing().domain(f"logtwin.{ORDERS}") is None
        assert [facts(self.read(number).state) for number in (0, 1)] == [(0, 35, 5, 3), (0, 10, 0, 0)]
        assert {self.read(number).state.identity for number in (0, 1)} == {TOPIC_ID}
        assert self.read(0).holes.ranges == (OffsetRange(0, 5), OffsetRange(20, 30))  # type: ignore[arg-type]
        assert self.read(1).holes.ranges == ()


def facts(state: LogState) -> tuple[int, int | None, int | None, int | None]:
    return state.epoch, state.offset, state.first, state.mark


@pytest.fixture
def lake(plain: SparkSession, tmp_path: Path) -> Lake:
    return Lake(plain, tmp_path)


def held(states: Mapping[int, LogState]) -> dict[int, tuple[int, int | None, int | None, int | None]]:
    return {number: facts(state) for number, state in states.items()}


def test_a_state_in_one_piece_is_read_as_it_is_and_taken_apart_once(lake: Lake) -> None:
    lake.says(OLD)
    lake.says(CLAIMED, PAYMENTS)
    before, found = lake.version(), {topic: held(states) for topic, states in topics_held(lake.path).items()}
    assert found == {ORDERS: {0: (0, 35, 5, 3), 1: (0, 10, 0, 0)}, PAYMENTS: {}}
    take_apart(lake.spark, lake.path, ORDERS)
    assert lake.version() == before + 1
    lake.settled()
    snapshot = lake.table.existing()
    assert snapshot.transaction_version(f"logtwin/{ORDERS}/0@0") == 35
    assert snapshot.transaction_version(f"logtwin/{ORDERS}/1@0") == 10
    assert snapshot.domain(f"logtwin.{PAYMENTS}") == CLAIMED
    assert {topic: held(states) for topic, states in topics_held(lake.path).items()} == found
    take_apart(lake.spark, lake.path, ORDERS)
    assert lake.version() == before + 1
    take_apart(lake.spark, lake.path, PAYMENTS)  # nobody has begun it
    assert lake.table.existing().domain(f"logtwin.{PAYMENTS}") is None
    assert topics_held(lake.path).keys() == {ORDERS}
    lake.settled()


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Ledger, "append_topic"), (IncidentsTable, "record"), (KernelTable, "commit")],
    ids=["before the ledger", "before the incidents", "before the commit"],
)
def test_killed_in_between_it_is_done_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str
) -> None:
    lake.says(OLD)

    def is_meant(one: Any, *_: object, **__: object) -> bool:
        return owner is not KernelTable or bool(one.path == lake.table.path)  # the tables that follow have commits, too

    with monkeypatch.context() as patched:
        at_each(patched, owner, name, killed, when=is_meant)
        with pytest.raises(Killed):
            take_apart(lake.spark, lake.path, ORDERS)
    assert lake.table.existing().domain(f"logtwin.{ORDERS}") == OLD
    take_apart(lake.spark, lake.path, ORDERS)
    lake.settled()


def test_a_job_of_the_older_version_that_goes_on_meanwhile_is_seen(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit and the taking apart are built on one version: the second one looks again."""
    lake.says(OLD)
    further = json.loads(OLD)
    further["commits"] += 1
    further["partitions"]["1"]["offset"] = 25
    at_first(monkeypatch, topic_states._Whole, "take_apart", lambda: lake.says(json.dumps(further)))
    take_apart(lake.spark, lake.path, ORDERS)
    assert facts(lake.read(1).state) == (0, 25, 0, 0)
    assert facts(lake.read(0).state) == (0, 35, 5, 3)


def test_of_a_table_or_a_topic_that_is_not_there_nothing_is_known(plain: SparkSession, tmp_path: Path) -> None:
    assert topics_held(str(tmp_path)) == {}
    take_apart(plain, str(tmp_path), ORDERS)
    lake = Lake(plain, tmp_path)
    assert topics_held(lake.path) == {}
    before = lake.version()
    take_apart(plain, lake.path, ORDERS)
    assert lake.version() == before
    state = LogState.fresh(this_writer()).claimed_by(this_writer())
    OneLog(plain, KAFKA_LOG.path(lake.path), TOPIC[2].log_id).claim(state.writer)
    assert held(topics_held(lake.path)[ORDERS]) == {2: (0, None, None, None)}


@pytest.mark.parametrize("name", [f"{ORDERS}", f"{ORDERS}/0"], ids=["in one piece", "of a partition"])
def test_a_state_that_cannot_be_read_is_an_error_that_names_the_log(lake: Lake, name: str) -> None:
    lake.table.commit(lake.table.existing(), domains={f"logtwin.{name}": f'{{"of": "{uuid.UUID(int=1)}"}}'})
    with pytest.raises(ReplicaError, match="cannot be read") as caught:
        topics_held(lake.path)
    assert caught.value.log == name
