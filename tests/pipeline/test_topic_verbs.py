"""What the verbs say of a topic that is replicated, while none of its brokers can be reached."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.incidents import Action, Incident
from sinks.kafka.bookkeeping import TopicBookkeeping
from sinks.kafka.position import TopicTable
from sinks.kafka.state import Of, TopicState
from sinks.kernel import KernelTable
from sinks.ledger import LedgerRow
from sinks.log_state import Writer
from sinks.tables import KAFKA_LOG
from sinks.warehouse import ensure_table, ensure_tables
from sources.loss import Condition
from sources.master_topic import PartitionPosition
from sources.offsets import LogId, Offset
from tests.pipeline.operator_at_work import Operator

pytestmark = pytest.mark.spark

ORDERS = LogId.parse("kafka/east/orders")
LOST = Incident(
    condition=Condition.BELOW_MINIMUM,
    start=Offset(60),
    end=Offset(90),
    cause="retention was faster",
    action=Action.SKIPPED,
    detected_at=1,
)
PATTERN = 'cluster = "east"\npattern = "ord.*"'


def row(start: int, end: int, records: int) -> LedgerRow:
    return LedgerRow(
        start=Offset(start),
        end=Offset(end),
        records=records,
        bytes=100 * records,
        checksum="sha256:00",
        first_store_timestamp=1_709_208_000_000_000,
        last_store_timestamp=1_709_208_001_000_000,
        committed_at=1_709_208_002_000_000,
    )


class Topic:
    """A topic in table kafka_log, without its records."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        path = KAFKA_LOG.path(str(lake))
        ensure_tables(spark, str(lake))
        ensure_table(KernelTable(spark, path), KAFKA_LOG)
        self._table = TopicTable(spark, path, ORDERS)
        self._books = TopicBookkeeping(spark, str(lake), ORDERS)
        self.state = self._table.claim(Writer.of_this_process())

    def goes_to(self, state: TopicState, *, settled: bool = True) -> None:
        self._table.commit(self._table.read(), state)
        self.state = state
        if settled:
            self._books.settle(state)

    def reads(self, *rows: Of[LedgerRow], settled: bool = True) -> None:
        ends = {of.partition: PartitionPosition(of.one.end, 3) for of in rows}
        self.goes_to(self.state.moved_to(ends, rows), settled=settled)


@pytest.fixture
def operator(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    """Partition 0 began at 20, lost [60, 90), and is at 150; 1 is at 40, which a killed job owes to the ledger."""
    operator = Operator(tmp_path, capsys)
    operator.job.write_text(f'warehouse = "{operator.lake}"\n[[topics]]\n{PATTERN}\nservers = "127.0.0.1:1"\n')
    topic = Topic(spark, operator.lake)
    topic.goes_to(topic.state.begun(uuid.UUID(int=7), {0: Offset(20), 1: Offset(0)}))
    topic.reads(Of(0, row(20, 60, 33)))
    topic.goes_to(topic.state.without(0, LOST))
    topic.reads(Of(0, row(90, 150, 60)))
    topic.reads(Of(1, row(0, 40, 40)), settled=False)
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


def test_other_topics_of_the_warehouse_are_not_the_configurations(operator: Operator) -> None:
    operator.job.write_text(operator.job.read_text().replace("ord.*", "payments"))
    assert json.loads(operator.must("coverage", "--json").out) == {"logs": []}
    assert json.loads(operator.must("incidents list", "--json").out) == {"incidents": []}


def test_status_says_what_the_table_knows_and_why_no_broker_was_asked(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    said = operator.must("status", "--json")
    (one,) = json.loads(said.out)["logs"]
    assert (one["id"], one["position"], one["running"]) == ("kafka/east/orders", 190, False)
    assert [(each["partition"], each["position"]) for each in one["partitions"]] == [(0, 150), (1, 40)]
    assert "127.0.0.1:1" in one["master_error"]
    assert "which topics there are is not known" in caplog.text


def test_a_report_has_a_line_a_partition(operator: Operator, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    operator.must("report", "--output", str(page))
    assert "kafka/east/orders/0" in page.read_text()
    assert "30 offsets" in page.read_text()
    assert "kafka/east/orders/1" in page.read_text()


def test_maintain_serves_topics_but_deletes_nothing_of_them(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    said = operator.must("maintain", "--json", "--keep-days", "1")
    steps = {(one["table"], one["step"], one["log"]) for one in json.loads(said.out)["steps"]}
    assert {("kafka_log", step, None) for step in ("checkpoint", "vacuum", "log")} <= steps
    assert {(table, "merge", "kafka/east/orders") for table in ("kafka_log", "ledger")} <= steps
    assert "retain" not in {step for _, step, _ in steps}
    assert "not deleted yet" in caplog.text
    assert json.loads(operator.must("coverage", "--json").out)["logs"][0]["position"] == 150


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("verify", ()),
        ("repair", ()),
        ("backfill", ("--log", "kafka/east/orders")),
        ("rebuild", ("--log", "kafka/east/orders", "--to", "x")),
    ],
)
def test_other_verbs_say_that_they_do_not_serve_topics(
    verb: str, arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(tmp_path, capsys)
    operator.job.write_text(f'[[topics]]\n{PATTERN}\nservers = "127.0.0.1:1"\n')
    said = operator.does(verb, *arguments)
    assert (said.code, f"logtwin {verb} does not serve Kafka topics yet" in said.err) == (2, True)
