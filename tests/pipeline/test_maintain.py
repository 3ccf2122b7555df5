"""``logtwin maintain`` on real tables: beside a running job, killed and run again, and after a day of commits."""

import json
import os
import time
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import pyarrow.parquet as pq
import pytest

from pipeline.config.configuration import MaintainConfig
from pipeline.monitoring.upkeep import Done
from pipeline.operate import maintain as verb
from pipeline.operate.maintain import check_horizon, step_lines
from sinks.delta.kernel import KernelTable
from sources.errors import ConfigurationError
from sources.offsets import LogId
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.read_back import rebuilt
from tests.pipeline.repair_bench import Bench

LOG_ID = LogId("rocketmq", "test")
LOG_CLEANUP = "delta.enableExpiredLogCleanup"


def test_a_horizon_that_a_batch_may_outlast_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="vacuum_hours") as caught:
        check_horizon(MaintainConfig(vacuum_hours=0.9), no_job_runs=False)
    assert "--no-job-runs" in str(caught.value)


class HoursLater(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time() + 3 * 3600, tz)


def test_what_is_deleted_is_told_from_what_stays() -> None:
    """And of what a merge would give no number is made up."""
    vacuum = verb.MaintenanceStep(
        table="log", step="vacuum", files_before=40, files_after=38, bytes_before=900, bytes_after=800
    )
    merge = verb.MaintenanceStep(table="log", step="merge", files_before=9, files_after=1, bytes_before=23_000_000)
    join = verb.MaintenanceStep(  # rows, and the log's bytes; what is damaged
        table="ledger", step="join", files_before=9, files_after=1, bytes_before=5000, records=3
    )
    counted = [one.done for one in (vacuum, merge, join)]
    assert counted == [Done(deleted_files=2), Done(merged_files=9, merged_into=1), Done()]
    log = replace(vacuum, step="log", bytes_after=900, files_before=1)
    steps = [merge, replace(merge, bytes_after=21_000_000, log="dister/a"), vacuum, replace(log, files_after=1)]
    steps += [
        replace(one, table="removed", files_after=one.files_before, bytes_after=one.bytes_before)
        for one in (vacuum, log)
    ]
    assert [*step_lines([*steps, join], dry_run=False)] == [
        "log: 18 files, 46.0 MB, merged into 2, 21.0 MB; 2 of 40 files, 100 B, deleted",
        "ledger: 9 rows joined into 1, 5.0 kB compared; 3 ranges damaged, see logtwin incidents list",
        "2 of 3 tables changed; 7 steps in 0 s",
    ]
    assert [*step_lines([replace(merge, bytes_after=None)], dry_run=True)] == [
        "log: 9 files, 23.0 MB, merged into 1",
        "1 of 1 table would change; 1 step in 0 s",
    ]
    retain = verb.MaintenanceStep(table="log", step="retain", bytes_before=5000, bytes_after=3000, records=7)
    assert next(step_lines([retain], dry_run=False)) == "log: 2.0 kB of 5.0 kB, 7 records, of the log deleted"
    kept = replace(retain, bytes_after=5000, records=0)
    assert [*step_lines([kept], dry_run=False)] == ["0 of 1 table changed; 1 step in 0 s"]


@pytest.mark.spark
def test_by_the_command_line(bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a size to keep, hours later: dry, then done; from there on every byte is the master's.

    Tables of an older version leave their Delta log to it.
    """
    log, lake, operator = bench.log.data(), bench.lake, Operator(bench.folder, capsys)
    operator.configure(path=bench.log.path)
    operator.job.write_text(f"{operator.job.read_text()}[maintain]\nmin_files = 3\n")
    orphan = lake / "log" / "part-of-a-crashed-batch.parquet"
    orphan.write_bytes(b"x" * 1000)
    then = time.time() - timedelta(days=8).total_seconds()
    os.utime(orphan, (then, then))
    tables = [KernelTable(bench.spark, str(folder.parent)) for folder in lake.glob("*/_delta_log")]
    for table in tables:
        table.set_properties(table.existing(), {LOG_CLEANUP: "true"})

    def run(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
        said = json.loads(operator.must("maintain", "--keep-gb", str(len(log) / 2 / 1e9), "--json", *options).out)
        assert said["dry_run"] == ("--dry-run" in options)
        return {(one["table"], one["step"]): one for one in said["steps"]}

    monkeypatch.setattr(verb, "datetime", HoursLater)
    versions = bench.versions()
    assert {"log", "ledger"} <= versions.keys()
    dry = run("--dry-run")
    assert bench.versions() == versions
    assert orphan.exists()
    done = run()
    assert not orphan.exists()
    assert {table.existing().properties()[LOG_CLEANUP] for table in tables} == {"false"}
    for name in ("log", "ledger"):
        merge = [(one["files_before"], one["files_after"]) for one in (dry[name, "merge"], done[name, "merge"])]
        assert merge == [(5, 1)] * 2
    gone = [one["files_before"] - one["files_after"] for one in (dry["log", "vacuum"], done["log", "vacuum"])]
    assert gone == [1, 1]
    # of what was merged a checkpoint says nothing; retention has rewritten a file
    merged = KernelTable(bench.spark, str(lake / "log"))
    while not merged.checkpoint(merged.existing()):  # each tenth version is left to its committer
        merged.set_properties(merged.existing(), {LOG_CLEANUP: "false"})
    newest = max((lake / "log" / "_delta_log").glob("*.checkpoint.parquet"))
    assert pq.read_table(newest, columns=["remove"])["remove"].drop_null().length() == 1
    (hole,) = bench.holes()
    assert hole.start == 0
    assert len(log) - hole.end >= len(log) // 2
    assert done["log", "retain"]["bytes_after"] == len(log) - hole.end
    assert rebuilt(lake) == log[hole.end :]
    rows = bench.rows("ledger")
    assert [row["deleted_at"] is not None for row in rows] == [row["end"] <= hole.end for row in rows]
    assert [row["start"] for row in rows][1:] == [row["end"] for row in rows][:-1]
    assert "joined" in {row["origin"] for row in rows}
    join = done["ledger", "join"]
    assert join["files_before"] > join["files_after"] >= 1
    assert json.loads(operator.must("verify", "--json").out)["logs"][0]["equal"]
