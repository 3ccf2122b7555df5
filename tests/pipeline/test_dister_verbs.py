"""What is asked of a replica, asked of one whose offsets are entry ids: every verb counts and names what there is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.coverage import coverages
from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.backfill import Wanted, run_backfill
from pipeline.operate.maintain import Maintenance
from pipeline.operate.rebuild import CommitLogRebuild
from pipeline.verify.run import Scope, verify_log
from sinks.books.incidents import IncidentsTable
from sources.errors import ConfigurationError
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from tests.dister.odd_leader import OddLeader
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import run
from tests.pipeline.read_back import count_of
from tests.pipeline.running import job_config, replicate_now

LOG_ID = LogId("dister", "test")
BATCHES = (1, 100_000, 200_000)
"""The first index in each batch file."""
PER_FILE = 40


def job(lake: Path, folder: Path, **options: Any) -> Config:
    return job_config(lake, id="dister/test", path=str(folder), max_entries_per_trigger=30, **options)


def files(folder: Path) -> dict[str, bytes]:
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
    toml = job_toml(tmp_path, {"id": "dister/test", "path": leader}, warehouse=replicated)
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


def test_a_batch_file_that_was_missing_comes_from_a_copy(
    session: SparkSession, leader: Path, ids: list[int], tmp_path: Path
) -> None:
    """The hole ends with the id of the next entry; in the copy that entry begins earlier, behind the last one lost."""
    folder = shutil.copytree(leader, tmp_path / "leader")
    (folder / "dister.entry.log/0/1").unlink()
    config = job(tmp_path / "lake", folder, on_loss="record")
    replicate_now(session, config)
    hole = OffsetRange(Offset(ids[PER_FILE - 1] + 1), Offset(ids[2 * PER_FILE]))
    (incident,) = IncidentsTable(session, config.warehouse, LOG_ID).open()
    assert (incident.found.condition, incident.found.range) == (Condition.GAP, hole)
    result = run_backfill(session, config, ConfiguredLog.alone(config.logs[0]), Wanted(), path=str(leader))
    assert (result.filled, result.remaining, result.records) == ((hole,), (), PER_FILE)
    assert result.bytes == len(files(leader)["0/1"])
    assert result.healed == (incident.id,)
    (one,) = coverages(config)
    assert one.complete is not None
    assert [part.range for part in one.complete.whole] == [OffsetRange(Offset(0), Offset(ids[-1] + 1))]
    assert one.problem is None
    whole = job(tmp_path / "lake", leader)
    assert verify_log(session, whole.warehouse, ConfiguredLog.alone(whole.logs[0]), Scope()).problem is None
    again = run_backfill(session, config, ConfiguredLog.alone(config.logs[0]), Wanted(), path=str(leader))
    assert (again.holes, again.filled) == ((), ())


def test_a_dister_log_cannot_be_rebuilt(session: SparkSession, replicated: Path, leader: Path) -> None:
    config = job(replicated, leader)
    with pytest.raises(ConfigurationError, match="a dister master cannot be rebuilt"):
        CommitLogRebuild(session, config.warehouse, config.logs[0])


@pytest.mark.spark
def test_retention_spares_a_log_with_a_map(
    spark: SparkSession, leader: Path, replicated: Path, ids: list[int], tmp_path: Path
) -> None:
    lake = shutil.copytree(replicated, tmp_path / "lake")
    config = job(lake, leader).maintained_with({"keep_gb": 1e-9, "keep_days": 1e-9}, "test")
    retained = next(one for one in Maintenance(spark, config, dry_run=False).run() if one.step == "retain")
    assert (retained.log, retained.records) == (str(LOG_ID), 0)
    assert count_of(lake) == len(ids)
