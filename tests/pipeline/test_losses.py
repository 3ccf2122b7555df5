"""A job whose master lost, damaged or rewrote something: what stops, what is passed, what is on record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.job.replicate import Job
from pipeline.monitoring.progress import Phase
from sinks.books.incident import Action
from sinks.books.incidents import IncidentsTable
from sinks.state.log_state import LogState
from sinks.state.position import LogTable
from sources.datasource import register
from sources.errors import AboveMaximum, BelowMinimum, ChecksumMismatch, LogtwinError, Recreated, Rewritten
from sources.offsets import LogId, Offset, OffsetRange
from tests.peers.proxy import NEVER, Cut, Proxy
from tests.pipeline.masters import embedded_master
from tests.pipeline.repair_bench import replicate_in_process
from tests.pipeline.running import job_config, replicate_now, run_until
from tests.truth import Fixture

pytestmark = pytest.mark.spark

LOG_ID = LogId.parse("rocketmq/test")
FILE_BYTES = 1024 * 1024


def incidents(spark: SparkSession, lake: Path) -> list[tuple[str, OffsetRange, Action]]:
    rows = IncidentsTable(spark, str(lake), LOG_ID).all()
    return [(row.found.condition.value, row.found.range, row.found.action) for row in rows]


def state(spark: SparkSession, lake: Path) -> LogState:
    found = LogTable(spark, f"{lake}/log", LOG_ID).read().state
    assert found is not None
    return found


def holes(spark: SparkSession, lake: Path) -> tuple[OffsetRange, ...]:
    return LogTable(spark, f"{lake}/log", LOG_ID).read().holes.ranges


def offsets(lake: Path) -> list[int]:
    return sorted(DeltaTable(f"{lake}/log").to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(Offset(start), Offset(end))


def flip(commitlog: Path, offset: int) -> None:
    with (commitlog / f"{offset // FILE_BYTES * FILE_BYTES:020d}").open("r+b") as file:
        file.seek(offset % FILE_BYTES)
        (byte,) = file.read(1)
        file.seek(offset % FILE_BYTES)
        file.write(bytes([byte ^ 0xFF]))


@pytest.fixture
def commitlog(fixture_550: Fixture, tmp_path: Path) -> Path:
    shutil.copytree(fixture_550.commitlog_path, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def replicated(spark: SparkSession, fixture_550: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of the whole log. To be copied, not changed."""
    lake = tmp_path_factory.mktemp("replicated")
    replicate_in_process(spark, job_config(lake, path=str(fixture_550.commitlog_path)))
    return lake


@pytest.fixture
def lake(replicated: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(replicated, tmp_path / "lake"))


def a_message(fixture: Fixture, after: int) -> dict[str, Any]:
    return next(row for row in fixture.rows if row["physical_offset"] > after and row.get("body_len_raw", 0) > 100)


# --- damage


def test_a_damaged_record_stops_a_log_or_is_passed_and_its_bytes_are_kept(
    spark: SparkSession, fixture_550: Fixture, commitlog: Path, tmp_path: Path
) -> None:
    """Of two the first one stops it, behind what is sound before it; told to go on, it passes both."""
    first, second = (a_message(fixture_550, after) for after in (1_500_000, 2_500_000))
    bad = [span(row["physical_offset"], row["physical_offset"] + row["size"]) for row in (first, second)]
    for where in bad:
        flip(commitlog, where.start + 90)
    options: dict[str, Any] = {"path": str(commitlog), "max_bytes_per_trigger": 1_000_000, "split_bytes": 123_457}
    with pytest.raises(ChecksumMismatch) as caught:
        replicate_in_process(spark, job_config(tmp_path / "lake", **options))
    assert caught.value.offset == bad[0].start
    assert 'on_loss = "record"' in str(caught.value.hint)
    all_of_them = [row["physical_offset"] for row in fixture_550.rows]
    assert offsets(tmp_path / "lake") == [at for at in all_of_them if at < bad[0].start]
    assert incidents(spark, tmp_path / "lake") == []
    replicate_now(spark, job_config(tmp_path / "lake", **options, on_loss="record"))
    assert offsets(tmp_path / "lake") == [at for at in all_of_them if at not in {one.start for one in bad}]
    found = incidents(spark, tmp_path / "lake")
    assert found == [("checksum_failure", where, Action.QUARANTINED) for where in bad]
    assert holes(spark, tmp_path / "lake") == tuple(bad)
    kept = DeltaTable(f"{tmp_path}/lake/quarantine").to_pyarrow_table().sort_by("offset").to_pylist()
    damaged = [bytearray(fixture_550.log[where.start : where.end]) for where in bad]
    for one in damaged:
        one[90] ^= 0xFF
    assert b"".join(row["bytes"] for row in kept) == b"".join(damaged)


# --- what retention took


@pytest.fixture
def first_file(fixture_550: Fixture, commitlog: Path, tmp_path: Path) -> Path:
    """A directory with the first file alone; the first two are no longer in `commitlog`."""
    folder = tmp_path / "first"
    folder.mkdir()
    (commitlog / f"{0:020d}").rename(folder / f"{0:020d}")
    (commitlog / f"{FILE_BYTES:020d}").unlink()
    return folder


def test_a_log_that_retention_overtook_stops_or_goes_on_at_the_masters_minimum(
    spark: SparkSession, fixture_550: Fixture, commitlog: Path, first_file: Path, tmp_path: Path
) -> None:
    replicate_in_process(spark, job_config(tmp_path / "lake", path=str(first_file)))
    before = state(spark, tmp_path / "lake")
    assert before.offset == FILE_BYTES
    with pytest.raises(BelowMinimum) as caught:
        replicate_in_process(spark, job_config(tmp_path / "lake", path=str(commitlog)))
    assert caught.value.offset == FILE_BYTES
    assert 'on_loss = "record"' in str(caught.value.hint)
    after = state(spark, tmp_path / "lake")
    assert (after.offset, after.link) == (before.offset, before.link)
    assert incidents(spark, tmp_path / "lake") == []

    config = job_config(tmp_path / "lake", path=str(commitlog), on_loss="record")
    for _ in range(2):
        replicate_in_process(spark, config)
    lost = span(FILE_BYTES, 2 * FILE_BYTES)
    assert offsets(tmp_path / "lake") == [
        row["physical_offset"] for row in fixture_550.rows if row["physical_offset"] not in lost
    ]
    assert state(spark, tmp_path / "lake").offset == fixture_550.max_offset
    assert incidents(spark, tmp_path / "lake") == [("below_minimum", lost, Action.SKIPPED)]
    assert holes(spark, tmp_path / "lake") == (lost,)


# --- another log


def cut(commitlog: Path, fixture: Fixture) -> None:
    """Without its last record."""
    start = fixture.rows[-1]["physical_offset"]
    with (commitlog / f"{start // FILE_BYTES * FILE_BYTES:020d}").open("r+b") as file:
        file.seek(start % FILE_BYTES)
        file.write(bytes(fixture.max_offset - start))


def rewrite(commitlog: Path, fixture: Fixture) -> None:
    """Its last record in the same place, with one other byte."""
    flip(commitlog, fixture.max_offset - 1)


def empty(commitlog: Path, fixture: Fixture) -> None:
    """A first file without a record."""
    for file in commitlog.iterdir():
        file.unlink()
    (commitlog / f"{0:020d}").write_bytes(bytes(FILE_BYTES))


OTHERS = [(cut, AboveMaximum, "above_maximum"), (rewrite, Rewritten, "rewritten"), (empty, Recreated, "recreated")]


@pytest.mark.parametrize(
    ("change", "error", "condition", "on_loss"), [*((*other, "record") for other in OTHERS), (*OTHERS[0], "fail")]
)
def test_a_master_that_is_another_one_is_promised_nothing(
    spark: SparkSession,
    fixture_550: Fixture,
    commitlog: Path,
    lake: Path,
    tmp_path: Path,
    change: Any,
    error: type[LogtwinError],
    condition: str,
    on_loss: str,
) -> None:
    last = fixture_550.rows[-1]["physical_offset"]
    change(commitlog, fixture_550)
    with embedded_master(tmp_path / "store", commitlog=commitlog) as master, master.watched() as acknowledged:
        config = job_config(lake, **master.options, on_loss=on_loss)
        for _ in range(2):
            with pytest.raises(error) as caught:
                replicate_now(spark, config)
    assert "logtwin repair" in str(caught.value)
    assert max(acknowledged, default=0) <= last  # the proof reads from the record that was compared
    assert state(spark, lake).offset == fixture_550.max_offset
    found = [(name, where.end, action) for name, where, action in incidents(spark, lake)]
    assert found == ([] if on_loss == "fail" else [(condition, fixture_550.max_offset, Action.REPORTED)])


def test_a_new_connection_to_another_log_ends_the_job(
    spark: SparkSession, fixture_550: Fixture, lake: Path, tmp_path: Path
) -> None:
    """Nothing is to be read and nothing to be started: only the session's connection breaks and is made anew."""
    register(spark)

    def cuts() -> Iterator[Cut]:
        yield from (NEVER, NEVER)  # the proofs of the start and of the session's first connection
        yield Cut(to_client=False, after_bytes=12)  # within the first heartbeat

    with (
        embedded_master(tmp_path / "store", commitlog=fixture_550.commitlog_path) as master,
        Proxy(master.master.ha_address.port, cuts=cuts()) as proxy,
        master.watched() as acknowledged,
    ):
        options = {**master.options, "master": f"127.0.0.1:{proxy.port}"}
        job = Job(spark, job_config(lake, **options), available_now=False)
        job.start()
        run_until(job, lambda now: fixture_550.max_offset in acknowledged)
        rewrite(tmp_path / "store" / "commitlog", fixture_550)
        ended = run_until(job, lambda now: now.phase is Phase.FAILED)
        job.close()
        assert proxy.cut_connections == 1
    assert isinstance(ended.error, Rewritten)
    assert ended.incidents == {"rewritten": 1}
    assert ended.session.connected_since is None
