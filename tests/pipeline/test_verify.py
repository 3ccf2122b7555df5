"""``logtwin verify`` on real tables: equal is equal, and whatever differs is named, with whose bytes are wrong."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.cli.app import main
from pipeline.config.configuration import load
from pipeline.inspect.selection import OneLog
from pipeline.verify import plan
from pipeline.verify import run as verify
from pipeline.verify.queues import Why
from pipeline.verify.run import Scope, verify_log
from pipeline.verify.summary import VerifySummary
from sinks.books.incidents import IncidentsTable
from sinks.proof.verdicts import DifferenceKind, Verdict
from sources.errors import ConfigurationError, Divergent
from sources.loss import Condition
from sources.offsets import LogId
from tests.pipeline.masters import embedded_master
from tests.pipeline.running import job_config, replicate_now, rows_of
from tests.sources.rocketmq.synthetic_log import filled
from tests.truth import Fixture

pytestmark = pytest.mark.spark

LOG_ID = LogId("rocketmq", "test")
FILE_BYTES = 1 << 20
QUEUE_OFFSET_AT = 20
"""Where a record has its queue offset (specification, section 1.2)."""


def verified(spark: SparkSession, lake: Path, master: dict[str, Any], **scope: Any) -> VerifySummary:
    config = job_config(lake, **master)
    return verify_log(spark, config.warehouse, OneLog(config.logs[0]), Scope(**scope))


@pytest.fixture(scope="module")
def replicated(spark: SparkSession, fixture_497: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of the 4.9.7 log, in several ranges of the ledger and several files. To be copied, not changed."""
    lake = tmp_path_factory.mktemp("replicated")
    config = job_config(lake, path=str(fixture_497.commitlog_path), max_bytes_per_trigger=900_000, split_bytes=500_000)
    replicate_now(spark, config)
    return lake


@pytest.fixture
def lake(replicated: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(replicated, tmp_path / "lake")
    return tmp_path / "lake"


@pytest.fixture
def log(fixture_497: Fixture, tmp_path: Path) -> Path:
    """A copy of its segment files, to be damaged."""
    shutil.copytree(fixture_497.commitlog_path, tmp_path / "log")
    return tmp_path / "log"


def ranges_of(spark: SparkSession, lake: Path) -> list[tuple[int, int]]:
    rows = spark.read.format("delta").load(f"{lake}/ledger").orderBy("start").collect()
    return [(row["start"], row["end"]) for row in rows]


def open_incidents(spark: SparkSession, lake: Path) -> list[tuple[Condition, int, int]]:
    rows = IncidentsTable(spark, str(lake), LOG_ID).open()
    return [(row.found.condition, row.found.start, row.found.end) for row in rows]


def the_one(summary: VerifySummary) -> tuple[Verdict, tuple[int, int], list[tuple[int, DifferenceKind]]]:
    (found,) = summary.differences
    assert summary.differing == 1
    assert isinstance(summary.problem, Divergent)
    differences = [(int(one.offset), one.kind) for one in found.differences]
    return found.verdict, (found.claim.range.start, found.claim.range.end), differences


@pytest.mark.parametrize("fixture_log", [pytest.param("4.9.7", marks=pytest.mark.soak), "5.5.0"], indirect=True)
def test_a_replica_equals_its_master_by_path_over_ha_and_after_optimize(
    spark: SparkSession, fixture_log: Fixture, tmp_path: Path
) -> None:
    path = {"path": str(fixture_log.commitlog_path)}
    replicate_now(spark, job_config(tmp_path / "lake", **path, max_bytes_per_trigger=1_000_000, split_bytes=400_000))
    summary = verified(spark, tmp_path / "lake", path)
    assert summary.problem is None
    assert (summary.bytes, summary.position) == (fixture_log.max_offset, fixture_log.max_offset)
    assert summary.claims == len(ranges_of(spark, tmp_path / "lake"))
    assert (summary.jumps, summary.without_master_bytes, summary.holes) == ((), 0, 0)
    with embedded_master(tmp_path / "store", commitlog=fixture_log.commitlog_path) as master:
        over_ha = verified(spark, tmp_path / "lake", master.options)
    assert (over_ha.problem, over_ha.bytes) == (None, fixture_log.max_offset)
    DeltaTable.forPath(spark, f"{tmp_path}/lake/log").optimize().executeCompaction()
    optimized = verified(spark, tmp_path / "lake", path)
    assert (optimized.problem, optimized.bytes) == (None, fixture_log.max_offset)
    assert open_incidents(spark, tmp_path / "lake") == []
    assert not list((tmp_path / "lake/_verify").rglob("*.json"))


def test_a_byte_of_the_master_is_another(spark: SparkSession, fixture_497: Fixture, lake: Path, log: Path) -> None:
    record = fixture_497.rows[1000]
    at = record["physical_offset"] + record["size"] // 2
    file = log / f"{at // FILE_BYTES * FILE_BYTES:020d}"
    data = bytearray(file.read_bytes())
    data[at % FILE_BYTES] ^= 0x40
    file.write_bytes(data)
    (expected,) = [one for one in ranges_of(spark, lake) if one[0] <= at < one[1]]
    summary = verified(spark, lake, {"path": str(log)})
    assert the_one(summary) == (Verdict.REWRITTEN, expected, [(record["physical_offset"], DifferenceKind.CHANGED)])
    assert open_incidents(spark, lake) == [(Condition.REWRITTEN, *expected)]
    assert str(record["physical_offset"]) in str(summary.problem)
    verified(spark, lake, {"path": str(log)})
    assert len(open_incidents(spark, lake)) == 1  # found again, it is the same


def next_in_queue(fixture: Fixture, offset: int) -> int:
    """The record that follows the one at `offset` in its queue, of which it is not the first."""
    queue = next((row["topic"], row["queue_id"]) for row in fixture.rows if row["physical_offset"] == offset)
    alike = [row["physical_offset"] for row in fixture.rows if (row.get("topic"), row.get("queue_id")) == queue]
    assert alike.index(offset) > 0
    found: int = alike[alike.index(offset) + 1]
    return found


def test_rows_of_the_replica_are_changed(spark: SparkSession, fixture_497: Fixture, lake: Path) -> None:
    """Each in a range of its own: a field, a body of another length, a row that is gone, one that is there twice."""
    ranges = ranges_of(spark, lake)[:4]
    changed, resized, gone, doubled = (
        next(row["physical_offset"] for row in fixture_497.rows if row["physical_offset"] > start)
        for start, _ in ranges
    )
    table = DeltaTable.forPath(spark, f"{lake}/log")
    table.update(F.col("offset") == changed, {"queue_id": F.col("queue_id") + 100})
    table.update(F.col("offset") == resized, {"body": F.lit(b"of another length")})
    table.delete(F.col("offset") == gone)
    table.toDF().where(F.col("offset") == doubled).write.format("delta").mode("append").save(f"{lake}/log")
    summary = verified(spark, lake, {"path": str(fixture_497.commitlog_path)})
    assert {one.verdict for one in summary.differences} == {Verdict.REPLICA_DAMAGED}
    assert [(one.claim.range.start, one.claim.range.end) for one in summary.differences] == ranges
    assert [[(one.offset, one.kind) for one in found.differences] for found in summary.differences] == [
        [(changed, DifferenceKind.CHANGED)],
        [(resized, DifferenceKind.CHANGED)],
        [(gone, DifferenceKind.MISSING)],
        [(doubled, DifferenceKind.TWICE)],
    ]
    assert open_incidents(spark, lake) == [(Condition.REPLICA_DAMAGED, *one) for one in ranges]
    assert summary.jumps is not None
    expected = {(doubled, Why.REPEATED), (next_in_queue(fixture_497, gone), Why.MISSING)}
    assert {(jump.at, jump.why) for jump in summary.jumps} >= expected


@pytest.mark.parametrize("first", [0.25, 0.001])
def test_bytes_of_a_data_file_are_others(spark: SparkSession, fixture_497: Fixture, lake: Path, first: float) -> None:
    """Bodies; or also the columns by which the queues are proven."""
    file = sorted((lake / "log").glob("*.parquet"))[2]
    data = bytearray(file.read_bytes())
    start, end = int(len(data) * first), len(data) // 2
    data[start:end] = bytes(end - start)
    file.write_bytes(data)
    (expected,) = [one for one in ranges_of(spark, lake) if f"{one[0]:020d}" in file.name]
    summary = verified(spark, lake, {"path": str(fixture_497.commitlog_path)})
    verdict, claimed, _ = the_one(summary)
    assert (verdict, claimed) == (Verdict.UNREADABLE, expected)
    assert file.name in str(summary.problem)
    assert open_incidents(spark, lake) == [(Condition.REPLICA_DAMAGED, *expected)]


def test_the_ledger_is_wrong(spark: SparkSession, fixture_497: Fixture, lake: Path) -> None:
    expected = ranges_of(spark, lake)[1]
    checksum = {"checksum": F.lit("sha256:" + "0" * 64)}
    DeltaTable.forPath(spark, f"{lake}/ledger").update(F.col("start") == expected[0], checksum)
    summary = verified(spark, lake, {"path": str(fixture_497.commitlog_path)})
    assert the_one(summary) == (Verdict.LEDGER_WRONG, expected, [])


def test_what_the_master_no_longer_holds_is_held_against_the_ledger(
    spark: SparkSession, fixture_497: Fixture, lake: Path, log: Path
) -> None:
    (log / f"{0:020d}").unlink()
    summary = verified(spark, lake, {"path": str(log)})
    gone = [end - start for start, end in ranges_of(spark, lake) if start < FILE_BYTES]
    assert (summary.problem, summary.without_master_bytes) == (None, sum(gone))
    DeltaTable.forPath(spark, f"{lake}/log").update(F.col("offset") == 0, {"flag": F.lit(77)})
    assert the_one(verified(spark, lake, {"path": str(log)}))[:2] == (
        Verdict.REPLICA_DAMAGED,
        ranges_of(spark, lake)[0],
    )


def test_a_master_that_ends_before_the_replica(
    spark: SparkSession, fixture_497: Fixture, lake: Path, log: Path
) -> None:
    last = max(log.iterdir())
    last.unlink()
    end = int(last.name)
    summary = verified(spark, lake, {"path": str(log)})
    lacking = [one for one in ranges_of(spark, lake) if one[1] > end]
    assert [one.verdict for one in summary.differences] == [Verdict.MASTER_LACKS] * len(lacking)
    assert open_incidents(spark, lake) == [(Condition.ABOVE_MAXIMUM, *one) for one in lacking]


@pytest.fixture
def small_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section for each range of the ledger, a job for every two."""
    monkeypatch.setattr(plan, "SECTION_BYTES", 1)
    monkeypatch.setattr(plan, "LARGEST_SECTION_BYTES", 1)
    monkeypatch.setattr(verify, "_SECTIONS_A_TASK", 1)


class Killed(BaseException):
    """The end of the process, as far as the code under test can tell."""


@pytest.mark.usefixtures("small_jobs")
def test_a_killed_run_goes_on(spark: SparkSession, fixture_497: Fixture, lake: Path) -> None:
    config = job_config(lake, path=str(fixture_497.commitlog_path))
    parts: list[int] = []

    def die(done_bytes: int, all_bytes: int) -> None:
        assert all_bytes == fixture_497.max_offset
        parts.append(done_bytes)
        if len(parts) == 2:
            raise Killed

    with pytest.raises(Killed):
        verify_log(spark, config.warehouse, OneLog(config.logs[0]), Scope(), die)
    assert 0 < parts[0] < parts[1] < fixture_497.max_offset
    summary = verified(spark, lake, {"path": str(fixture_497.commitlog_path)})
    assert (summary.earlier_bytes, summary.bytes) == (parts[1], fixture_497.max_offset - parts[1])
    again = verified(spark, lake, {"path": str(fixture_497.commitlog_path)})
    assert (again.earlier_bytes, again.bytes) == (0, fixture_497.max_offset)  # the finished run left nothing


@pytest.mark.usefixtures("small_jobs")
def test_what_changed_since_is_compared_again_and_restart_forgets(
    spark: SparkSession, fixture_497: Fixture, lake: Path
) -> None:
    config = job_config(lake, path=str(fixture_497.commitlog_path))

    def die(done_bytes: int, all_bytes: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        verify_log(spark, config.warehouse, OneLog(config.logs[0]), Scope(), die)
    DeltaTable.forPath(spark, f"{lake}/ledger").update(F.col("start") == 0, {"checksum": F.lit("sha256:00")})
    with pytest.raises(Killed):
        verify_log(spark, config.warehouse, OneLog(config.logs[0]), Scope(), die)
    summary = verified(spark, lake, {"path": str(fixture_497.commitlog_path)}, restart=True)
    assert summary.earlier_bytes == 0
    assert the_one(summary)[0] is Verdict.LEDGER_WRONG


@pytest.mark.usefixtures("small_jobs")
def test_a_sample_a_range_and_a_limit(spark: SparkSession, fixture_497: Fixture, lake: Path) -> None:
    path = {"path": str(fixture_497.commitlog_path)}
    summary = verified(spark, lake, path, share=0.3, seed=5)
    assert (summary.seed, summary.problem, summary.jumps) == (5, None, None)
    assert 0 < summary.bytes < fixture_497.max_offset
    assert verified(spark, lake, path, share=0.3, seed=5).bytes == summary.bytes
    ranges = ranges_of(spark, lake)
    some = verified(spark, lake, path, start=ranges[2][0] + 1, end=ranges[3][0] + 1, max_mb_per_s=1.0)
    assert (some.claims, some.bytes) == (2, ranges[3][1] - ranges[2][0])
    assert some.seconds >= (some.bytes / 2 - (ranges[3][1] - ranges[3][0])) / 500_000  # two tasks, half of it each


def test_the_command_line(
    spark: SparkSession, fixture_497: Fixture, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "logtwin.toml"
    config.write_text(f'warehouse = "{lake}"\n[[logs]]\nid = "rocketmq/test"\npath = "{fixture_497.commitlog_path}"\n')
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--config", str(config)])
    assert ended.value.code == 0
    assert "queue offsets have no gap and no repeat" in capsys.readouterr().out
    DeltaTable.forPath(spark, f"{lake}/log").update(F.col("offset") == 0, {"flag": F.lit(77)})
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--config", str(config), "--json", "--path", str(fixture_497.commitlog_path)])
    said = capsys.readouterr()
    assert ended.value.code == 5
    (told,) = json.loads(said.out)["logs"]
    assert (told["log"], told["equal"], told["differing"]) == ("rocketmq/test", False, 1)
    assert told["differences"][0]["differences"] == [{"offset": 0, "kind": "changed"}]
    assert "Divergent" in said.err
    assert "rocketmq/test at offset 0" in said.err


@pytest.fixture
def jumping(tmp_path: Path) -> Path:
    """A log whose broker has skipped two queue offsets of its queue, and then given one twice."""
    folder = tmp_path / "jumping"
    folder.mkdir()
    log = filled(folder, *[100] * 7)
    for start, queue_offset in zip(log.starts, (0, 1, 2, 5, 6, 6, 7), strict=True):
        log.write(start + QUEUE_OFFSET_AT, struct.pack(">q", queue_offset))
    return folder


def test_jumps_in_the_masters_own_log_are_incidents_to_accept_once_and_the_logs_are_equal(
    spark: SparkSession, jumping: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, config = tmp_path / "lake", tmp_path / "logtwin.toml"
    config.write_text(f'warehouse = "{lake}"\n[[logs]]\nid = "rocketmq/test"\npath = "{jumping}"\n')
    replicate_now(spark, load(config))
    starts = [row["offset"] for row in rows_of(spark, lake)]
    expected = [(Condition.QUEUE_JUMP, at, at + 1) for at in (starts[3], starts[5])]
    summary = verified(spark, lake, {"path": str(jumping)})
    assert summary.problem is None
    assert summary.jumps is not None
    assert [(jump.at, jump.why) for jump in summary.jumps] == [(starts[3], Why.MISSING), (starts[5], Why.REPEATED)]
    assert open_incidents(spark, lake) == expected
    for jump in summary.jumps:
        assert run(capsys, "incidents", "close", str(jump.incident), "--note", "known", "--config", str(config))[0] == 0
    code, said = run(capsys, "verify", "--config", str(config))
    assert (code, open_incidents(spark, lake)) == (0, [])
    assert said.splitlines()[-1] == "  equal"
    assert run(capsys, "verify", "--queues", "--from", "0", "--to", "100", "--config", str(config))[0] == 0
    assert run(capsys, "coverage", "--config", str(config))[0] == 0


def test_jumps_beside_damage_are_no_incidents_of_the_masters(
    spark: SparkSession, jumping: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    replicate_now(spark, job_config(lake, path=str(jumping)))
    starts = [row["offset"] for row in rows_of(spark, lake)]
    DeltaTable.forPath(spark, f"{lake}/log").update(F.col("offset") == starts[1], {"queue_offset": F.lit(9)})
    summary = verified(spark, lake, {"path": str(jumping)})
    assert [one.verdict for one in summary.differences] == [Verdict.REPLICA_DAMAGED]
    assert {jump.incident for jump in summary.jumps or ()} == {None}
    assert Condition.QUEUE_JUMP not in {condition for condition, _, _ in open_incidents(spark, lake)}


def test_part_of_a_log_proves_no_jump_to_be_the_masters(spark: SparkSession, jumping: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    replicate_now(spark, job_config(lake, path=str(jumping)))
    problem = verified(spark, lake, {"path": str(jumping)}, start=0, end=100, queues=True).problem
    assert isinstance(problem, Divergent)
    assert open_incidents(spark, lake) == []


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of a verb, and what it says."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0), capsys.readouterr().out


def test_nothing_to_verify(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        Scope(share=0.0)
    with pytest.raises(ConfigurationError):
        Scope(max_mb_per_s=0.0)
    with pytest.raises(ConfigurationError):
        Scope(start=10, end=10)
