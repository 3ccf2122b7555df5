"""What becomes of a log becomes of its typed tables: they are what the log table has, whatever was done to it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.backfill import run_backfill
from pipeline.subjects import OneLog
from pipeline.wanted import Wanted
from sinks.position import LogTable
from sinks.typed.follower import TypedFollower
from sinks.typed.formats.reading import Reading
from sources.datasource import register
from sources.errors import ReplicaError
from sources.offsets import Offset
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


def test_with_a_key_a_log_that_went_back_is_for_a_rebuild(bench: Bench) -> None:
    follower = TypedFollower(
        bench.spark,
        str(bench.lake),
        definition(name="by_key", reading=Reading(format="text"), key=("text",), topics=("orders",)),
    )
    bring(follower)
    bench.log.rewrite_from_the_middle()
    bench.repair()
    with pytest.raises(ReplicaError, match="logtwin tables rebuild by_key"):
        bring(follower)
