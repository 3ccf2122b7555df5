"""What a reader opens, and Ctrl-C while a statement runs."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config import configuration
from pipeline.sql.reader import Reader
from pipeline.sql.run import run_text
from sinks.tables import TABLES
from sinks.views.definition import VIEWS
from sources.errors import LogtwinError
from tests.pipeline.sql.small_replica import small_replica

pytestmark = pytest.mark.spark

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.id * b.id % 7 = 9"


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
    sink = io.BytesIO()
    try:
        run_text(reader, text, "csv", sink, None)
    except LogtwinError as error:
        return str(error)
    return sink.getvalue()
