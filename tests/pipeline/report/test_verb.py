"""``logtwin report``, as an operator types it."""

import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.cli import query
from pipeline.config.configuration import Config
from pipeline.config.jars import FROM_ENVIRONMENT
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import RunFile
from pipeline.spark import session
from sinks.storage.place import LOCAL
from sinks.tables import LEDGER, LOG
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.test_run_state import run_of
from tests.sinks.views.lake import write
from tests.sinks.views.made_logs import message
from tests.sinks.views.made_topics import ranges_of


@pytest.fixture
def operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    operator = Operator(tmp_path, capsys)
    operator.configure(path=str(tmp_path))
    return operator


def test_it_says_at_once_where_it_cannot_write(operator: Operator, tmp_path: Path) -> None:
    said = operator.does("report", "--output", str(tmp_path / "nowhere" / "report.html"))
    assert (said.code, "cannot be written" in said.err) == (2, True)


@pytest.mark.parametrize("arguments", [("--port", "0"), ("--serve", "--output", "report.html"), ("--serve", "--port")])
def test_it_serves_or_writes_a_file_and_says_where_it_cannot(operator: Operator, arguments: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = [str(taken.getsockname()[1])] if arguments[-1] == "--port" else []
        assert operator.does("report", *arguments, *port).code == 2


def test_without_a_replica_it_says_what_makes_one(operator: Operator, tmp_path: Path) -> None:
    said = operator.does("report", "--output", str(tmp_path / "report.html"))
    assert (said.code, "no replica in" in said.err) == (5, True)
    assert not (tmp_path / "report.html").exists()


def test_a_replica_whose_job_stopped_long_ago_is_not_said_to_be_complete(operator: Operator, tmp_path: Path) -> None:
    log_id, stopped = "rocketmq/test", datetime.now(UTC) - timedelta(hours=3)
    write(operator.lake, LOG, [])
    times = dict.fromkeys(("first_store_timestamp", "last_store_timestamp", "committed_at"), stopped)
    write(operator.lake, LEDGER, [ranges_of(log_id, (0, 9), **times)[0]])
    RunFile(str(operator.lake), "job").write(run_of(phase=Phase.STOPPED, now=stopped, log_id=log_id))
    file = tmp_path / "now.html"
    operator.must("report", "--output", str(file))
    text = file.read_text(encoding="utf-8")
    said = r'<p class="summary stale">The log may have gone on: nobody replicates it since .*, 3 h before this report'
    assert re.search(said, text)
    assert "The log is complete." not in text


@pytest.mark.spark
@pytest.mark.parametrize(("little", "is_brief"), [(1 << 30, True), pytest.param(0, False, marks=pytest.mark.nightly)])
def test_a_session_for_little_data_compiles_once(
    spark: SparkSession, operator: Operator, monkeypatch: pytest.MonkeyPatch, little: int, is_brief: bool
) -> None:
    asked: list[bool] = []

    def session_for(_: Config, *, is_brief: bool) -> SparkSession:
        asked.append(is_brief)
        return spark

    monkeypatch.setattr(session, "session_for", session_for)
    monkeypatch.setattr(query, "_LITTLE_BYTES", little)
    write(operator.lake, LOG, [message(0)])
    operator.must("report", "--output", str(operator.lake / "report.html"))
    assert asked == [is_brief]
    launched = session._launch({}, LOCAL, FROM_ENVIRONMENT, is_brief, None)["spark.driver.extraJavaOptions"]
    assert (session.COMPILE_ONCE in launched) == is_brief
