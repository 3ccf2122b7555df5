"""``logtwin verify`` on real tables: equal is equal, and whatever differs is named, with whose bytes are wrong."""

import json
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.inspect.selection import ConfiguredLog
from pipeline.verify import run as verify
from pipeline.verify import sections
from pipeline.verify.queues import Why
from pipeline.verify.run import Scope, verify_log
from pipeline.verify.summary import VerifySummary
from sinks.books.incidents import IncidentsTable
from sinks.proof.verdicts import DifferenceKind, Verdict
from sources.errors import ConfigurationError, Divergent
from sources.loss import Condition
from sources.offsets import LogId
from tests.pipeline.edited_rows import Row, edit_rows
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.repair_bench import replicate_in_process
from tests.pipeline.running import job_config
from tests.sinks.killed import Killed
from tests.sources.rocketmq.synthetic_log import filled
from tests.truth import Fixture

pytestmark = pytest.mark.spark

LOG_ID = LogId("rocketmq", "test")
FILE_BYTES = 1 << 20
QUEUE_OFFSET_AT = 20
"""Where a record has its queue offset (specification, section 1.2)."""

Found = tuple[Verdict, tuple[int, int], list[tuple[int, DifferenceKind]]]


def verified(spark: SparkSession, lake: Path, master: dict[str, Any], **scope: Any) -> VerifySummary:
    config = job_config(lake, **master)
    return verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope(**scope))


@pytest.fixture(scope="module")
def replica(spark: SparkSession, fixture_497: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of the 4.9.7 log, in several ranges of the ledger and several files. To be copied, not changed."""
    lake = tmp_path_factory.mktemp("replica")
    path = str(fixture_497.commitlog_path)
    replicate_in_process(spark, job_config(lake, path=path, max_bytes_per_trigger=450_000))
    return lake


@pytest.fixture
def lake(replica: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(replica, tmp_path / "lake"))


def ranges_of(lake: Path) -> list[tuple[int, int]]:
    ledger = DeltaTable(f"{lake}/ledger").to_pyarrow_table()
    return sorted(zip(ledger["start"].to_pylist(), ledger["end"].to_pylist(), strict=True))


def open_incidents(spark: SparkSession, lake: Path) -> list[tuple[Condition, int, int]]:
    rows = IncidentsTable(spark, str(lake), LOG_ID).open()
    found = [(row.found.condition, int(row.found.start), int(row.found.end)) for row in rows]
    return sorted(found, key=lambda one: one[1:])


def found(summary: VerifySummary) -> list[Found]:
    return [
        (one.verdict, (one.claim.range.start, one.claim.range.end), [(at.offset, at.kind) for at in one.differences])
        for one in summary.differences
    ]


def zero(file: Path, start: int, end: int) -> None:
    data = bytearray(file.read_bytes())
    data[start:end] = bytes(end - start)
    file.write_bytes(data)


def file_of(lake: Path, start: int) -> Path:
    """The data file whose first record starts there: its name says so."""
    (file,) = (lake / "log").glob(f"*{start:020d}*.parquet")
    return file


@dataclass(frozen=True)
class Damaged:
    """A replica and a master's files, each damaged in its own ranges of the ledger, and what one run says of them."""

    lake: Path
    path: Path
    at: list[int]  # a record in each of the first six ranges
    ranges: list[tuple[int, int]]
    summary: VerifySummary


@pytest.fixture(scope="module")
def damaged(
    spark: SparkSession, fixture_497: Fixture, replica: Path, tmp_path_factory: pytest.TempPathFactory
) -> Damaged:
    folder = tmp_path_factory.mktemp("damaged")
    lake = Path(shutil.copytree(replica, folder / "lake"))
    path = Path(shutil.copytree(fixture_497.commitlog_path, folder / "commitlog"))
    ranges = ranges_of(lake)
    rows = [next(row for row in fixture_497.rows if row["physical_offset"] > start) for start, _ in ranges]
    at = [row["physical_offset"] for row in rows]

    def other_checksum(row: Row) -> list[Row]:
        return [{**row, "checksum": "sha256:" + "0" * 64}]

    edits = {
        at[0]: lambda row: [{**row, "queue_id": row["queue_id"] + 100}],
        at[1]: lambda row: [{**row, "body": b"of another length"}],
        at[2]: lambda row: [],
        at[3]: lambda row: [row, row],
    }
    edit_rows(lake / "log", edits)
    edit_rows(lake / "ledger", {ranges[4][0]: other_checksum}, key="start")
    unreadable = file_of(lake, ranges[5][0])
    group = pq.read_metadata(unreadable).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    bodies = next(one for one in columns if one.path_in_schema == "body")
    zero(unreadable, bodies.data_page_offset, bodies.data_page_offset + 50)
    flip(path, at[6] + rows[6]["size"] // 2)
    return Damaged(lake, path, at, ranges, verified(spark, lake, {"path": str(path)}))


def flip(log: Path, at: int) -> None:
    file = log / f"{at // FILE_BYTES * FILE_BYTES:020d}"
    data = bytearray(file.read_bytes())
    data[at % FILE_BYTES] ^= 0x40
    file.write_bytes(data)


def test_each_range_that_differs_is_named_with_whose_bytes_are_wrong(spark: SparkSession, damaged: Damaged) -> None:
    """A field, a body of another length, a row that is gone, one that is there twice; a checksum of the ledger; a file
    that cannot be read; a byte of the master."""
    at, ranges = damaged.at, damaged.ranges
    *others, (unreadable, where, _), rewritten = found(damaged.summary)
    assert others == [
        (Verdict.REPLICA_DAMAGED, ranges[0], [(at[0], DifferenceKind.CHANGED)]),
        (Verdict.REPLICA_DAMAGED, ranges[1], [(at[1], DifferenceKind.CHANGED)]),
        (Verdict.REPLICA_DAMAGED, ranges[2], [(at[2], DifferenceKind.MISSING)]),
        (Verdict.REPLICA_DAMAGED, ranges[3], [(at[3], DifferenceKind.TWICE)]),
        (Verdict.LEDGER_WRONG, ranges[4], []),
    ]
    assert (unreadable, where) == (Verdict.UNREADABLE, ranges[5])
    assert rewritten == (Verdict.REWRITTEN, ranges[6], [(at[6], DifferenceKind.CHANGED)])
    assert damaged.summary.differing == 7
    assert isinstance(damaged.summary.problem, Divergent)
    assert str(at[0]) in str(damaged.summary.problem)


def test_what_differs_is_an_incident_once(
    spark: SparkSession, damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command line, found again: the incidents are those of the first run."""
    ranges = damaged.ranges
    expected = [(Condition.REPLICA_DAMAGED, *one) for one in (*ranges[:4], ranges[5])]
    before = open_incidents(spark, damaged.lake)
    assert set(before) >= {*expected, (Condition.REWRITTEN, *ranges[6])}
    operator = Operator(damaged.lake.parent, capsys)
    operator.configure(path="nowhere")
    said = operator.does("verify", "--json", "--path", str(damaged.path))
    assert said.code == 5
    (told,) = json.loads(said.out)["logs"]
    assert (told["log"], told["equal"], told["differing"]) == ("rocketmq/test", False, 7)
    assert told["differences"][0]["differences"] == [{"offset": damaged.at[0], "kind": "changed"}]
    assert "Divergent" in said.err
    assert f"rocketmq/test at offset {damaged.at[0]}" in said.err
    assert open_incidents(spark, damaged.lake) == before


@pytest.mark.nightly
def test_columns_by_which_queues_are_proven_cannot_be_read(
    spark: SparkSession, fixture_497: Fixture, lake: Path
) -> None:
    expected = ranges_of(lake)[2]
    file = file_of(lake, expected[0])
    zero(file, 100, file.stat().st_size // 2)
    summary = verified(spark, lake, {"path": str(fixture_497.commitlog_path)})
    assert [(verdict, where) for verdict, where, _ in found(summary)] == [(Verdict.UNREADABLE, expected)]
    assert file.name in str(summary.problem)
    assert open_incidents(spark, lake) == [(Condition.REPLICA_DAMAGED, *expected)]


@pytest.fixture
def small_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section for each range of the ledger, a job for every two."""
    monkeypatch.setattr(sections, "SECTION_BYTES", 1)
    monkeypatch.setattr(sections, "LARGEST_SECTION_BYTES", 1)
    monkeypatch.setattr(verify, "_SECTIONS_A_TASK", 1)


@pytest.mark.usefixtures("small_jobs")
def test_a_killed_run_goes_on(spark: SparkSession, fixture_497: Fixture, lake: Path) -> None:
    path = {"path": str(fixture_497.commitlog_path)}
    parts = killed_in_the_second_job(spark, lake, path)
    assert 0 < parts[0] < parts[1] < fixture_497.max_offset
    summary = verified(spark, lake, path)
    assert (summary.earlier_bytes, summary.bytes) == (parts[1], fixture_497.max_offset - parts[1])
    assert (summary.problem, summary.position, summary.jumps) == (None, fixture_497.max_offset, ())
    assert (summary.without_master_bytes, summary.holes, open_incidents(spark, lake)) == (0, 0, [])
    assert killed_in_the_second_job(spark, lake, path) == parts  # the finished run left nothing
    assert verified(spark, lake, path, restart=True).earlier_bytes == 0


def killed_in_the_second_job(spark: SparkSession, lake: Path, path: dict[str, str]) -> list[int]:
    """A run; how many bytes it had done after each of its jobs."""
    parts: list[int] = []

    def die(done_bytes: int, all_bytes: int) -> None:
        parts.append(done_bytes)
        if len(parts) == 2:
            raise Killed

    config = job_config(lake, **path)
    with pytest.raises(Killed):
        verify_log(spark, config.warehouse, ConfiguredLog.alone(config.logs[0]), Scope(), die)
    return parts


@pytest.mark.usefixtures("small_jobs")
def test_a_sample_a_range_and_a_limit(spark: SparkSession, fixture_497: Fixture, replica: Path) -> None:
    path = {"path": str(fixture_497.commitlog_path)}
    summary = verified(spark, replica, path, share=0.3, seed=5)
    assert (summary.seed, summary.problem, summary.jumps) == (5, None, None)
    assert 0 < summary.bytes < fixture_497.max_offset
    ranges = ranges_of(replica)
    some = verified(spark, replica, path, start=ranges[2][0] + 1, end=ranges[3][0] + 1, max_mb_per_s=1.0)
    assert (some.claims, some.bytes) == (2, ranges[3][1] - ranges[2][0])
    assert some.seconds >= (some.bytes / 2 - (ranges[3][1] - ranges[3][0])) / 500_000  # two tasks, half of it each


def test_queue_jumps_of_the_master_are_incidents_to_accept_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker has skipped two queue offsets of its queue, and then given one twice."""
    (tmp_path / "log").mkdir()
    log = filled(tmp_path / "log", *[100] * 7)
    for start, queue_offset in zip(log.starts, (0, 1, 2, 5, 6, 6, 7), strict=True):
        log.write(start + QUEUE_OFFSET_AT, struct.pack(">q", queue_offset))
    lake, path, operator = tmp_path / "lake", {"path": str(tmp_path / "log")}, Operator(tmp_path, capsys)
    replicate_in_process(spark, job_config(lake, **path))
    operator.configure(**path)
    summary = verified(spark, lake, path)
    assert summary.problem is None
    assert summary.jumps is not None
    assert [(jump.at, jump.why) for jump in summary.jumps] == [
        (log.starts[3], Why.MISSING),
        (log.starts[5], Why.REPEATED),
    ]
    assert open_incidents(spark, lake) == [(Condition.QUEUE_JUMP, at, at + 1) for at in (log.starts[3], log.starts[5])]
    for jump in summary.jumps:
        operator.must("incidents close", str(jump.incident), "--note", "known")
    said = operator.must("verify").out
    assert open_incidents(spark, lake) == []
    assert said.splitlines()[-1] == "  equal"


@pytest.mark.parametrize("scope", [{"share": 0.0}, {"max_mb_per_s": 0.0}, {"start": 10, "end": 10}], ids=str)
def test_a_scope_of_nothing_is_refused(scope: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Scope(**scope)
