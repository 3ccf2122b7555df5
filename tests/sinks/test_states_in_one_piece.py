"""A warehouse of the time when a log's state was one text is opened and goes on: nothing doubled, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.batch.result import BatchResult
from sinks.books.topic_states import topics_held
from sinks.delta.kernel import KernelTable
from sinks.tables import KAFKA_LOG, LOG
from tests.sinks.batches import rows
from tests.sinks.groups import Members, Tables, named, sound
from tests.sinks.memory_master import Damaged
from tests.sinks.memory_partition import ORDERS, TOPIC_ID, partitions
from tests.sinks.one_log import OneLog
from tests.sinks.topic_batches import Twin
from tests.spans import span
from tests.truth import FIXTURES, unpack

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500
MASTERS = sound("a", sizes=SIZES) | {"b": Damaged(SIZES, log_id=named("b"), bad=(100,))}
PARTITIONS = partitions(tuple(range(40)), tuple(range(40)), tuple(range(0, 40, 2)), end=40)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    unpack(FIXTURES / "states-in-one-piece" / "lake.tar.gz", tmp_path)
    return tmp_path / "lake"


def test_logs_go_on_and_their_states_are_taken_apart(plain: SparkSession, lake: Path) -> None:
    table = KernelTable(plain, LOG.path(str(lake)))
    assert '"writer"' in str(table.existing().domain("logtwin.rocketmq/a"))
    members, tables = Members(plain, lake, MASTERS), Tables(plain, lake)
    assert members.positions() == {"a": 405, "b": 405}
    members.bring(500)
    assert (members.errors, members.promises) == ({}, {"a": [500], "b": [500]})
    on = table.existing()
    for name, master in MASTERS.items():
        assert '"writer"' not in str(on.domain(f"logtwin.rocketmq/{name}"))
        assert on.domain(f"logtwin.standing.rocketmq/{name}") == '{"first":0}'
        tables.assert_one_copy(master, 500, but=[100] if name == "b" else [])
    found = [(row["log_id"], row["start"], row["end"]) for row in rows(lake / "incidents", "log_id")]
    assert found == [(f"{ORDERS}/1", 12, 20), ("rocketmq/b", 100, 400)]
    assert [row["offset"] for row in rows(lake / "quarantine", "offset")] == [100, 250]  # a record in two pieces


def test_a_topic_goes_on(plain: SparkSession, lake: Path) -> None:
    before = {number: (state.offset, state.first) for number, state in topics_held(str(lake))[ORDERS].items()}
    assert before == dict.fromkeys(PARTITIONS, (30, 5))
    twin = Twin(plain, lake, PARTITIONS).opened()
    assert {twin.state(number).identity for number in PARTITIONS} == {TOPIC_ID}
    done = twin.takes(dict.fromkeys(PARTITIONS, (30, 40)))
    assert all(isinstance(one, BatchResult) for one in done.values()), done
    assert twin.offsets == dict.fromkeys(PARTITIONS, 40)
    assert twin.rows() == {
        0: list(range(5, 40)), 1: [*range(5, 12), *range(20, 40)], 2: list(range(6, 40, 2)),
    }  # fmt: skip
    found = rows(lake / "ledger", "log_id", "start")
    spans = {
        number: [(row["start"], row["end"]) for row in found if row["log_id"] == f"{ORDERS}/{number}"]
        for number in PARTITIONS
    }
    assert spans == {
        0: [(5, 10), (10, 30), (30, 40)], 1: [(5, 12), (20, 30), (30, 40)], 2: [(5, 8), (8, 30), (30, 40)],
    }  # fmt: skip
    held = OneLog(plain, KAFKA_LOG.path(str(lake)), PARTITIONS[1].log_id).read()
    assert held.holes.ranges == (span(0, 5), span(12, 20))
