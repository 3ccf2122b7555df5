"""What is asked of a replica, asked of one whose offsets are entry ids: every verb counts and names what there is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.coverage import coverages
from pipeline.inspect.selection import OneLog
from pipeline.operate.backfill import run_backfill
from pipeline.operate.hole_filter import Wanted
from pipeline.operate.maintain import Maintenance
from pipeline.operate.rebuild_commit_log import CommitLogRebuild
from pipeline.verify.run import Scope, verify_log
from sinks.books.incidents import IncidentsTable
from sinks.books.ledger_row import BACKFILL
from sinks.proof.verdicts import Difference, DifferenceKind, Verdict
from sinks.upkeep.retention import Keep, ReplicaRetention
from sources.errors import ConfigurationError, Divergent, Rewritten
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from tests.dister.odd_leader import OddLeader
from tests.pipeline.operator_at_work import run
from tests.pipeline.read_back import count_of, table_of
from tests.pipeline.running import job_config, replicate_now

LOG_ID = LogId("dister", "test")
BATCHES = (1, 100_000, 200_000)
"""The first index in each batch file."""
PER_FILE = 40


def job(lake: Path, folder: Path, **options: Any) -> Config:
    return job_config(lake, id="dister/test", path=str(folder), max_entries_per_trigger=30, **options)


def files(folder: Path) -> dict[str, bytes]:
    """The batch files, by their paths."""
    log = folder / "dister.entry.log"
    return {str(path.relative_to(log)): path.read_bytes() for path in sorted(log.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a leader with three batch files; not to be changed."""
    folder = tmp_path_factory.mktemp("leader")
    with OddLeader(folder, group="test", seed=7) as log:
        for first in BATCHES:
            log.skip_to(first)
            for number in range(PER_FILE):
                log.write({f"key-{number}": "x" * (number * 13 % 50)} if number % 5 else [f"key-{number}"])
    return folder


@pytest.fixture(scope="module")
def ids(leader: Path) -> list[int]:
    lines = b"".join(data for _, data in sorted(files(leader).items(), key=lambda file: int(file[0].split("/")[1])))
    return [int(line.split(b",")[0]) for line in lines.splitlines()]


@pytest.fixture(scope="module")
def replicated(session: SparkSession, leader: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its replica, in several ranges of the ledger. To be copied, not changed."""
    lake = tmp_path_factory.mktemp("replicated")
    replicate_now(session, job(lake, leader))
    return lake


@pytest.fixture
def lake(replicated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(replicated, tmp_path / "lake")


@pytest.fixture
def copied(leader: Path, tmp_path: Path) -> Path:
    """A copy of the leader's folder, to be changed."""
    return shutil.copytree(leader, tmp_path / "leader")


@pytest.fixture(scope="module")
def holed(session: SparkSession, leader: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica of it that lacks the second batch file, as its leader did. To be copied, not changed."""
    folder = shutil.copytree(leader, tmp_path_factory.mktemp("holed") / "leader")
    (folder / "dister.entry.log/0/1").unlink()
    replicate_now(session, without_a_file(folder.parent))
    return folder.parent


def without_a_file(folder: Path) -> Config:
    return job_config(folder / "lake", id="dister/test", path=str(folder / "leader"), on_loss="record")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    (found,) = json.loads(out)["logs"]
    assert isinstance(found, dict)
    return found


def test_coverage_status_and_verify_tell_the_same_log(
    leader: Path, ids: list[int], replicated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    position, size_bytes = ids[-1] + 1, sum(map(len, files(leader).values()))
    toml = tmp_path / "job.toml"
    toml.write_text(f'warehouse = "{replicated}"\n[[logs]]\nid = "dister/test"\npath = "{leader}"\n')
    covered = said(capsys, "coverage", "--config", str(toml))
    assert (covered["position"], covered["missing"], covered["problem"]) == (position, [], None)
    assert [(one["start"], one["end"]) for one in covered["whole"]] == [(0, position)]
    status = said(capsys, "status", "--config", str(toml))
    assert (status["position"], status["master_maximum"]) == (position, position)
    assert (status["lag_bytes"], status["lag_ids"], status["lag_s"]) == (None, 0, 0)
    assert (status["until_loss_bytes"], status["acknowledged"]) == (None, None)
    verified = said(capsys, "verify", "--config", str(toml))
    assert (verified["equal"], verified["bytes"], verified["position"]) == (True, size_bytes, position)
    assert (verified["jumps"], verified["holes_bytes"], verified["holes_ids"]) == (None, None, 0)
    assert f"0 to {position:,}, {position:,} ids" in run(capsys, "coverage", "--config", toml).out


def of(ids: list[int], number: int, kind: DifferenceKind) -> Difference:
    """That the entry with that number differs."""
    return Difference(Offset(ids[number - 1] + 1), kind, ids[number])


def test_rows_of_the_replica_are_changed(session: SparkSession, leader: Path, ids: list[int], lake: Path) -> None:
    """Each in a range of its own: another value, a longer one, a row that is gone, one that is there twice."""
    changed, longer, gone, doubled = 3, 33, 63, 93

    def damaged(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row in rows:
            if row["queue_offset"] == ids[changed]:
                row["body"] = row["body"].replace(b"x", b"y")
            if row["queue_offset"] == ids[longer]:
                row["body"] = b'{"key":"of another length"}'
            copies = {ids[gone]: 0, ids[doubled]: 2}.get(row["queue_offset"], 1)
            yield from [row] * copies

    for file in (lake / "log").glob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(pa.Table.from_pylist(list(damaged(table.to_pylist())), table.schema), file)
    config = job(lake, leader)
    summary = verify_log(session, config.warehouse, OneLog(config.logs[0]), Scope())
    assert {one.verdict for one in summary.differences} == {Verdict.REPLICA_DAMAGED}
    assert [one.differences for one in summary.differences] == [
        (of(ids, changed, DifferenceKind.CHANGED),),
        (of(ids, longer, DifferenceKind.CHANGED),),
        (of(ids, gone, DifferenceKind.MISSING),),
        (Difference(Offset(ids[doubled - 1] + 1), DifferenceKind.TWICE),),
    ]
    assert isinstance(summary.problem, Divergent)
    assert f"{ids[changed - 1] + 1} (id {ids[changed]}) changed" in str(summary.problem)
    assert len(IncidentsTable(session, str(lake), LOG_ID).open()) == 4


def test_lines_of_the_leader_are_changed(session: SparkSession, copied: Path, ids: list[int], lake: Path) -> None:
    """Another value in one batch file; in another a line too many, whose id was free; then the last one is gone."""
    log, number, behind = copied / "dister.entry.log", PER_FILE + 3, 2 * PER_FILE + 15
    line = next(one for one in files(copied)["0/1"].splitlines() if one.startswith(b"%d," % ids[number]))
    (log / "0/1").write_bytes(files(copied)["0/1"].replace(line, line[:-3] + b"z" + line[-2:]))
    before = next(one for one in files(copied)["0/2"].splitlines(True) if one.startswith(b"%d," % ids[behind - 1]))
    assert ids[behind - 1] + 1 < ids[behind]
    added = before + b'%d,300,{"key":"too many"}\n' % (ids[behind - 1] + 1)
    (log / "0/2").write_bytes(files(copied)["0/2"].replace(before, added))
    config = job(lake, copied)
    summary = verify_log(session, config.warehouse, OneLog(config.logs[0]), Scope())
    assert [one.verdict for one in summary.differences] == [Verdict.REWRITTEN] * 2
    assert [one.differences for one in summary.differences] == [
        (of(ids, number, DifferenceKind.CHANGED),),
        (of(ids, behind, DifferenceKind.CHANGED),),
    ]
    (log / "0/2").write_bytes(b"".join(files(copied)["0/2"].splitlines(True)[:-1]))
    cut = verify_log(session, config.warehouse, OneLog(config.logs[0]), Scope(start=ids[-2]))
    assert [one.verdict for one in cut.differences] == [Verdict.MASTER_LACKS]


def test_a_batch_file_that_was_missing_comes_from_a_copy(
    session: SparkSession, leader: Path, holed: Path, ids: list[int], tmp_path: Path
) -> None:
    """The hole ends with the id of the next entry; in the copy that entry begins earlier, behind the last one lost."""
    config = without_a_file(shutil.copytree(holed, tmp_path / "holed"))
    hole = OffsetRange(Offset(ids[PER_FILE - 1] + 1), Offset(ids[2 * PER_FILE]))
    (incident,) = IncidentsTable(session, config.warehouse, LOG_ID).open()
    assert (incident.found.condition, incident.found.range) == (Condition.GAP, hole)
    result = run_backfill(session, config, OneLog(config.logs[0]), Wanted(), path=str(leader))
    assert (result.filled, result.remaining, result.records) == ((hole,), (), PER_FILE)
    assert result.bytes == len(files(leader)["0/1"])
    assert result.healed == (incident.id,)
    (one,) = coverages(config)
    assert one.complete is not None
    assert [part.range for part in one.complete.whole] == [OffsetRange(Offset(0), Offset(ids[-1] + 1))]
    assert one.problem is None
    whole = job(tmp_path / "holed/lake", leader)
    assert verify_log(session, whole.warehouse, OneLog(whole.logs[0]), Scope()).problem is None
    again = run_backfill(session, config, OneLog(config.logs[0]), Wanted(), path=str(leader))
    assert (again.holes, again.filled) == ((), ())


def test_a_copy_of_another_log_fills_nothing(session: SparkSession, holed: Path, tmp_path: Path) -> None:
    config = without_a_file(shutil.copytree(holed, tmp_path / "holed"))
    with OddLeader(tmp_path / "other", group="test", seed=8) as log:
        for first in BATCHES:
            log.skip_to(first)
            log.set_many({"other": str(number)} for number in range(PER_FILE))
    with pytest.raises(Rewritten):
        run_backfill(session, config, OneLog(config.logs[0]), Wanted(), path=str(tmp_path / "other"))
    assert BACKFILL not in table_of(tmp_path / "holed/lake", "ledger", str(LOG_ID))["origin"].to_pylist()


def test_retention_by_bytes(session: SparkSession, leader: Path, lake: Path) -> None:
    held_bytes = sum(map(len, files(leader).values()))
    retention = ReplicaRetention(session, str(lake), LOG_ID)
    now = datetime.now(UTC)
    assert retention.plan(Keep(), now).held_bytes == held_bytes
    plan = retention.plan(Keep(size_bytes=held_bytes // 2), now)
    assert (plan.held_bytes, plan.out.start) == (held_bytes, 0)
    assert held_bytes - plan.out_bytes >= held_bytes // 2 > 0 < plan.out_bytes
    retention.apply(plan, now)
    assert retention.plan(Keep(), now).held_bytes == held_bytes - plan.out_bytes


def test_a_dister_log_cannot_be_rebuilt(session: SparkSession, replicated: Path, leader: Path) -> None:
    config = job(replicated, leader)
    with pytest.raises(ConfigurationError, match="a dister master cannot be rebuilt"):
        CommitLogRebuild(session, config.warehouse, config.logs[0])


@pytest.mark.spark
def test_retention_spares_a_log_with_a_map(spark: SparkSession, leader: Path, lake: Path, ids: list[int]) -> None:
    config = job(lake, leader).maintained_with({"keep_gb": 1e-9, "keep_days": 1e-9}, "test")
    retained = next(one for one in Maintenance(spark, config, dry_run=False).run() if one.step == "retain")
    assert (retained.log, retained.records) == (str(LOG_ID), 0)
    assert count_of(lake) == len(ids)
