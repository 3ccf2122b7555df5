"""What the table, the running job and the brokers say of a topic, as one."""

from __future__ import annotations

import io
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.config.configuration import parse
from pipeline.inspect.asked import MasterAnswer
from pipeline.inspect.asked_topics import subject
from pipeline.inspect.status import status_of, statuses
from pipeline.inspect.status_text import status_blocks
from pipeline.monitoring.facts import Readers
from pipeline.monitoring.progress import Phase
from pipeline.monitoring.run_state import RunState, process_space
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import Offset
from tests.pipeline.sample_progress import TOPIC_PROGRESS
from tests.sources.kafka.group_answers import committed, coordinator
from tests.sources.kafka.scripted_cluster import ScriptedCluster, metadata, offsets, topic
from tests.spans import span

NOW = datetime(2026, 11, 21, 14, 5, 11, tzinfo=UTC)
OPTIONS = ReplicatedTopicOptions(id="kafka/east/orders", servers="10.0.0.5:9092")
TOPIC_ID = uuid.UUID(int=7)
RUNNER = this_writer()


def at(offset: int, first: int = 0) -> LogState:
    return LogState(
        writer=RUNNER, commit="c", offset=Offset(offset), first=Offset(first), identity=str(TOPIC_ID), mark=3
    )


STATES = {0: at(300, first=20), 2: at(200)}
# partition 3 was added, and nothing of it is replicated yet
ANSWER = MasterAnswer(
    identity=str(TOPIC_ID),
    held={0: span(100, 700), 2: span(0, 200), 3: span(0, 40)},
    acknowledged={0: Offset(290), 2: Offset(200), 3: Offset(0)},
)
RUN = RunState(
    writer=RUNNER,
    process_space=process_space(),
    updated_at=NOW - timedelta(seconds=3),
    phase=Phase.RUNNING,
    facts=TOPIC_PROGRESS.as_json(Readers.RUN_FILE),
)


def test_a_topic_that_is_replicated() -> None:
    said = status_of(subject(OPTIONS, STATES), RUN, ANSWER, NOW).as_json()
    assert (said["id"], said["role"], said["master"]) == ("kafka/east/orders", "consumer", "10.0.0.5:9092")
    assert (said["running"], said["phase"], said["run"], said["pid"]) == (True, "running", RUNNER.run, RUNNER.pid)
    assert (said["position"], said["received"], said["acknowledged"]) == (500, 600, 400)
    assert (said["master_minimum"], said["master_maximum"], said["acknowledged_by_master"]) == (100, 940, 490)
    assert (said["lag_offsets"], said["lag_bytes"], said["lag_ids"]) == (400 + 0 + 40, None, None)
    assert said["lag_s"] == 4.5  # the job said 1.5 s, 3 s ago
    assert said["partitions"][0] == {
        "partition": 0,
        "epoch": 0,
        "first": 20,
        "position": 300,
        "acknowledged": 250,
        "acknowledged_by_master": 290,
        "master_minimum": 100,
        "master_maximum": 700,
        "lag_offsets": 400,
        "held_back_offsets": 0,
    }
    assert [one["partition"] for one in said["partitions"]] == [0, 2, 3]
    assert [one["position"] for one in said["partitions"]] == [300, 200, None]


def test_the_brokers_are_asked_for_what_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the last stable offset; a partition without a leader is left out."""
    leaders = metadata(topic("t", [(1, 3), (-1, 4)]))
    cluster = ScriptedCluster(leaders, offsets(2), offsets(5), offsets(2), offsets(9), coordinator(), committed(p0=4))
    monkeypatch.setattr("sources.kafka.metadata.connected", cluster.connected)
    given = {"warehouse": str(tmp_path), "topics": [{"id": "kafka/east/t", "servers": "h:1", "group": "g"}]}
    (((at, one),),) = (said.partitions.items() for said in statuses(parse(given, where="test")))
    assert (at, one.master_minimum, one.master_maximum, one.acknowledged_by_master) == (0, 2, 5, 4)
    assert (one.lag, one.held_back_offsets) == (3, 4)


def test_a_topic_that_nobody_has_begun() -> None:
    said = status_of(subject(OPTIONS, {}), None, replace(ANSWER, acknowledged={}), NOW)
    assert (said.running, said.phase, said.position, said.received, said.writer) == (False, None, None, None, None)
    assert said.lag == 600 + 200 + 40  # all that the brokers hold
    assert said.acknowledged_by_master is None
    assert [one.position for one in said.partitions.values()] == [None, None, None]


def test_offsets_of_a_topic_that_was_created_again_are_not_compared() -> None:
    said = status_of(subject(OPTIONS, STATES), None, replace(ANSWER, identity=str(uuid.UUID(int=8))), NOW)
    assert (said.lag, said.master_maximum, said.position) == (None, None, 500)
    assert str(uuid.UUID(int=8)) in (said.master_error or "")
    assert str(TOPIC_ID) in (said.master_error or "")


def test_a_partition_that_nobody_leads_leaves_the_lag_unknown() -> None:
    answer = replace(ANSWER, held={0: ANSWER.held[0]})
    said = status_of(subject(OPTIONS, STATES), None, answer, NOW)
    assert (said.lag, said.master_maximum) == (None, None)
    assert [one.lag for one in said.partitions.values()] == [400, None]


def test_a_partition_that_waits_for_an_open_transaction_says_so() -> None:
    """Its replica has all that can be read, and yet not all that was written."""
    status = status_of(subject(OPTIONS, STATES), None, replace(ANSWER, held_back={2: 4}), NOW)
    assert [one["held_back_offsets"] for one in status.as_json()["partitions"]] == [0, 4, 0]
    console = Console(file=io.StringIO(), width=200)
    console.print(status_blocks([status], NOW))
    text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]  # a StringIO
    assert "partition 2 200 of 0 to 200, acknowledged –, lag 0 offsets; 4 offsets wait for an open transaction" in text
    assert text.count("open transaction") == 1
