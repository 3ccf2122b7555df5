"""``logtwin report``, as an operator types it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pipeline.cli import report
from pipeline.config.configuration import Config
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import RunFile, RunState
from pipeline.spark import session
from sinks.books.ledger import Ledger
from sinks.books.ledger_row import LedgerRow
from sinks.state.log_state import Writer
from sinks.storage.place import LOCAL
from sinks.tables import LEDGER, LOG, LOG_SCHEMA
from sinks.warehouse import ensure_tables
from sources.offsets import LogId, Offset, Position
from tests.pipeline.operator_at_work import Operator
from tests.sinks.views.made_logs import message

pytestmark = pytest.mark.spark


@pytest.fixture
def operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    operator = Operator(tmp_path, capsys)
    operator.configure(path=str(tmp_path))
    return operator


def test_it_writes_a_page_and_says_where(spark: SparkSession, operator: Operator, tmp_path: Path) -> None:
    ensure_tables(spark, str(operator.lake))
    file = tmp_path / "now.html"
    assert operator.must("report", "--output", str(file)).out == f"{file}\n"
    text = file.read_text(encoding="utf-8")
    assert "Nothing is replicated yet." in text
    assert "rocketmq/test" in text
    assert str(operator.lake) in text


def test_it_says_at_once_where_it_cannot_write(operator: Operator, tmp_path: Path) -> None:
    said = operator.does("report", "--output", str(tmp_path / "nowhere" / "report.html"))
    assert (said.code, "cannot be written" in said.err) == (2, True)


def test_without_a_replica_it_says_what_makes_one(operator: Operator, tmp_path: Path) -> None:
    said = operator.does("report", "--output", str(tmp_path / "report.html"))
    assert (said.code, "no replica in" in said.err) == (5, True)
    assert not (tmp_path / "report.html").exists()


def test_a_replica_whose_job_stopped_long_ago_is_not_said_to_be_complete(
    spark: SparkSession, operator: Operator, tmp_path: Path
) -> None:
    ensure_tables(spark, str(operator.lake))
    log_id = LogId("rocketmq", "test")
    stopped = datetime.now(UTC) - timedelta(hours=3)
    at_us = round(stopped.timestamp()) * 1_000_000
    row = LedgerRow(
        start=Offset(0),
        end=Offset(9),
        records=1,
        bytes=9,
        checksum="sha256:00",
        first_store_timestamp=at_us,
        last_store_timestamp=at_us,
        committed_at=at_us,
    )
    Ledger(spark, LEDGER.path(str(operator.lake))).append(Position(log_id, 0, Offset(9)), [row])
    RunFile(str(operator.lake), str(log_id)).write(
        RunState(
            writer=Writer(run="run", host="host", pid=1, since="2026-01-01T00:00:00+00:00"),
            process_space="another",
            updated_at=stopped,
            phase=Phase.STOPPED,
            facts={},
        )
    )
    file = tmp_path / "now.html"
    operator.must("report", "--output", str(file))
    text = file.read_text(encoding="utf-8")
    said = r'<p class="summary stale">The log may have gone on: nobody replicates it since .*, 3 h before this report'
    assert re.search(said, text)
    assert "The log is complete." not in text


@pytest.mark.parametrize(("little", "is_brief"), [(1 << 30, True), (0, False)])
def test_a_session_for_little_data_compiles_once(
    spark: SparkSession, operator: Operator, monkeypatch: pytest.MonkeyPatch, little: int, is_brief: bool
) -> None:
    asked: list[bool] = []

    def session_for(_: Config, *, archived: bool, is_brief: bool) -> SparkSession:
        asked.append(is_brief and archived)
        return spark

    monkeypatch.setattr(session, "session_for", session_for)
    monkeypatch.setattr(report, "_LITTLE_BYTES", little)
    write_deltalake(LOG.path(str(operator.lake)), pa.Table.from_pylist([message(0)], LOG_SCHEMA))
    operator.must("report", "--output", str(operator.lake / "report.html"))
    assert asked == [is_brief]
    launched = session._launch({}, LOCAL, archived=True, is_brief=is_brief)["spark.driver.extraJavaOptions"]
    assert (session.COMPILE_ONCE in launched) == is_brief
