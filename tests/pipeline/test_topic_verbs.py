"""What the verbs say of a topic that is replicated, while none of its brokers can be reached."""

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinks.books.bookkeeping import Bookkeeping
from sinks.delta.kernel import KernelTable
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.state.log_table import LogTable
from sinks.state.positions import Move, Positions
from sinks.tables import KAFKA_LOG
from sinks.values.incident import Incident
from sinks.values.ledger_row import LedgerRow
from sinks.warehouse import ensure_tables
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange, partition_log
from tests.pipeline.operator_at_work import Operator
from tests.sinks.accounts import incident, ledger_row

pytestmark = pytest.mark.spark

ORDERS = LogId.parse("kafka/east/orders")
LOST = incident(60, 90, Condition.BELOW_MINIMUM)
STORED_US = 1_709_208_000_000_000
PATTERN = 'cluster = "east"\npattern = "ord.*"'


def row(start: int, end: int, records: int) -> LedgerRow:
    times: dict[str, Any] = {"first_store_timestamp": STORED_US, "last_store_timestamp": STORED_US + 1_000_000}
    return ledger_row(start, end, records=records, bytes=100 * records, committed_at=STORED_US + 2_000_000, **times)


class Topic:
    """A topic in table kafka_log, without its records: partitions 0 and 1."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        path = KAFKA_LOG.path(str(lake))
        ensure_tables(spark, str(lake), KAFKA_LOG)
        self._logs = [LogTable(spark, path, partition_log(ORDERS, number)) for number in (0, 1)]
        self._positions = Positions(KernelTable(spark, path))
        self._books = Bookkeeping(spark, str(lake))
        logs = [one.log_id for one in self._logs]
        self.states = dict(self._positions.claim(self._positions.newest(), logs, this_writer()).states)

    def begins(self, *starts: int) -> None:
        for number, start in enumerate(starts):
            to = self._state(number).moved_to(Offset(start), first=Offset(start), ledger=())
            self._goes_to(number, replace(to, identity=str(uuid.UUID(int=7))))

    def reads(self, number: int, row: LedgerRow, *, settled: bool = True) -> None:
        self._goes_to(number, self._state(number).moved_to(row.end, first=row.start, ledger=[row], mark=3), settled)

    def loses(self, number: int, incident: Incident) -> None:
        to = self._state(number).moved_to(incident.end, first=incident.start, ledger=(), incidents=[incident])
        self._goes_to(number, to, lost=[incident.range])

    def _state(self, number: int) -> LogState:
        return self.states[self._logs[number].log_id]

    def _goes_to(self, number: int, to: LogState, settled: bool = True, lost: Sequence[OffsetRange] = ()) -> None:
        log = self._logs[number]
        self._positions.commit(self._positions.newest(), [Move(log.log_id, self._state(number), to, lost=lost)])
        self.states = {**self.states, log.log_id: to}
        if settled:
            self._books.settle({log.log_id: to})


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partition 0 began at 20, lost [60, 90), and is at 150; 1 is at 40, which a killed job owes to the ledger."""
    lake = tmp_path_factory.mktemp("topic") / "lake"
    topic = Topic(spark, lake)
    topic.begins(20, 0)
    topic.reads(0, row(20, 60, 33))
    topic.loses(0, LOST)
    topic.reads(0, row(90, 150, 60))
    topic.reads(1, row(0, 40, 40), settled=False)
    return lake


@pytest.fixture
def operator(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    operator = Operator(tmp_path, capsys)
    shutil.copytree(lake, operator.lake)
    operator.job.write_text(f'warehouse = "{operator.lake}"\n[[topics]]\n{PATTERN}\nservers = "127.0.0.1:1"\n')
    return operator


def test_coverage_and_incidents_are_by_partition(operator: Operator) -> None:
    first, second = json.loads(operator.must("coverage", "--json").out)["logs"]
    assert (first["log"], first["position"], first["problem"]) == ("kafka/east/orders/0", 150, None)
    assert [(one["start"], one["end"]) for one in first["whole"]] == [(20, 60), (90, 150)]
    assert [(one["start"], one["end"], one["reason"], one["condition"]) for one in first["missing"]] == [
        (0, 20, "before the beginning", None),
        (60, 90, "incident", "below_minimum"),
    ]
    assert (second["log"], second["position"], second["problem"]) == ("kafka/east/orders/1", 40, None)
    assert [(one["start"], one["end"]) for one in second["whole"]] == [(0, 40)]

    (listed,) = json.loads(operator.must("incidents list", "--json").out)["incidents"]
    assert (listed["log"], listed["start"], listed["end"], listed["bytes"]) == ("kafka/east/orders/0", 60, 90, None)
    said = " ".join(operator.must("incidents explain", listed["id"]).out.split())
    assert "[60, 90), 30 offsets" in said
    assert "missing [60, 90)" in said
    operator.must("incidents close", listed["id"], "--note", "a test", "--log", "kafka/east/orders")
    assert json.loads(operator.must("incidents list", "--json").out) == {"incidents": []}


def test_status_without_brokers_says_what_the_table_knows(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    said = operator.must("status", "--json")
    (one,) = json.loads(said.out)["logs"]
    assert (one["id"], one["position"], one["running"]) == ("kafka/east/orders", 190, False)
    assert [(each["partition"], each["position"]) for each in one["partitions"]] == [(0, 150), (1, 40)]
    assert "127.0.0.1:1" in one["master_error"]
    assert "cannot list kafka/east/ord" in caplog.text
