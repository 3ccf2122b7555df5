"""Log ids that statistics of older versions, and of OPTIMIZE, cut: whose rows a file has must be known all the same.

Two logs share more than is left of their ids; what happens to one must leave the other as it is.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from tests.pipeline.cut_statistics import CHARACTERS, cut_statistics
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.repair_bench import Bench, replicate_in_process, spoil
from tests.pipeline.running import job_config

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SHARED = "rocketmq/" + "a-broker-with-a-name-of-its-own-"
LONG, SISTER = LogId.parse(SHARED + "0"), LogId.parse(SHARED + "1")
assert len(SHARED) > CHARACTERS
CUT = "cut-as-delta-does"
"""How statistics were written, or "optimized". What is made of each way: tests/sinks/test_file_statistics.py."""


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of LONG in five batches, and of SISTER, which is shorter, in one."""
    bench = Bench(spark, tmp_path_factory.mktemp("long"), LONG)
    bench.log.append(random.Random(1), 200)
    bench.replicate()
    beside(bench, SISTER)
    return bench.folder


def beside(bench: Bench, log_id: LogId) -> None:
    """A shorter log in the same tables, in one batch."""
    log = FaultyLog(bench.folder / log_id.name)
    log.append(random.Random(9), 40)
    replicate_in_process(bench.spark, job_config(bench.lake, id=str(log_id), path=str(log.path)))


def bench_of(spark: SparkSession, made: Path, folder: Path, written: str) -> Bench:
    shutil.copytree(made, folder, dirs_exist_ok=True)
    bench = Bench(spark, folder, LONG)
    if written == CUT:
        for table in ("log", "ledger"):
            assert cut_statistics(bench.lake / table, "\uffff") > 0
    if written == "optimized":
        for table in ("log", "ledger"):
            spark.sql(f"OPTIMIZE delta.`{bench.lake}/{table}`")
        (bounds,) = DeltaTable(f"{bench.lake}/log").get_add_actions(flatten=True)["min.log_id"].to_pylist()
        assert len(bounds) == CHARACTERS
    return bench


def of_the_sister(bench: Bench) -> list[Any]:
    return [bench.rows("log", SISTER), bench.rows("ledger", SISTER), bench.rows("removed", SISTER), bench.state(SISTER)]


@pytest.mark.parametrize("written", [CUT, pytest.param("optimized", marks=pytest.mark.nightly)])
def test_a_repair_takes_back_one_log_and_no_other(
    spark: SparkSession, made: Path, tmp_path: Path, written: str
) -> None:
    bench = bench_of(spark, made, tmp_path, written)
    theirs, before = of_the_sister(bench), bench.rows("log")
    common = bench.log.rewrite_from_the_middle()
    bench.repair()
    assert bench.rows("log") == [row for row in before if row["offset"] < common]
    assert bench.offsets("removed") == [row["offset"] for row in before if row["offset"] >= common]
    assert of_the_sister(bench) == theirs
    bench.replicate()
    assert bench.offsets("log") == bench.log.boundaries[:-1]


@pytest.mark.parametrize("written", [CUT, pytest.param("optimized", marks=pytest.mark.nightly)])
def test_a_damaged_file_costs_each_log_the_rows_it_had_there(
    spark: SparkSession, made: Path, tmp_path: Path, written: str
) -> None:
    """Which is all in the one file that OPTIMIZE makes, and nothing where her own can be read."""
    bench = bench_of(spark, made, tmp_path, written)
    theirs, first = of_the_sister(bench), bench.rows("ledger")[0]
    spoil(file_of(bench, 0))
    bench.found(Condition.REPLICA_DAMAGED, first["start"], first["end"])
    done = bench.repair()
    if written != "optimized":
        assert (done.taken_out, done.others) == ((OffsetRange(first["start"], first["end"]),), ())
        assert of_the_sister(bench) == theirs
        return
    (hers,) = done.others
    assert (hers.log_id, hers.ranges) == (SISTER, (OffsetRange(Offset(0), bench.state(SISTER).offset or Offset(0)),))
    assert done.taken_out == bench.holes() == (OffsetRange(Offset(0), bench.log.end),)
    assert (bench.rows("log", SISTER), bench.rows("ledger", SISTER)) == ([], [])


def file_of(bench: Bench, offset: int) -> Path:
    """The file with that record of LONG."""
    adds = DeltaTable(f"{bench.lake}/log").get_add_actions(flatten=True)
    names = ("path", "min.log_id", "min.offset", "max.offset")
    rows = zip(*(adds[name].to_pylist() for name in names), strict=True)
    folder = bench.lake / "log"
    mine = [path for path, least, first, last in rows if str(LONG).startswith(least) and first <= offset <= last]
    (path,) = [path for path in mine if str(LONG) in _ids(folder / path)]
    return folder / str(path)


def _ids(file: Path) -> set[str]:
    return set(pq.read_table(file, columns=["log_id"])["log_id"].to_pylist())
