"""What the table, the running job and the master say, as one; for programs and for people."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from pipeline.inspect.status import LogStatus, MasterAnswer, status_blocks, status_of, troubles
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import RunState, facts_of, process_space
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.values.ledger_row import LedgerRow
from sources.epochs import Epoch
from sources.errors import MasterUnreachable
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange
from sources.retention import MasterRetention
from tests.pipeline.sample_progress import PROGRESS
from tests.pipeline.test_run_state import GONE_PID
from tests.sinks.memory_master import MemoryMaster

NOW = datetime(2026, 11, 21, 14, 5, 11, tzinfo=UTC)
MASTER = MemoryMaster((100,) * 50, place="10.0.0.5:10912")
RUNNER = replace(this_writer(), run="run-1", host="host-1", since="2026-11-21T14:02:11+00:00")
RETENTION = MasterRetention(file_size_bytes=1000, keeps_s=7200, room_bytes=None)
ANSWER = MasterAnswer(
    MasterView(role="SYNC_MASTER", bounds=OffsetRange(Offset(1000), Offset(5000)), retention=RETENTION), Offset(4000)
)


def run(*, phase: Phase = Phase.RUNNING, age_s: float = 3, pid: int = RUNNER.pid) -> RunState:
    progress = replace(PROGRESS, position=Offset(4000), received=Offset(4500), phase=phase)
    return RunState(
        writer=replace(RUNNER, pid=pid),
        process_space=process_space(),
        updated_at=NOW - timedelta(seconds=age_s),
        phase=phase,
        facts=facts_of(progress),
    )


def table(position: int, *, stored_ago_s: float = 600) -> LogState:
    stored_us = int((time.time() - stored_ago_s) * 1e6)
    row = LedgerRow(
        start=Offset(0),
        end=Offset(position),
        records=1,
        bytes=position,
        checksum="sha256:00",
        first_store_timestamp=stored_us,
        last_store_timestamp=stored_us,
        committed_at=stored_us,
    )
    return LogState(writer=RUNNER, commit="c", offset=Offset(position), first=Offset(0), ledger=(row,))


def test_a_log_that_is_replicated() -> None:
    said = status_of(MASTER, run(), table(4000), ANSWER, NOW).as_json()
    assert said["id"] == "rocketmq/broker-a"
    assert (said["role"], said["master"], said["master_role"]) == ("slave", "10.0.0.5:10912", "SYNC_MASTER")
    assert (said["running"], said["phase"], said["run"], said["host"]) == (True, "running", "run-1", "host-1")
    assert (said["pid"], said["since"]) == (RUNNER.pid, "2026-11-21T14:02:11+00:00")
    assert (said["connected_since"], said["reconnects"]) == ("2026-11-21T14:02:11+00:00", 2)
    assert (said["received"], said["position"]) == (4500, 4000)
    assert (said["acknowledged"], said["acknowledged_by_master"]) == (400, 4000)
    assert (said["master_minimum"], said["master_maximum"]) == (1000, 5000)
    assert (said["lag_bytes"], said["lag_s"]) == (1000, 4.5)  # the job said 1.5 s, 3 s ago
    assert (said["until_loss_bytes"], said["until_loss_s"]) == (7000, 86_400)  # the job's, who saw it grow
    assert (said["last_error"], said["master_error"]) == ("it broke", None)


@pytest.mark.parametrize(
    ("last", "answer", "found"),
    [
        (run(), ANSWER, []),
        (run(phase=Phase.DONE, age_s=1e5), ANSWER, []),  # a scheduler starts the next one
        (run(phase=Phase.WAITING), ANSWER, [(5, "rocketmq/broker-a: the job waits; found it broke")]),
        (
            None,
            ANSWER,
            [(5, "rocketmq/broker-a: no job replicates it; found none that ran. logtwin replicate starts one.")],
        ),
        (
            run(phase=Phase.FAILED, age_s=60),
            ANSWER,
            [(5, "found failed 2026-11-21 14:04:11 UTC (1 min ago): it broke")],
        ),
        (run(pid=GONE_PID), ANSWER, [(5, "found last seen 2026-11-21 14:05:08 UTC (3 s ago): it broke")]),
        (
            run(),
            MasterAnswer(error="nobody there"),
            [(3, "rocketmq/broker-a: its master cannot be asked; found nobody there")],
        ),
        (None, MasterAnswer(error="nobody there"), [(5, "no job replicates it"), (3, "its master cannot be asked")]),
    ],
)
def test_what_a_monitor_is_told(last: RunState | None, answer: MasterAnswer, found: list[tuple[int, str]]) -> None:
    told = troubles(status_of(MASTER, last, table(4000), answer, NOW), NOW)
    assert [one.exit_code for one in told] == [code for code, _ in found]
    for one, (_, words) in zip(told, found, strict=True):
        assert words in str(one)


def test_a_master_that_was_elected() -> None:
    assert ANSWER.view is not None
    view = replace(ANSWER.view, epoch=Epoch(7, Offset(900)), confirmed=Offset(4500))
    said = status_of(MASTER, run(), table(4000), replace(ANSWER, view=view), NOW)
    assert (said.master_epoch, said.confirmed) == (7, 4500)
    assert "epoch 7, confirmed up to 4,500" in shown(said)
    found = replace(run(), facts={**run().facts, "master_epoch": 6, "confirmed": 4400})
    asked_in_vain = status_of(MASTER, found, table(4000), MasterAnswer(error="away"), NOW)
    assert (asked_in_vain.master_epoch, asked_in_vain.confirmed) == (6, 4400)  # as the job found it
    plain = status_of(MASTER, run(), table(4000), ANSWER, NOW)
    assert (plain.master_epoch, plain.confirmed) == (None, None)
    assert "elected" not in shown(plain)


@pytest.mark.parametrize(
    "last", [None, run(phase=Phase.STOPPED), run(age_s=16), run(pid=GONE_PID)], ids=["none", "stopped", "old", "gone"]
)
def test_a_log_that_no_job_replicates(last: RunState | None) -> None:
    said = status_of(MASTER, last, table(4000), ANSWER, NOW).as_json()
    assert said["running"] is False
    assert (said["received"], said["position"], said["acknowledged"]) == (4000, 4000, None)
    assert (said["connected_since"], said["reconnects"]) == (None, None)
    assert (said["lag_bytes"], said["lag_s"]) == (1000, None)  # nobody saw when they came
    # the file of 1000 that holds the position is the fourth that goes, an hour and 50 minutes from now at the earliest
    assert said["until_loss_bytes"] == 3000
    assert said["until_loss_s"] == pytest.approx(7200 - 600, abs=60)
    assert said["last_error"] == (None if last is None else "it broke")


def test_a_complete_replica_has_no_lag_and_no_time_until_loss() -> None:
    said = status_of(MASTER, None, table(5000), ANSWER, NOW)
    assert (said.lag_bytes, said.lag_s) == (0, 0)
    assert (said.until_loss_bytes, said.until_loss_s) == (None, None)


def test_a_position_that_moved_since_the_job_spoke_is_received_too() -> None:
    assert status_of(MASTER, run(), table(4800), ANSWER, NOW).received == 4800


def test_a_master_that_is_away_is_part_of_the_status() -> None:
    said = status_of(MASTER, run(), table(4000), MasterAnswer(error=str(MasterUnreachable("no connection"))), NOW)
    assert (said.position, said.lag_bytes, said.master_maximum) == (4000, None, None)
    assert said.lag_s == 1.5
    assert said.master_role == "SYNC_MASTER"  # as the job found it
    assert said.master_error == "no connection"


def shown(*statuses: LogStatus) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(status_blocks(list(statuses), NOW))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert max(len(line) for line in text.splitlines()) <= 80
    return str(text)


def test_people_read_a_block_a_log() -> None:
    one = replace(status_of(MASTER, run(), table(4000), ANSWER, NOW), position=1234567890, id="rocketmq/[b]")
    text = shown(one, replace(one, last_error="no connection to 10.0.0.5:10912 " * 5))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == "rocketmq/[b]"
    assert "yes, since 2026-11-21 14:02:11 UTC (3 min ago)" in text
    assert f"{RUNNER.pid} on host-1" in text
    assert "slave of 10.0.0.5:10912, SYNC_MASTER" in text
    assert "1,234,567,890, from 0" in text
    assert "1,000 to 5,000" in text
    assert "1.0 kB, 4 s" in text
    assert "7.0 kB, 1 d at the earliest" in text
    assert "2 reconnects" in text
    assert lines.count("rocketmq/[b]") == 2


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (None, "no"),
        (run(phase=Phase.WAITING), "yes, waiting, since 2026-11-21 14:02:11 UTC (3 min ago)"),
        (run(phase=Phase.FAILED, age_s=3600), "no, failed 2026-11-21 13:05:11 UTC (1 h ago)"),
        (run(age_s=90), "no, last seen 2026-11-21 14:03:41 UTC (1 min 30 s ago)"),
    ],
    ids=["never", "waiting", "failed", "killed"],
)
def test_people_read_what_runs(last: RunState | None, words: str) -> None:
    text = " ".join(shown(status_of(MASTER, last, None, MasterAnswer(error="away"), NOW)).split())
    assert words in text.partition("running ")[2]
    assert "away" in text


def test_what_a_master_says_forges_no_line_of_the_block() -> None:
    one = status_of(MASTER, None, None, MasterAnswer(error="no\nrunning yes\x1b[2J"), NOW)
    assert r"no\nrunning yes\x1b[2J" in shown(one)
