"""``logtwin sql -e`` as a process of its own, answered by a server. It could not start Spark: it finds no Java."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from pipeline.config import configuration
from pipeline.report.finding import queries
from pipeline.sql.output import Format
from pipeline.sql.reader import Reader, run_text
from pipeline.sql.serve import server as server_module
from pipeline.sql.serve.client import server_for
from pipeline.sql.serve.server import SQLServer, listening, reserved
from sinks.tables import LOG, LOG_SCHEMA, TABLES
from sources.errors import LogtwinError
from tests.pipeline.sql.small_replica import TEXTS, small_replica
from tests.pipeline.sql.test_reader import ENDLESS
from tests.sinks.views.made_logs import message

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[3]
TOPICS = next(spec for spec in TABLES if spec.name == "topics")
QUERY = "SELECT offset, topic, body FROM log ORDER BY offset"
LONG = "SELECT id, repeat('x', 1000) AS text FROM range(0, 200000, 1, 50)"


@dataclass(frozen=True)
class Client:
    """Call it with the arguments of ``logtwin sql``, or of another `verb`: its exit code, and what it says."""

    job: Path
    environment: dict[str, str]
    folder: Path = PROJECT
    verb: str = "sql"

    def start(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pipeline", self.verb, "--config", str(self.job), *map(str, arguments)]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def __call__(self, *arguments: str | Path) -> tuple[int, bytes, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err.decode()


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("served")
    job = small_replica(folder)
    with pytest.MonkeyPatch.context() as here:
        here.setenv("XDG_RUNTIME_DIR", str(folder))
        here.chdir(PROJECT)
        with serving(spark, job):
            yield Client(job, os.environ | {"JAVA_HOME": "/nowhere", "PYTHONPATH": str(PROJECT), "COLUMNS": "200"})


@contextmanager
def serving(spark: SparkSession, job: Path) -> Iterator[None]:
    """A server in a thread, until it is asked to stop."""
    with reserved(job) as path, listening(path) as listener:
        server = SQLServer(spark, configuration.load(job).warehouse, listener)
        thread = threading.Thread(target=server.run)
        thread.start()
        yield
        server.request_stop()
        thread.join(60)
        assert not thread.is_alive()


def alone(served: Client, text: str, form: Format) -> bytes:
    """What is answered without a server."""
    sink = io.BytesIO()
    run_text(Reader.opened(configuration.load(served.job), None, text), text, form, sink, None)
    return sink.getvalue()


def test_the_same_bytes_as_without_a_server(served: Client) -> None:
    text = f"{QUERY}; SELECT 1 AS n, ';' AS end"
    assert served("-e", text, "--format", "table") == (0, alone(served, text, "table"), "")


def reporter(served: Client, folder: Path) -> Client:
    """Of the same replica, with a log that has not begun."""
    job = folder / "job.toml"
    job.write_text(served.job.read_text() + '[[logs]]\nid = "rocketmq/not-begun"\npath = "/nowhere"\n')
    return replace(served, job=job, verb="report")


def test_a_report_is_made_there_too(served: Client, tmp_path: Path) -> None:
    reporting, file = reporter(served, tmp_path), tmp_path / "report.html"
    assert reporting("--output", file) == (0, f"{file}\n".encode(), "")
    page = file.read_text(encoding="utf-8")
    assert message(0)["log_id"] in page
    assert "rocketmq/not-begun" in page


def test_a_note_comes_apart_from_the_answer(served: Client) -> None:
    code, out, err = served("-e", "SELECT id FROM range(2000)")
    assert (code, len(out.splitlines())) == (0, 1002)
    assert err == "the first 1,000 rows of more: --format csv, json and parquet write all\n"


@pytest.mark.parametrize("text", ["SELECT 1;\nDROP TABLE log", "SELECT 1 / (offset - offset) FROM log"])
def test_the_same_error_as_without_a_server(served: Client, tmp_path: Path, text: str) -> None:
    with pytest.raises(LogtwinError) as expected:
        alone(served, text, "csv")
    file = tmp_path / "result.csv"
    code, out, err = served("-e", text, "--format", "csv", "--output", file)
    assert (code, out) == (expected.value.exit_code, b"")
    assert err.endswith(f" ERROR    {type(expected.value).__name__}: {expected.value}\n")
    assert not file.exists()


def test_settings_and_views_of_a_client_are_its_own(served: Client) -> None:
    mine = "SET spark.sql.ansi.enabled = false; CREATE TEMPORARY VIEW log AS SELECT 7 AS mine; SELECT * FROM log"
    assert "cannot create" in served("-e", mine)[2].lower()
    mine = mine.replace("TEMPORARY", "OR REPLACE TEMPORARY")
    assert served("-e", mine, "--format", "csv")[:2] == (0, b"mine\n7\n")
    theirs = served("-e", "SELECT count(*) AS n FROM log; SELECT 1 / (offset - offset) FROM log", "--format", "csv")
    assert (theirs[0], theirs[1]) == (2, f"n\n{len(TEXTS)}\n\n(1 / (offset - offset))\n".encode())


def test_a_question_sees_the_newest_commit_and_tables_that_are_new(served: Client) -> None:
    lake = f"{served.job.parent}/lake"
    question = ("-e", "SELECT max(offset) AS last, (SELECT count(*) FROM topics) AS topics FROM log", "--format", "csv")
    assert served(*question)[1] == f"last,topics\n{(len(TEXTS) - 1) * 100},0\n".encode()
    row = message(1000, body=b"later", queue_offset=10)
    write_deltalake(LOG.path(lake), pa.Table.from_pylist([row], LOG_SCHEMA), mode="append")
    write_deltalake(TOPICS.path(lake), pa.Table.from_pylist([{"log_id": "a"}], TOPICS.schema))
    assert served(*question)[1] == b"last,topics\n1000,1\n"


@pytest.mark.nightly
def test_a_table_that_was_made_anew_is_read_anew(served: Client, spark: SparkSession) -> None:
    path = Path(TOPICS.path(f"{served.job.parent}/lake"))
    query = ("-e", "SELECT log_id FROM topics", "--format", "csv")
    for name in ("a", "b"):
        if path.exists():
            path.rename(path.with_name(f"topics.before.{name}"))
        write_deltalake(str(path), pa.Table.from_pylist([{"log_id": name}], TOPICS.schema))
        assert served(*query)[1] == f"log_id\n{name}\n".encode()


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("sql", signal.SIGKILL),
        pytest.param("sql", signal.SIGINT, marks=pytest.mark.nightly),
        pytest.param("report", signal.SIGINT, marks=pytest.mark.nightly),
        pytest.param("report", signal.SIGKILL, marks=pytest.mark.nightly),
    ],
)
def test_a_client_that_goes_away_ends_what_ran_for_it(
    served: Client, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, number: int
) -> None:
    monkeypatch.setattr(queries, "TOPICS", ENDLESS)
    jobs, pause, file = spark.sparkContext.statusTracker(), threading.Event(), tmp_path / "report.html"
    client = served if verb == "sql" else reporter(served, tmp_path)
    with client.start(*(("-e", ENDLESS) if verb == "sql" else ("--output", file))) as process:
        while not jobs.getActiveJobsIds():
            assert process.poll() is None
            pause.wait(0.05)
        process.send_signal(number)
        process.wait(10)
    while jobs.getActiveJobsIds():
        pause.wait(0.05)
    assert not file.exists()
    assert served("-e", "SELECT 1 AS n", "--format", "csv")[:2] == (0, b"n\n1\n")


def test_a_closed_pipe_is_no_error_and_ends_what_ran(served: Client, spark: SparkSession) -> None:
    jobs, pause = spark.sparkContext.statusTracker(), threading.Event()
    with served.start("-e", LONG, "--format", "csv") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"id,text\n", b"0," + b"x" * 1000 + b"\n"]
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
    while jobs.getActiveJobsIds():
        pause.wait(0.05)


def test_a_client_of_another_version_says_so_and_takes_its_own_session(
    spark: SparkSession, served: Client, monkeypatch: pytest.MonkeyPatch, runtime: Path
) -> None:
    monkeypatch.setattr(server_module, "own_version", lambda: "9.9")
    with serving(spark, served.job):
        code, _, err = replace(served, environment=served.environment | {"XDG_RUNTIME_DIR": str(runtime)})(
            "-e", "SELECT 1"
        )
    assert "is logtwin 9.9, this is" in err
    assert (code, "Java" in err) == (2, True)


@pytest.mark.parametrize(
    ("text", "here", "elsewhere"),
    [
        ("SELECT 1", True, True),
        ("SELECT * FROM parquet.`/data/x`", True, True),
        ("SELECT * FROM parquet.`x`", True, False),
        ("CREATE TEMPORARY VIEW x USING csv OPTIONS (path 'x')", True, False),
        ("SELECT * FROM a JOIN b USING (id)", True, True),
        ("CREATE GLOBAL TEMPORARY VIEW x AS SELECT 1", False, False),
        ("SELECT * FROM Global_Temp.x", False, False),
    ],
)
def test_what_a_server_would_answer_differently_it_is_not_asked(
    served: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, here: bool, elsewhere: bool
) -> None:
    asked = []
    for folder in (PROJECT, tmp_path):
        monkeypatch.chdir(folder)
        server = server_for(served.job.read_text(), text, "csv")
        asked.append(server is not None)
        if server is not None:
            server.close()
    assert asked == [here, elsewhere]
