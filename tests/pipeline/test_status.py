"""What the table, the running job and the master say, as one; for programs and for people."""

import socket
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.config.configuration import parse
from pipeline.inspect.asked import MasterAnswer, answered, subject, topic_subject
from pipeline.inspect.status import status_blocks, status_of, statuses, troubles
from pipeline.inspect.typed_status import LogPlace, TypedCounts, TypedStatus, status_lines
from pipeline.monitoring.facts import Readers
from pipeline.monitoring.progress import Phase, Progress
from pipeline.monitoring.run_state import RunState
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sources.bounds import MasterRetention
from sources.epochs import Epoch
from sources.errors import MasterUnreachable
from sources.kafka.options import ReplicatedTopicOptions
from sources.master import MasterView
from sources.offsets import Offset, OffsetRange
from tests.log_lines import printed
from tests.patience import PATIENCE_S
from tests.pipeline.sample_progress import PROGRESS, TOPIC_PROGRESS
from tests.pipeline.test_run_state import GONE_PID, LOG, run_of
from tests.sinks.accounts import ledger_row
from tests.sinks.memory_master import MemoryMaster
from tests.sources.kafka.group_answers import committed, coordinator
from tests.sources.kafka.scripted_cluster import ScriptedCluster, metadata, offsets, topic
from tests.spans import span

NOW = datetime(2026, 11, 21, 14, 5, 11, tzinfo=UTC)
MASTER = MemoryMaster((100,) * 50, address="10.0.0.5:10912")
RUNNER = replace(this_writer(), run="run-1", host="host-1", since="2026-11-21T14:02:11+00:00")
RETENTION = MasterRetention(file_size_bytes=1000, keeps_s=7200, room_bytes=None)
VIEW = MasterView(role="SYNC_MASTER", bounds=OffsetRange(Offset(1000), Offset(5000)), retention=RETENTION)
ANSWER = answered(VIEW, Offset(4000))
AWAY = MasterAnswer(error="away")
REPLICATED = replace(PROGRESS, position=Offset(4000), received=Offset(4500))


def run(
    *, phase: Phase = Phase.RUNNING, age_s: float = 3, pid: int = RUNNER.pid, progress: Progress = REPLICATED
) -> RunState:
    said = run_of(phase=phase, age_s=age_s, now=NOW, **progress.as_json(Readers.RUN_FILE))
    found = replace(said, writer=replace(RUNNER, pid=pid)).of(LOG)
    assert found is not None
    return found


def table(position: int, *, stored_ago_s: float = 600) -> LogState:
    stored_us = int((time.time() - stored_ago_s) * 1e6)
    row = ledger_row(0, position, first_store_timestamp=stored_us, last_store_timestamp=stored_us)
    return LogState(writer=RUNNER, commit="c", offset=Offset(position), first=Offset(0), ledger=(row,))


def status(last: RunState | None, state: LogState | None, answer: MasterAnswer) -> Progress:
    return status_of(subject(MASTER, state), last, answer, NOW)


def test_a_log_that_is_replicated() -> None:
    said = status(run(), table(4000), ANSWER).as_json()
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
        (
            run(phase=Phase.WAITING, progress=replace(REPLICATED, last_error=f"{LOG}: it broke")),
            ANSWER,
            [(5, "rocketmq/broker-a: the job waits; found it broke")],
        ),
        (None, ANSWER, [(5, f"{LOG}: no job replicates it; found none that ran. logtwin replicate starts one.")]),
        (
            run(phase=Phase.FAILED, age_s=60),
            ANSWER,
            [(5, "found failed 2026-11-21 14:04:11 UTC (1 min ago): it broke")],
        ),
        (run(pid=GONE_PID), ANSWER, [(5, "found last seen 2026-11-21 14:05:08 UTC (3 s ago): it broke")]),
        (run(), AWAY, [(3, "rocketmq/broker-a: its master cannot be asked; found away")]),
        (None, AWAY, [(5, "no job replicates it"), (3, "its master cannot be asked")]),
    ],
)
def test_what_a_monitor_is_told(last: RunState | None, answer: MasterAnswer, found: list[tuple[int, str]]) -> None:
    told = troubles(status(last, table(4000), answer), NOW)
    assert [one.exit_code for one in told] == [code for code, _ in found]
    for one, (_, words) in zip(told, found, strict=True):
        assert words in str(one)


def test_a_master_that_was_elected() -> None:
    view = replace(VIEW, epoch=Epoch(7, Offset(900)), confirmed=Offset(4500))
    said = status(run(), table(4000), answered(view, None))
    assert (said.master_epoch, said.confirmed) == (7, 4500)
    assert "epoch 7, confirmed up to 4,500" in shown(said)
    found = replace(run(), facts={**run().facts, "master_epoch": 6, "confirmed": 4400})
    asked_in_vain = status(found, table(4000), AWAY)
    assert (asked_in_vain.master_epoch, asked_in_vain.confirmed) == (6, 4400)  # as the job found it
    plain = status(run(), table(4000), ANSWER)
    assert (plain.master_epoch, plain.confirmed) == (None, None)
    assert "elected" not in shown(plain)


@pytest.mark.parametrize(
    "last", [None, run(phase=Phase.STOPPED), run(age_s=16), run(pid=GONE_PID)], ids=["none", "stopped", "old", "gone"]
)
def test_a_log_that_no_job_replicates(last: RunState | None) -> None:
    said = status(last, table(4000), ANSWER).as_json()
    assert said["running"] is False
    assert (said["received"], said["position"], said["acknowledged"]) == (4000, 4000, None if last is None else 400)
    assert (said["connected_since"], said["reconnects"]) == (None, None)
    assert (said["lag_bytes"], said["lag_s"]) == (1000, None)  # nobody saw when they came
    # the file of 1000 that holds the position is the fourth that goes, an hour and 50 minutes from now at the earliest
    assert said["until_loss_bytes"] == 3000
    assert said["until_loss_s"] == pytest.approx(7200 - 600, abs=60)
    assert said["last_error"] == (None if last is None else "it broke")


def test_what_was_acknowledged_outlives_the_job_but_not_a_repair() -> None:
    done = run(phase=Phase.DONE, progress=TOPIC_PROGRESS)
    ended, repaired = of_topic(done, BROKERS), of_topic(done, BROKERS, {0: 249, 2: 150})
    assert (ended.acknowledged, ended.partitions[0].acknowledged) == (400, 250)
    assert (repaired.acknowledged, repaired.partitions[0].acknowledged) == (None, None)


def test_a_replica_that_moved_since_the_job_spoke_and_a_complete_one() -> None:
    assert status(run(), table(4800), ANSWER).received == 4800
    said = status(None, table(5000), ANSWER)
    assert (said.lag, said.lag_s, said.until_loss_bytes, said.until_loss_s) == (0, 0, None, None)


def test_a_master_that_is_away_is_part_of_the_status() -> None:
    said = status(run(), table(4000), MasterAnswer(error=str(MasterUnreachable("no connection"))))
    assert (said.position, said.lag, said.master_maximum) == (4000, None, None)
    assert said.lag_s == 1.5
    assert said.master_role == "SYNC_MASTER"  # as the job found it
    assert said.master_error == "no connection"


def test_a_folder_without_files_hides_no_other_log(tmp_path: Path) -> None:
    logs = [{"id": f"rocketmq/{name}", "path": str(tmp_path)} for name in ("a", "b")]
    found = statuses(parse({"warehouse": str(tmp_path / "lake"), "logs": logs}, where="test"))
    assert ["no segment file" in (one.master_error or "") for one in found] == [True, True]


def is_waiting(one: socket.socket) -> bool:
    """Whether the other end is still connected, whatever it has sent."""
    one.setblocking(False)
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return True
    return False


def test_masters_that_do_not_answer_are_asked_side_by_side(tmp_path: Path) -> None:
    """The first one is still asked in vain when the last one is."""

    def hang(server: socket.socket) -> list[bool]:
        """Accept 64 connections and answer nothing. Returns which of them are there in the end."""
        with ExitStack() as waiting, server:
            asking = [waiting.enter_context(server.accept()[0]) for _ in range(64)]
            return [is_waiting(one) for one in asking]

    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    server.settimeout(PATIENCE_S)
    address = "{}:{}".format(*server.getsockname())
    logs = [{"id": f"rocketmq/{at}", "master": address, "remoting": address} for at in range(64)]
    with ThreadPoolExecutor(1) as master:
        hanging = master.submit(hang, server)
        found = statuses(parse({"warehouse": str(tmp_path), "logs": logs}, where="test"))
        assert all(hanging.result(PATIENCE_S))
    assert [one.log_id for one in found if one.master_error] == [f"rocketmq/{at}" for at in range(64)]


def shown(*logs: Progress) -> str:
    text = printed(status_blocks(list(logs), NOW), width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    return text


def test_people_read_a_block_a_log() -> None:
    one = replace(status(run(), table(4000), ANSWER), received=Offset(1234567890), host="[b]")
    text = shown(one, replace(one, last_error="no connection to 10.0.0.5:10912 " * 5, unlisted=True))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == "rocketmq/broker-a"
    assert "yes, since 2026-11-21 14:02:11 UTC (3 min ago)" in text
    assert f"{RUNNER.pid} on [b]" in text
    assert "slave of 10.0.0.5:10912, SYNC_MASTER" in text
    assert "1,234,567,890" in text
    assert "4,000, from 0" in text
    assert "1,000 to 5,000" in text
    assert "1.0 kB, 4 s" in text
    assert "7.0 kB, 1 d at the earliest" in text
    assert "2 reconnects" in text
    assert text.count("no server lists it any more") == 1
    assert lines.count("rocketmq/broker-a") == 2
    assert text.splitlines() == lines  # no blank ends a line
    assert "until loss          in the file that goes next, when is not known yet" in shown(
        replace(one, position=None, until_loss_bytes=0, until_loss_s=None)
    )


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
    text = " ".join(shown(status(last, None, AWAY)).split())
    assert words in text.partition("running ")[2]
    assert "away" in text


def test_what_a_master_says_forges_no_line_of_the_block() -> None:
    one = status(None, None, MasterAnswer(error="no\nrunning yes\x1b[2J"))
    assert r"no\nrunning yes\x1b[2J" in shown(one)


TOPIC_ID, OTHER_ID = (str(uuid.UUID(int=number)) for number in (7, 8))
BROKERS = MasterAnswer(
    held={0: span(100, 700), 2: span(0, 200), 3: span(0, 40)},  # 3 was added, and nothing of it is replicated yet
    acknowledged={0: Offset(290), 2: Offset(200), 3: Offset(0)},
    identity=TOPIC_ID,
)
POSITIONS = {0: 300, 2: 200}


def of_topic(last: RunState | None, answer: MasterAnswer, positions: Mapping[int, int] = POSITIONS) -> Progress:
    options = ReplicatedTopicOptions(id="kafka/east/orders", servers="10.0.0.5:9092")
    states = {at: replace(table(position), identity=TOPIC_ID) for at, position in positions.items()}
    return status_of(topic_subject(options, states), last, answer, NOW)


def test_a_topic_that_is_replicated() -> None:
    said = of_topic(run(progress=TOPIC_PROGRESS), BROKERS).as_json()
    assert (said["id"], said["role"], said["master"]) == ("kafka/east/orders", "consumer", "10.0.0.5:9092")
    assert (said["position"], said["received"], said["acknowledged"]) == (500, 600, 400)
    assert (said["epoch"], said["first"]) == (None, None)
    assert (said["master_minimum"], said["master_maximum"], said["acknowledged_by_master"]) == (100, 940, 490)
    assert (said["lag_offsets"], said["lag_bytes"], said["lag_ids"]) == (400 + 0 + 40, None, None)
    assert said["partitions"][0] == {
        "partition": 0,
        "epoch": 0,
        "first": 0,
        "position": 300,
        "acknowledged": 250,
        "acknowledged_by_master": 290,
        "master_minimum": 100,
        "master_maximum": 700,
        "lag_offsets": 400,
        "held_back_offsets": 0,
    }
    assert [(one["partition"], one["position"]) for one in said["partitions"]] == [(0, 300), (2, 200), (3, None)]


def test_the_brokers_are_asked_for_what_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the last stable offset; a partition without a leader is left out."""
    leaders = metadata(topic("t", [(1, 3), (-1, 4)]))
    cluster = ScriptedCluster(leaders, offsets(2), offsets(5), offsets(2), offsets(9), coordinator(), committed(p0=4))
    monkeypatch.setattr("sources.kafka.metadata.connected", cluster.connected)
    given = {"warehouse": str(tmp_path), "topics": [{"id": "kafka/east/t", "servers": "h:1", "group": "g"}]}
    (((at, one),),) = (said.partitions.items() for said in statuses(parse(given, where="test")))
    assert (at, one.master_minimum, one.master_maximum, one.acknowledged_by_master) == (0, 2, 5, 4)
    assert (one.lag, one.held_back_offsets) == (3, 4)


def test_where_a_topic_is_not_begun_not_led_or_another_one_what_follows_is_unknown() -> None:
    said = of_topic(None, replace(BROKERS, acknowledged={}), {})
    assert (said.position, said.received, said.writer, said.acknowledged_by_master) == (None, None, None, None)
    assert said.lag == 600 + 200 + 40  # all that the brokers hold
    said = of_topic(None, replace(BROKERS, identity=OTHER_ID))
    assert (said.lag, said.master_maximum, said.position) == (None, None, 500)
    assert f"replicated is {TOPIC_ID}, there is {OTHER_ID}" in (said.master_error or "")
    said = of_topic(None, replace(BROKERS, held={0: BROKERS.held[0]}))
    assert (said.lag, said.master_maximum) == (None, None)
    assert [one.lag for one in said.partitions.values()] == [400, None]


def test_a_partition_that_waits_for_an_open_transaction_says_so() -> None:
    """Its replica has all that can be read, and yet not all that was written."""
    one = of_topic(None, replace(BROKERS, held_back={2: 4}))
    assert [each.held_back_offsets for each in one.partitions.values()] == [0, 4, 0]
    text = " ".join(shown(one).split())
    assert "partition 2 200 of 0 to 200, acknowledged –, lag 0 offsets; 4 offsets wait for an open transaction" in text
    assert text.count("open transaction") == 1


def test_topics_without_messages_for_a_typed_table_are_told() -> None:
    place = LogPlace("rocketmq/a", 7, 7, 7, None)
    found = TypedStatus("orders", ("shop", "typo"), "append", TypedCounts(3), (), (place,), unmatched=("typo",))
    assert "  no message of typo so far: logtwin tables check orders says why" in list(status_lines([found]))
