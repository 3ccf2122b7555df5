"""``logtwin sql`` and ``logtwin tables``, as scripts and people call them."""

import io
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.cli import query
from pipeline.sql.reader import Reader
from pipeline.system.console import err as console
from sinks.tables import LEDGER, TABLES
from sinks.views.definition import VIEWS, view
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import Said, run
from tests.pipeline.sql.small_replica import TEXTS, small_replica

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def job(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_replica(tmp_path_factory.mktemp("sql"))


@pytest.fixture
def opened(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb takes a reader that is open; opening takes seconds, and other tests do it."""
    monkeypatch.setattr(Reader, "opened", lambda config, past, text: reader)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    return partial(run, capsys)


@pytest.mark.usefixtures("opened")
def test_a_statement(said: Callable[..., Said], job: Path) -> None:
    query = "SELECT offset, CAST(body AS STRING) AS text FROM log WHERE offset < 200 ORDER BY offset"
    assert said("sql", "--config", job, "-e", query) == (
        0,
        'offset  text\n──────  ───────────────\n     0  first\n   100  {"order": 4711}\n',
        "",
    )


@pytest.mark.usefixtures("opened")
def test_who_waits_for_spark_is_offered_a_server(
    said: Callable[..., Said], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_SLOW_S", 0)
    assert "--serve" not in said("sql", "--config", job, "-e", "SELECT 1")[2]  # a script does not read it
    monkeypatch.setattr(console, "_force_terminal", True)
    assert "logtwin sql --serve" in said("sql", "--config", job, "-e", "SELECT 1")[2]


@pytest.mark.usefixtures("opened")
def test_statements_from_a_file_and_from_standard_input(
    said: Callable[..., Said], job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "queries.sql"
    file.write_text("SELECT 1 AS n;\nSELECT ';' AS end")
    assert said("sql", "--config", job, "-f", file, "--format", "csv")[:2] == (0, "n\n1\n\nend\n;\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS n FROM log;"))
    assert said("sql", "--config", job, "--format", "json")[:2] == (0, f'{{"n":{len(TEXTS)}}}\n')


def test_where_there_is_no_replica_it_says_so(said: Callable[..., Said], tmp_path: Path) -> None:
    code, _, err = said("sql", "--config", job_toml(tmp_path, warehouse=tmp_path / "empty"), "-e", "SELECT 1")
    assert code == 5
    assert f"no replica in {tmp_path}/empty" in err
    code, _, err = said("sql", "--config", tmp_path / "none.toml", "-e", "SELECT 1")
    assert (code, "cannot read the configuration" in err) == (2, True)


def test_files_that_are_gone_are_the_replicas(said: Callable[..., Said], tmp_path: Path) -> None:
    job = small_replica(tmp_path)
    for path in (tmp_path / "lake" / "log").glob("*.parquet"):
        path.unlink()
    code, _, err = said("sql", "--config", job, "-e", "SELECT max(size) FROM log")
    assert code == 5
    assert "the tables cannot be read" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-e", "SELECT 1", "-f", "x.sql"), "either statements or a file"),
        (("-f", "/no/such.sql"), "/no/such.sql"),
        (("-e", "SELECT 1", "--format", "xml"), "xml"),
        (("-e", "SELECT 1", "--output", "/no/such/folder/x"), "/no/such/folder/x"),
        (("-e", "SELECT 1", "--as-of-offset", "1"), "--log"),
        (("-e", "SELECT 1", "--log", "rocketmq/test"), "--as-of-offset"),
        (("-e", "SELECT 1", "--log", "test", "--as-of-offset", "1"), "is no log id"),
        (("-e", "SELECT 1", "--log", "rocketmq/test", "--as-of-time", "noon"), "ISO 8601"),
        (("-e", "SELECT 1", "--as-of-offset", "1", "--as-of-time", "2024-02-29T12:00:00Z"), "one of them"),
    ],
)
@pytest.mark.usefixtures("opened")
def test_options_that_make_no_sense(
    said: Callable[..., Said], job: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = said("sql", "--config", job, *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.replace("│", " ").split())


@pytest.mark.nightly
def test_the_past_of_a_log(said: Callable[..., Said], replicated: Path, tmp_path: Path) -> None:
    """As of the end of its second commit it has what the first two brought, by the ledger."""
    job = job_toml(tmp_path, warehouse=replicated / "lake")
    ranges = DeltaTable(f"{replicated}/lake/ledger").to_pyarrow_table().sort_by("start").to_pylist()
    assert len(ranges) > 2
    end, records = ranges[1]["end"], sum(row["records"] for row in ranges[:2])
    query = "SELECT count(*) AS records, max(offset + size) AS end FROM log"
    past = ("--log", "rocketmq/test", "--as-of-offset", str(end))
    code, out, err = said("sql", "--config", job, "-e", query, "--format", "json", *past)
    assert (code, json.loads(out)) == (0, {"records": records, "end": end})
    assert f"rocketmq/test as of offset {end}: version" in err
    code, _, err = said("sql", "--config", job, "-e", query, *past[:3], str(10**9))
    assert (code, "has not come that far" in err) == (5, True)


def test_tables_lists_what_there_is(said: Callable[..., Said]) -> None:
    code, out, _ = said("tables", "all")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    for name, comment in [*((name, view(name).comment) for name in VIEWS), *((t.name, t.comment) for t in TABLES)]:
        assert lines[name].split(maxsplit=1)[1] == comment
    listed = json.loads(said("tables", "all", "--json")[1])["tables"]
    assert [one["name"] for one in listed] == [*VIEWS, *(spec.name for spec in TABLES)]
    assert {one["columns"] for one in listed} == {None}


def test_tables_describes_one(said: Callable[..., Said]) -> None:
    (ledger,) = json.loads(said("tables", "show", "ledger", "--json")[1])["tables"]
    assert (ledger["kind"], ledger["columns"][2]["name"], ledger["columns"][2]["type"]) == ("table", "start", "bigint")
    (messages,) = json.loads(said("tables", "show", "messages", "--json")[1])["tables"]
    assert {one["name"]: one["comment"] for one in messages["columns"]} == view("messages").columns
    types = {one["name"]: one["type"] for one in messages["columns"]}
    assert (types["offset"], types["body"], types["json"]) == ("bigint", "binary", "variant")
    code, out, _ = said("tables", "show", "ledger")
    assert code == 0
    assert out.splitlines()[0] == f"ledger: {LEDGER.comment}"
    assert out.splitlines()[1].split()[:2] == ["log_id", "string"]


def test_tables_knows_what_was_meant(said: Callable[..., Said]) -> None:
    code, _, err = said("tables", "show", "mesages")
    assert (code, "Did you mean messages" in err) == (2, True)
