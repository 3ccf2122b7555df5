"""``logtwin rebuild``: the files of real brokers, out of the tables; and everything that stands against it."""

import shutil
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import load
from pipeline.operate.rebuild import CommitLogRebuild, RebuiltCommitLog, opened
from sinks.books.ledger import LedgerRows
from sources.errors import ConfigurationError, Divergent, ReplicaError
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import ReadOptions
from sources.rocketmq.files.segment_files import list_segments
from tests.pipeline.edited_rows import edit_rows, make_hole
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.repair_bench import replicate_in_process
from tests.pipeline.running import job_config
from tests.truth import Fixture

pytestmark = pytest.mark.spark

MIB = 1024 * 1024
LOG_ID = LogId("rocketmq", "test")
OPTIONS = ReadOptions(id="rocketmq/test", path="/gone/with/the/master")


def files_of(fixture: Fixture) -> dict[str, bytes]:
    """The broker's files that hold data; the one allocated ahead of its use is no part of the log."""
    segments = [one for one in list_segments(fixture.commitlog_path) if one.start < fixture.max_offset]
    return {one.path.name: one.path.read_bytes() for one in segments}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def rebuild(spark: SparkSession, warehouse: Path, to: Path, *, zero_holes: bool = False) -> RebuiltCommitLog:
    (made,) = CommitLogRebuild(spark, str(warehouse), OPTIONS).write(to, None, zero_holes=zero_holes)
    return made


def replicate(spark: SparkSession, fixture: Fixture, warehouse: Path) -> None:
    replicate_in_process(spark, job_config(warehouse, path=str(fixture.commitlog_path), split_bytes=250_000))


@pytest.fixture(scope="module")
def replica_550(spark: SparkSession, fixture_550: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("replica-550")
    replicate(spark, fixture_550, warehouse)
    return warehouse


@pytest.fixture
def lake(replica_550: Path, tmp_path: Path) -> Path:
    return shutil.copytree(replica_550, tmp_path / "lake")


@pytest.mark.parametrize("fixture_log", [pytest.param("4.9.7", marks=pytest.mark.nightly), "5.5.0"], indirect=True)
def test_the_files_of_a_broker_are_rebuilt_byte_for_byte(
    spark: SparkSession, fixture_log: Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replicate(spark, fixture_log, tmp_path / "lake")
    operator, arguments = Operator(tmp_path, capsys), ("--log", "rocketmq/test", "--to", str(tmp_path / "commitlog"))
    operator.configure(path=tmp_path / "gone")
    said = operator.must("rebuild", *arguments).out
    assert contents(tmp_path / "commitlog") == files_of(fixture_log)
    assert f"{len(files_of(fixture_log))} files of 1,048,576 bytes" in said
    assert f"the log from 0 to {fixture_log.max_offset:,}" in said
    assert operator.does("rebuild", *arguments).code == 2  # what is there now is not overwritten


def test_a_changed_row_stops_it_and_names_the_offset(
    spark: SparkSession, fixture_550: Fixture, tmp_path: Path, lake: Path
) -> None:
    offset = Offset(fixture_550.rows[len(fixture_550.rows) // 2]["physical_offset"])
    edit_rows(lake / "log", {offset: lambda row: [{**row, "queue_id": row["queue_id"] + 1}]})
    with pytest.raises(Divergent, match="do not give the bytes") as caught:
        rebuild(spark, lake, tmp_path / "commitlog")
    (row,) = LedgerRows(spark, str(lake), LOG_ID).overlapping(OffsetRange(offset, Offset(offset + 1)))
    assert (caught.value.log, caught.value.offset) == ("rocketmq/test", row.start)
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_holes_are_refused_or_zeros(spark: SparkSession, fixture_550: Fixture, tmp_path: Path, lake: Path) -> None:
    near = OffsetRange(Offset(MIB - 600_000), Offset(MIB + 600_000))
    hole = make_hole(spark, lake, LOG_ID, LedgerRows(spark, str(lake), LOG_ID).overlapping(near), "log")
    assert hole.start < MIB < hole.end
    with pytest.raises(ReplicaError, match="would have holes") as caught:
        rebuild(spark, lake, tmp_path / "commitlog")
    assert str(hole) in str(caught.value)
    assert not (tmp_path / "commitlog").exists()
    made = rebuild(spark, lake, tmp_path / "commitlog", zero_holes=True)
    assert made.zeroed == (hole,)
    expected = fixture_550.log[: hole.start] + bytes(hole.size) + fixture_550.log[hole.end :]
    found = b"".join(data for _, data in sorted(contents(tmp_path / "commitlog").items()))
    assert found.rstrip(b"\0") == expected.rstrip(b"\0")
    assert set(contents(tmp_path / "commitlog")) == set(files_of(fixture_550))


def test_without_a_replica_there_is_nothing_to_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing to rebuild"):
        CommitLogRebuild(spark, str(tmp_path), OPTIONS)


@pytest.mark.parametrize(
    ("log", "keys", "with_epochs", "said"),
    [
        ("rocketmq/test", '[[logs]]\npath = "/gone"', True, "rocketmq/test has no leader epochs"),
        ("kafka/c/t", '[[topics]]\nservers = "127.0.0.1:1"', False, "nothing to rebuild"),
    ],
)
def test_what_a_log_does_not_have_is_not_rebuilt(
    tmp_path: Path, log: str, keys: str, with_epochs: bool, said: str
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'warehouse = "{tmp_path}/lake"\n{keys}\nid = "{log}"\n')
    with pytest.raises(ConfigurationError, match=said):
        opened(cast(SparkSession, None), load(job), log, with_epochs=with_epochs)


def test_the_size_of_files_is_the_tables(spark: SparkSession, replica_550: Path) -> None:
    source = CommitLogRebuild(spark, str(replica_550), OPTIONS)
    assert source.file_size_bytes(None) == source.file_size_bytes(MIB) == MIB
    with pytest.raises(ConfigurationError, match="expected 1048576 bytes, found 1000"):
        source.file_size_bytes(1000)
