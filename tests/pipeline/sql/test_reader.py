"""What a reader opens, statements one after the other, what is said of a wrong one, and Ctrl-C while one runs."""

import io
import os
import signal
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.config import configuration
from pipeline.sql.output import Format
from pipeline.sql.reader import Reader, run_text
from sinks.tables import TABLES
from sinks.views.definition import VIEWS
from sources.errors import LogtwinError, QueryError
from tests.pipeline.sql.small_replica import TEXTS, small_replica

pytestmark = pytest.mark.spark

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.id * b.id % 7 = 9"

SCRIPT = """
-- settings answer nothing; results do
SET spark.sql.ansi.enabled = true;
CREATE OR REPLACE TEMPORARY VIEW first AS SELECT * FROM log WHERE offset = 0;
SELECT topic FROM first;
SELECT ';' AS end
"""


@pytest.fixture(scope="module")
def job(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_replica(tmp_path_factory.mktemp("named"))


def test_control_c_stops_what_runs(reader: Reader) -> None:
    jobs = reader.spark.sparkContext.statusTracker()

    def interrupt_the_first_job() -> None:
        pause = threading.Event()
        while not jobs.getActiveJobsIds():
            pause.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    (endless,) = reader.check(ENDLESS)
    watch = threading.Thread(target=interrupt_the_first_job)
    watch.start()
    with pytest.raises(KeyboardInterrupt):
        reader.answer(endless, lambda frame: frame.collect())
    watch.join()
    assert jobs.getActiveJobsIds() == []
    (next_one,) = reader.check("SELECT 1 AS n")
    assert reader.answer(next_one, lambda frame: frame.collect()[0].n) == 1


@pytest.mark.parametrize(
    "text", ["SELECT count(*) AS n FROM LOG", "SELECT count(*) AS n FROM IDENTIFIER('ledger')", "SELECT * FROM mesages"]
)
def test_a_reader_of_what_is_named_answers_as_one_of_all(reader: Reader, job: Path, text: str) -> None:
    """Both are of the same small replica."""
    assert _answer(Reader.opened(configuration.load(job), None, text), text) == _answer(reader, text)


def test_only_what_is_named_is_opened(job: Path) -> None:
    reader = Reader.opened(configuration.load(job), None, "SELECT * FROM messages")
    there = {row.viewName for row in reader.spark.sql("SHOW VIEWS").collect()}
    assert {"messages", "records", "log"} <= there
    assert there.isdisjoint(("consumer_lag", "incidents", "kafka_log"))
    assert {*VIEWS, *(spec.name for spec in TABLES)} <= set(reader.tables())


def _answer(reader: Reader, text: str) -> bytes | str:
    try:
        return answer(reader, text)
    except LogtwinError as error:
        return str(error)


def answer(reader: Reader, text: str, form: Format = "csv", width: int | None = None) -> bytes:
    sink = io.BytesIO()
    run_text(reader, text, form, sink, width)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "topic\norders\n\nend\n;\n"),
        ("json", '{"topic":"orders"}\n{"end":";"}\n'),
        ("table", "topic\n──────\norders\n\nend\n───\n;\n"),
    ],
)
def test_results_in_the_order_of_the_statements(reader: Reader, form: Format, expected: str) -> None:
    assert answer(reader, SCRIPT, form).decode() == expected


def test_a_parquet_file_holds_one_result(reader: Reader) -> None:
    data = answer(reader, "SET spark.sql.ansi.enabled = true; SELECT body FROM log ORDER BY offset", "parquet")
    assert pq.read_table(io.BytesIO(data))["body"].to_pylist() == list(TEXTS)
    with pytest.raises(QueryError, match="holds one result"):
        answer(reader, SCRIPT, "parquet")


def test_plans_and_descriptions_are_whole(reader: Reader) -> None:
    plan = answer(reader, "EXPLAIN EXTENDED SELECT * FROM log", "table").decode()
    assert "== Physical Plan ==" in plan
    assert "…" not in plan.splitlines()[-1]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELCT 1", ["line 1: Syntax error at or near 'SELCT'", "found SELCT 1"]),
        ("SELECT 1;\nSELECT *\nFROM mesages", ["line 3: there is no table or view mesages", "Did you mean messages"]),
        ("SELECT * FROM no_such_thing_at_all", ["no table or view no_such_thing_at_all", "logtwin tables"]),
        ("SELECT topc FROM log", ["there is no column topc", "Did you mean topic?"]),
        ("SELECT m.nothing FROM log m", ["there is no column m.nothing", "Among its columns are", "DESCRIBE lists"]),
        ("SELECT no_such_function(1)", ["no_such_function"]),
        ("SELECT 1 / (offset - offset) FROM log", ["line 1: Division by zero"]),
        ("SELECT CAST(topic AS INT) FROM log", ["'orders'", "cannot be cast"]),
        ("SELECT * FROM delta.`/no/such/table`", ["/no/such/table"]),
        ("SELECT count(*) FROM messages GROUP BY json", ["line 1", "try_variant_get(json, '$.field', 'string')"]),
        (" -- nothing\n;", ["there is no statement"]),
        ("SELECT 'open", ["line 1"]),
    ],
)
def test_what_is_wrong_is_said_in_words_that_help(reader: Reader, query: str, words: list[str]) -> None:
    with pytest.raises(LogtwinError) as caught:
        answer(reader, query, "json")
    said = str(caught.value)
    assert [one for one in words if one not in said] == []
    assert caught.value.exit_code == 2
    assert "\n" not in said
    assert len(said) < 500
