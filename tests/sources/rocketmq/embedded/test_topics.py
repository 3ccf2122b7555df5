"""Topics: created, refused, kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sources.rocketmq.embedded.remoting_service import Refused
from sources.rocketmq.embedded.topics import TopicTable
from tests import truth


def code_of(table: TopicTable, name: str, queues: int = 4) -> int:
    with pytest.raises(Refused) as refused:
        table.for_sending(name, queues)
    return refused.value.code


def test_the_topics_of_a_real_broker(fixture_550: truth.Fixture, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes((fixture_550.path / "config" / "topics.json").read_bytes())
    table = TopicTable(path)
    assert table.to_json() == json.loads(path.read_text())
    assert table.for_sending("telemetry", 1).queues == 8
    assert code_of(table, "inner-batch") == 13


def test_what_the_log_holds_is_known(tmp_path: Path) -> None:
    table = TopicTable(tmp_path / "topics.json")
    table.add_missing([("a", 0), ("a", 5), ("b", 0)])
    assert [table.for_sending(name, 4).queues for name in "ab"] == [6, 1]
    table.add_missing([("a", 7)])
    assert table.for_sending("a", 4).queues == 6


def test_a_topic_that_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    table = TopicTable(path)
    table.for_sending("closed", 4)
    config = json.loads(path.read_text())
    config["topicConfigTable"]["closed"]["perm"] = 4
    path.write_text(json.dumps(config))
    assert code_of(TopicTable(path), "closed") == 16
