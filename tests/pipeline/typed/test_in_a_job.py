"""A job with typed tables, as people run it: beside its logs, by its verbs, of RocketMQ and of Kafka."""

import json
import re
import shutil
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipeline.cli import app as cli
from pipeline.config.configuration import CatalogConfig, MaintainConfig, load, parse
from pipeline.job.catalog import Catalogued
from pipeline.job.replicate import Job
from pipeline.operate.maintain import Maintenance
from pipeline.operate.typed_tables import checked
from sinks.delta.data_file import DataFile
from sinks.typed.table import TypedTable, typed_specs
from sinks.views.registration import register as register_tables
from sources.errors import LogtwinError
from tests.patience import wait_until
from tests.pipeline.group_in_process import give_to_verbs
from tests.pipeline.job_toml import job_toml
from tests.pipeline.running import job_config, replicate_now
from tests.pipeline.typed.world import InFiles, Served, World, fields

TABLES = """
[[tables]]
name = "orders"
from = ["orders"]
mode = "upsert"
key = ["id"]
deletes = { op = ["d"] }

[[tables]]
name = "strict"
from = ["orders"]
on_bad = "stop"
"""


class Verbs:
    """``logtwin tables``, or another verb, in this process's session; what it says, and its exit code."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, verb: str, *arguments: str, of: tuple[str, ...] = ("tables",)) -> tuple[int, str]:
        result = CliRunner().invoke(cli.app, [*of, verb, *arguments, "--config", str(self._file)])
        if isinstance(result.exception, LogtwinError):
            return result.exception.exit_code, f"{result.stdout}{result.exception}"
        return result.exit_code, result.stdout


def written(world: World, folder: Path, tables: str = TABLES) -> Path:
    """A configuration file."""
    file = job_toml(folder, world.options, warehouse=world.lake, trigger_interval_s=0.1)
    file.write_text(file.read_text() + tables)
    return file


@pytest.mark.spark
def test_beside_its_log_and_by_its_verbs(
    served: Served, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(served, tmp_path)
    give_to_verbs(spark, monkeypatch)
    says = Verbs(file)
    not_yet = "  not created yet: a job makes it\n"
    assert says("list") == (0, f"orders: upsert, from orders\n{not_yet}strict: append, from orders\n{not_yet}")
    assert re.search(r"^  orders +typed table, upsert, from orders$", says("all")[1], re.M)
    assert "the typed table orders is not there yet" in says("show", "orders")[1]
    served.send({"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": "a", "n": 2}, {"id": "d", "n": 4})
    replicate_now(spark, load(file))
    assert living(served) == [{"id": "b", "n": 1}, {"id": "a", "n": 2}, {"id": "d", "n": 4}]
    served.send(b"broken", {"id": "c", "n": 1.5}, {"id": "d", "op": "d"})
    with pytest.raises(LogtwinError, match="typed table strict"):
        replicate_now(spark, load(file))
    assert living(served) == [{"id": "b", "n": 1.0}, {"id": "a", "n": 2.0}, {"id": "c", "n": 1.5}]
    code, text = says("list", "--json")
    orders, strict = json.loads(text)["tables"]
    assert (code, orders["rows"], orders["deleted"], orders["unfit_values"], strict["rows"]) == (0, 3, 1, 1, 4)
    assert [one["behind"] for one in orders["logs"]] == [0]
    assert strict["logs"][0]["behind"] > 0
    log = DeltaTable(f"{served.lake}/log").to_pyarrow_table(columns=["store_timestamp"])
    newest: datetime = max(log["store_timestamp"].to_pylist())
    (whole,) = orders["logs"]
    assert (whole["complete_to"], whole["position"]) == (served.master.end, served.master.end)
    assert datetime.fromisoformat(whole["complete_through"]) == newest
    assert json.loads(says("coverage", "--json", of=())[1])["tables"] == [orders, strict]
    assert f"up to date, complete through {newest:%Y-%m-%d %H:%M:%S} UTC" in says("coverage", of=())[1]
    columns = [(one["name"], one["type"]) for one in orders["columns"]]
    assert columns == [("_deleted", "boolean"), ("id", "string"), ("n", "double")]
    shown = says("show", "orders")[1]
    assert re.search(r"^  stored_at +timestamp +when the master stored it", shown, re.M)
    assert re.search(r"^  n +double +", shown, re.M)
    assert json.loads(says("status", "--json", of=())[1])["tables"] == [orders, strict]
    assert "strict: append, from orders" in says("status", of=())[1]
    rows_before = served.rows()
    assert says("retry", "orders") == (
        0,
        "orders: 1 message tried again, 1 value unfit in 1 message, 1 of these without a row now\n",
    )
    assert served.rows() == rows_before
    register_tables(spark, served.lake, views=(), tables=["orders"])
    assert spark.sql("SELECT sum(n) FROM orders").collect()[0][0] == 4.5
    assert says("rebuild", "orders") == (0, f"orders: rebuilt, generation 2; rocketmq/test at {served.master.end:,}\n")
    add_a_copy_of_its_file(TypedTable(spark, served.lake, "strict"))
    code, text = says("check")
    assert (code, "typed tables that are not what their logs make: strict" in text) == (5, True)
    counted = "3 rows (1 deleted since), 1 value unfit in 1 message, 1 of these without a row"
    assert text.splitlines()[:2] == [
        f"orders: equal, 7 messages: {counted}",
        "strict: NOT EQUAL, 4 messages: 8 rows, no value unfit, 4 repeated",
    ]
    assert f"  {counted}; 3 columns\n" in says("list")[1]
    assert says("drop", "strict", "--yes") == (0, "strict: deleted\n")
    assert says("drop", "strict", "--yes") == (0, "strict: there is none\n")


def living(world: World) -> list[dict[str, Any]]:
    return fields([{**row, "_deleted": None} for row in world.rows() if not row["_deleted"]])


def add_a_copy_of_its_file(table: TypedTable) -> None:
    view = table.look()
    assert view is not None
    (file,) = table.files(view)
    shutil.copy(f"{table.path}/{file.path}", f"{table.path}/copy.parquet")
    records = file.statistics()["numRecords"]
    copy = DataFile("copy.parquet", file.size_bytes, file.modified_ms, records, file.action["stats"])
    table.kernel.commit(view.snapshot, [copy])


@pytest.mark.spark
def test_a_definition_written_for_what_there_is(
    by_spark: InFiles, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_to_verbs(spark, monkeypatch)
    file = written(by_spark, tmp_path, "")
    says = Verbs(file)
    assert says("add", "--from", "new-orders")[1].splitlines() == [
        "[[tables]]", 'name = "new_orders"', 'from = ["new-orders"]', 'schema = "infer"',
    ]  # fmt: skip
    assert says("add", "--from", "orders", "--declare")[0] == 2
    by_spark.send({"id": "a", "amount": 1, "bad name": 1, "at": "2026-11-28T09:00:00Z", "by": "2026-11-28T09:00:00Z"})
    by_spark.send({"amount": 2.5, "offset": 7, "at": "2026-11-28 09:00:00+02:00", "by": "noon"}, [1])
    by_spark.replicate()
    code, text = says("add", "--from", "orders", "--declare", "--key", "id")
    assert code == 0
    with file.open("a") as opened:
        opened.write(f'{text}mask = {{ amount = "redact" }}\n')
    (table,) = load(file).tables
    assert table.schema_ == {
        "id": "string",
        "amount": "double",
        "at": "timestamp",
        "by": "string",
        "offset": "bigint",
    }
    assert (table.mode, table.key, table.mask) == ("upsert", ("id",), {"amount": "redact"})
    assert "# of the newest 3 messages, 1 of which is no JSON object\n" in text
    assert '# without a column, in _rest: "bad name"' in text


@pytest.mark.spark
def test_a_running_job_brings_its_tables_on_beside_one_that_fails(
    served: Served, spark: SparkSession, tmp_path: Path
) -> None:
    served.send(b"broken")
    job = Job(spark, load(written(served, tmp_path)), available_now=False)
    job.start()
    try:
        wait_until(lambda: _look(job)["strict"].error is not None, "the strict table to stop")
        for number in range(2):
            served.send({"id": str(number)})
            wait_until(partial(_has_rows, job, number + 1), "the next row")
        assert all(one.error is None for one in job.logs)
        assert _look(job)["strict"].lag_s > _look(job)["orders"].lag_s
    finally:
        job.close()
    assert [row["id"] for row in served.rows()] == ["0", "1"]


def test_the_errors_of_all_logs_and_tables_are_told(
    world: InFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run to the end raises the first one, which its caller prints; the others are in its log."""
    world.send(b"broken")
    world.replicate()
    logs = [{"id": "rocketmq/test", **world.options}, {"id": "rocketmq/away", "path": str(tmp_path / "away")}]
    tables = [{"name": name, "from": ["orders"], "on_bad": "stop"} for name in ("strict", "stricter")]
    config = parse({"warehouse": world.lake, "metadata": {"enabled": False}, "logs": logs, "tables": tables}, where="")
    with pytest.raises(LogtwinError) as raised:
        replicate_now(world.spark, config)
    told = [str(raised.value), *(one.getMessage() for one in caplog.records if one.levelname == "ERROR")]
    assert raised.value.log == "rocketmq/away"
    of_tables = [one for one in told if "a message does not fit into the typed table" in one]
    assert [one.partition(" typed table ")[2].partition(";")[0] for one in of_tables] == ["strict", "stricter"]


def _has_rows(job: Job, count: int) -> bool:
    return bool(_look(job)["orders"].rows >= count)


def _look(job: Job) -> dict[str, Any]:
    job.poll()
    return {one.table: one for one in job.tables.progress()}


UNMATCHED = """
[[tables]]
name = "orders"
from = ["test", "SELF_TEST_TOPIC", "typo-.*"]

[[tables]]
name = "tagged"
from = ["test"]
tags = ["none"]
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_topics_without_messages_are_told(
    served: Served,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log is rocketmq/test."""
    file = written(served, tmp_path, UNMATCHED)
    give_to_verbs(spark, monkeypatch)
    says = Verbs(file)
    served.send({"id": "a"}, topic="test")
    served.send({"id": "b"}, {"id": "c"}, topic="SELF_TEST_TOPIC")
    replicate_now(spark, load(file))
    assert fields(served.rows()) == [{"id": "a"}]
    told = [one.message for one in caplog.records if "so far" in one.message]
    assert len(told) == 2
    assert "SELF_TEST_TOPIC, typo-.*" in told[0]
    code, text = says("list")
    assert "no message of SELF_TEST_TOPIC, typo-.* so far" in text
    assert text.count("complete through") == 1  # of what has nothing nothing is complete
    orders, tagged = json.loads(says("list", "--json")[1])["tables"]
    assert (orders["unmatched"], tagged["unmatched"]) == (["SELF_TEST_TOPIC", "typo-.*"], ["test"])
    assert (code, tagged["logs"][0]["complete_through"]) == (0, None)
    code, text = says("check", "orders")
    assert (code, "SELF_TEST_TOPIC in orders" in text) == (2, True)
    verdict = "tagged: NO MESSAGES, 0 messages: 0 rows, no value unfit"
    assert says("check", "tagged") == (0, f"{verdict}\n  tags and where leave out all messages of test, 1 record\n")
    (found,) = checked(spark, load(file), "orders")
    assert found.as_json()["unmatched"] == [
        {"from": "SELF_TEST_TOPIC", "records": 2, "why": "left_out"},
        {"from": "typo-.*", "records": 0, "why": "not_in_logs"},
    ]


def test_the_catalog_is_asked_again_for_each_new_table(world: InFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    monkeypatch.setattr("pipeline.job.catalog.register", lambda _spark, _place, schema: registered.append(schema))
    monkeypatch.setattr(
        "pipeline.job.catalog.table_names",
        lambda spark, place: {"log", *(one.name for one in typed_specs(spark, place))},
    )
    config = job_config(world.lake, **world.options)
    catalogued = Catalogued(world.spark, config.model_copy(update={"catalog": CatalogConfig(schema_="typed_lake")}))
    assert catalogued.bring() is None
    assert registered == []  # there is no log yet
    world.send({"id": "a"})
    world.replicate()
    TypedTable(world.spark, world.lake, "strict").make(())  # as its first step does, long before it has a row
    for _ in range(2):
        assert catalogued.bring() is None
    assert registered == ["typed_lake"]
    world.follow()
    for _ in range(2):
        assert catalogued.bring() is None
    assert registered == ["typed_lake"] * 2


def test_maintain_merges_its_files(world: InFiles) -> None:
    for number in range(3):
        world.send({"id": number, f"only_{number}": 1})
        world.follow()
    before = world.rows()
    config = job_config(world.lake, **world.options)
    config = config.model_copy(update={"maintain": MaintainConfig(min_files=2)})
    steps = Maintenance(world.spark, config, dry_run=False).run()
    merged = next(one for one in steps if (one.table, one.step) == ("orders", "merge"))
    assert (merged.files_before, merged.files_after) == (3, 1)
    assert world.rows() == before
