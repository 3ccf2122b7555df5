"""What becomes of a log becomes of its typed tables: they are what the log table has, whatever was done to it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.typed_tables import TypedTableConfig
from pipeline.inspect.selection import OneLog
from pipeline.job.typed_tables import TypedTables
from pipeline.operate.backfill import run_backfill
from pipeline.operate.hole_filter import Wanted
from sinks.state.position import LogTable
from sinks.typed.formats.reading import Reading
from sinks.typed.rebuild import TypedRebuild, rebuild
from sinks.typed.step.follower import TypedFollower
from sinks.typed.table import TypedTable
from sources.datasource import register
from sources.errors import ReplicaError
from sources.offsets import Offset
from sources.options import parse_options
from tests.pipeline.repair_bench import TEST, Bench
from tests.pipeline.typed.world import bring, definition

pytestmark = pytest.mark.spark


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    register(spark)
    bench = Bench(spark, tmp_path)
    bench.log.append(random.Random(1), 80, body)
    bench.replicate()
    return bench


def body(number: int) -> bytes:
    """An object, or now and then no text at all."""
    return b"\xff\xfe" if number % 7 == 3 else json.dumps({"id": number, "note": "x" * (number * 37 % 400)}).encode()


def followers(bench: Bench) -> list[TypedFollower]:
    how = ({"name": "notes", "reading": Reading(format="text")}, {"name": "objects"})
    return [TypedFollower(bench.spark, str(bench.lake), definition(**one)) for one in how]


def assert_is_the_log(bench: Bench) -> None:
    """Each message of the topic that the log table has, in its history, once; and nothing else."""
    log = {(row["offset"], row["epoch"]) for row in bench.rows("log") if row["topic"] == "orders"}
    assert log
    for name in ("notes", "objects"):
        unfit = [row for row in bench.rows("unfit") if row["table"] == name]
        rows = [row["offset"] for row in bench.rows(f"tables/{name}")]
        assert sorted([*rows, *(row["offset"] for row in unfit)]) == sorted(offset for offset, _ in log)
        assert {(row["offset"], row["epoch"]) for row in unfit} <= log


def test_a_log_that_went_back_takes_its_tables_along(bench: Bench) -> None:
    tables = followers(bench)
    for one in tables:
        bring(one)
    assert_is_the_log(bench)
    bench.log.rewrite_from_the_middle()
    bench.repair()
    bench.log.append(random.Random(4), 40, body)
    bench.replicate()
    bring(tables[0])
    bring(followers(bench)[1])
    assert_is_the_log(bench)


def test_what_retention_deletes_goes_and_what_comes_back_comes(bench: Bench) -> None:
    tables = followers(bench)
    for one in tables:
        bring(one)
    table = LogTable(bench.spark, f"{bench.lake}/log", TEST)
    table.forget(Offset(bench.log.boundaries[30]))
    for one in tables:
        bring(one)
    assert_is_the_log(bench)
    run_backfill(bench.spark, bench.config, OneLog(bench.config.logs[0]), Wanted.parse(None, None))
    for one in tables:
        bring(one)
    assert_is_the_log(bench)


BY_KEY = {"name": "by_key", "from": ["orders"], "format": "text", "mode": "upsert", "key": ["text"]}


def keyed(bench: Bench) -> TypedTables:
    table = parse_options(TypedTableConfig, BY_KEY, where="test")
    return TypedTables(bench.spark, bench.config.model_copy(update={"tables": (table,)}))


def assert_is_the_newest_of_each(bench: Bench) -> None:
    """Of what the log table has: a row for each text, the newest; and dead letters for what is no text."""
    newest: dict[str, int] = {}
    no_text = []
    for row in bench.rows("log"):
        if row["topic"] != "orders":
            continue
        try:
            newest[row["body"].decode()] = row["offset"]
        except UnicodeDecodeError:
            no_text.append(row["offset"])
    assert {row["text"]: row["offset"] for row in bench.rows("tables/by_key")} == newest
    assert [row["offset"] for row in bench.rows("unfit") if row["table"] == "by_key"] == no_text


def test_with_a_key_what_a_log_that_went_back_had_replaced_is_there_again(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path)
    bench.log.append(random.Random(1), 80, lambda at: b"\xff" if at % 9 == 4 else b"key %d" % (at % 7))
    bench.replicate()
    tables = keyed(bench)
    assert tables.bring(lambda: True) == []
    assert_is_the_newest_of_each(bench)
    before = bench.offsets("tables/by_key")
    branched_at = bench.log.rewrite_from_the_middle()
    bench.repair()
    assert tables.bring(lambda: True) == []
    assert_is_the_newest_of_each(bench)
    after = bench.offsets("tables/by_key")
    assert max(after) < branched_at
    assert {*after} - {*before}  # rows that had been replaced
    bench.replicate()
    assert tables.bring(lambda: True) == []
    assert_is_the_newest_of_each(bench)


def test_what_somebody_else_has_made_anew_meanwhile_stays(bench: Bench, tmp_path: Path) -> None:
    lake, wanted = str(bench.lake), definition(name="notes", reading=Reading(format="text"))
    bring(TypedFollower(bench.spark, lake, wanted))
    late = TypedRebuild.begun(bench.spark, lake, wanted)
    assert late is not None
    late.follower.bring_to_end()
    anew = bench.lake / "tables" / "notes.anew"
    shutil.copytree(anew, tmp_path / "kept")
    quicker = rebuild(bench.spark, lake, wanted)
    assert quicker is not None
    shutil.copytree(tmp_path / "kept", anew)
    with pytest.raises(ReplicaError, match="made anew meanwhile; expected generation 1, found 2"):
        late.exchange()
    on = TypedTable(bench.spark, lake, "notes").look()
    assert on is not None
    assert on.state == quicker
    bring(TypedFollower(bench.spark, lake, wanted))
    rows = bench.offsets("tables/notes")
    unfit = [row["offset"] for row in bench.rows("unfit")]
    assert sorted([*rows, *unfit]) == [row["offset"] for row in bench.rows("log") if row["topic"] == "orders"]
