"""Every verb beside the stream on one warehouse on S3, each test after the one before: a hole, filled; damage, mended;
another master; and what is left of it tidied up. What they ask of the store is bounded: docs/scaling.md.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from pipeline.cli.app import main
from pipeline.demo.s3_server import S3Server
from pipeline.inspect.coverage import coverages
from pipeline.inspect.incidents import Incidents
from pipeline.inspect.selection import OneLog
from pipeline.inspect.status import log_statuses
from pipeline.operate.backfill import run_backfill
from pipeline.operate.hole_filter import Wanted
from pipeline.operate.rebuild_commit_log import CommitLogRebuild
from pipeline.verify import plan
from pipeline.verify import run as verify
from sinks.books.incident import State
from sinks.healing.repair import Repair
from sinks.proof.verdicts import Verdict
from sinks.storage.hadoop import reach
from sinks.storage.place import open_folder, placed
from sinks.storage.settings import VARIABLE
from sources.options import ReadOptions
from sources.registry import open_log
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.server import KEY_VARIABLE, at, with_own_bucket
from tests.objectstore.twin import Twin
from tests.pipeline.faulty_log import FILE_SIZE_BYTES
from tests.pipeline.running import replicate_now

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MESSAGES = 300
MIDDLE = 240  # the place of a message behind the lost file
BATCHES = 6
LOST = 3  # of the master's files, by its place among them
VERIFY_BESIDE, VERIFY_A_BATCH = 100, 18
MAINTAIN_BESIDE, MAINTAIN_A_BATCH = 295, 16
IDLE_MAINTAIN = 300
STATUS = 90
COUNT = "SELECT count(*) AS n FROM messages"


@dataclass(frozen=True)
class LinkedTwin(Twin):
    """Its replica is reached by way of a link."""

    link: FaultProxy


@pytest.fixture(scope="module")
def twin(
    spark: SparkSession, s3_process: S3Server, s3_way: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LinkedTwin]:
    """Replicated by way of a link, without one of the master's files, which was lost."""
    server, link = with_own_bucket(s3_process), s3_way
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, at(link.endpoint).as_text())
        key = f"env:{KEY_VARIABLE}"
        storage = {"endpoint": link.endpoint, "access_key": key, "secret_key": key}
        made = LinkedTwin(spark, tmp_path_factory.mktemp("twin"), f"s3://{server.bucket}/lake", storage, BATCHES, link)
        made.log.append(random.Random(1), MESSAGES)
        reach(spark, placed(made.config().warehouse), tempfile.gettempdir())
        lost = made.log.lose(LOST)
        replicate_now(spark, made.config())
        shutil.copyfile(made.log.archive / lost.name, lost)  # and comes back
        yield made


def test_a_hole_is_seen_and_filled(twin: LinkedTwin) -> None:
    (seen,) = coverages(twin.config())
    assert seen.complete is not None
    (missing,) = seen.complete.missing
    (found,) = Incidents(twin.config(), "").open()
    assert missing.incident is not None
    assert missing.incident.id == found.row.id
    config = twin.config()
    run_backfill(twin.spark, config, OneLog(config.logs[0]), Wanted.parse(None, None), path=None)
    (seen,) = coverages(twin.config())
    assert (seen.problem, seen.complete and seen.complete.missing) == (None, ())
    assert Incidents(twin.config(), "").open() == []
    with twin.link.counted() as asked:
        (status,) = log_statuses(twin.config())
    assert (status.position, status.lag_bytes, status.phase) == (twin.log.end, 0, "done")
    assert len(asked) <= STATUS, asked.table()


def test_every_byte_is_the_masters(twin: LinkedTwin) -> None:
    twin.verify()
    with twin.link.counted() as asked:
        summary = twin.verify()
    assert (summary.problem, summary.bytes) == (None, twin.log.end)
    assert len(asked) <= VERIFY_BESIDE + VERIFY_A_BATCH * BATCHES, asked.table()


def test_a_killed_verification_goes_on(twin: LinkedTwin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SECTION_BYTES", 1)
    monkeypatch.setattr(plan, "LARGEST_SECTION_BYTES", 1)
    monkeypatch.setattr(verify, "_SECTIONS_A_TASK", 1)
    proven: list[int] = []

    def die(done_bytes: int, all_bytes: int) -> None:
        proven.append(done_bytes)
        if len(proven) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        twin.verify(die)
    summary = twin.verify()
    assert 0 < proven[-1] < twin.log.end
    assert (summary.earlier_bytes, summary.bytes, summary.problem) == (proven[-1], twin.log.end - proven[-1], None)
    assert twin.verify().earlier_bytes == 0


def test_an_object_that_is_damaged_is_found_and_then_is_whole_again(twin: LinkedTwin) -> None:
    filesystem, folder = open_folder(f"{twin.config().warehouse}/log")
    listed = filesystem.get_file_info(pafs.FileSelector(folder))
    path = sorted(one.path for one in listed if one.is_file)[3]
    with filesystem.open_input_file(path) as file:
        whole = file.read()
    for content, verdicts in ((whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :], 1), (whole, 0)):
        with filesystem.open_output_stream(path) as file:
            file.write(content)
        summary = twin.verify()
        assert [one.verdict for one in summary.differences] == [Verdict.UNREADABLE] * verdicts
    assert [one.row.state for one in Incidents(twin.config(), "").all()].count(State.OPEN) <= 1


@pytest.mark.soak  # of a folder: tests/pipeline/test_cli_sql.py, tests/sinks/views/test_as_of.py
def test_questions_as_of_now_an_offset_and_a_time(twin: LinkedTwin, capsys: pytest.CaptureFixture[str]) -> None:
    middle = twin.log.boundaries[MIDDLE]

    def asked(text: str, *options: str) -> list[dict[str, Any]]:
        with pytest.raises(SystemExit) as ended:
            main(["sql", "--config", twin.file(), "--format", "json", "-e", text, *options])
        assert not ended.value.code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.strip()]

    stored_at = f"SELECT store_timestamp AS t FROM log WHERE offset = {middle}"  # noqa: S608 - no words of others
    count, row = asked(f"{COUNT}; {stored_at}")
    assert count == {"n": len(twin.log.messages)}
    hole = range(LOST * FILE_SIZE_BYTES, (LOST + 1) * FILE_SIZE_BYTES)  # filled since, so not as of then
    below = sum(at < middle and at not in hole for at in twin.log.messages)
    past = ("--log", "rocketmq/test", "--as-of-offset", str(middle))
    assert asked(COUNT, *past) == [{"n": below}]
    (then,) = asked("SELECT max(offset) AS o FROM log", "--log", "rocketmq/test", "--as-of-time", row["t"])
    assert then["o"] >= middle


@pytest.mark.soak
def test_a_report(twin: LinkedTwin, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", "--config", twin.file(), "--output", str(tmp_path / "report.html")])
    assert not ended.value.code
    assert "rocketmq/test" in (tmp_path / "report.html").read_text()


def test_the_files_come_out_of_the_tables(twin: LinkedTwin, tmp_path: Path) -> None:
    options = ReadOptions(id="rocketmq/test", path="/gone")
    CommitLogRebuild(twin.spark, twin.config().warehouse, options).write(tmp_path / "new", None, zero_holes=False)
    made = b"".join(file.read_bytes() for file in sorted((tmp_path / "new").iterdir()))
    held = b"".join(file.read_bytes() for file in sorted(twin.log.path.iterdir()))
    assert made.rstrip(b"\0") == held[: len(made)].rstrip(b"\0")
    assert len(made) >= twin.log.end


@pytest.mark.soak  # in a folder: tests/pipeline/test_repair.py
def test_back_to_what_another_master_shares(twin: LinkedTwin) -> None:
    end = twin.log.end
    common = twin.log.rewrite_from_the_middle()
    config = twin.config()
    done = Repair(twin.spark, config.warehouse, open_log(config.logs[0])).run(accept_master=False)
    assert done.back is not None
    assert (done.back.found.common, done.back.bytes) == (common, end - common)
    replicate_now(twin.spark, config)
    assert (twin.verify().problem, log_statuses(config)[0].epoch) == (None, 1)


def test_tidied_up(twin: LinkedTwin) -> None:
    with twin.link.counted() as asked:
        done = twin.maintain()
    assert done["log", "merge"].files_after == 1 < done["log", "merge"].files_before
    assert done["ledger", "merge"].files_after == 1 < done["ledger", "merge"].files_before
    assert done["log", "vacuum"].files_before > done["log", "vacuum"].files_after
    assert len(asked) <= MAINTAIN_BESIDE + MAINTAIN_A_BATCH * BATCHES, asked.table()


@pytest.mark.soak  # each step alone on the local disk: tests/sinks/upkeep
def test_tidied_up_again_and_gone_on_with(twin: LinkedTwin) -> None:
    again = twin.maintain()
    assert again["log", "vacuum"].files_after <= 2
    with twin.link.counted() as asked:
        idle = twin.maintain()  # its checkpoint is written over one that was read
    assert idle["log", "log"].files_before == idle["log", "log"].files_after
    assert len(asked) <= IDLE_MAINTAIN, asked.table()
    twin.log.append(random.Random(2), 60)
    replicate_now(twin.spark, twin.config())
    summary = twin.verify()
    assert (summary.problem, summary.bytes) == (None, twin.log.end)
