"""Topics of a real broker whose partitions several jobs share: each record once, and one group that all tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from sinks.books.topic_states import topics_held
from sources.kafka.topic import open_topic
from sources.offsets import Offset
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_traffic import Record, add_partitions, create_topic, producer, send
from tests.peers.kafka_twin import assert_replicated, config_of, group_offsets
from tests.pipeline.group_in_process import use_plain
from tests.pipeline.test_shards import Thread
from tests.sinks.plain_session import PlainSession

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

TOPICS = ("shared-a", "shared-b", "shared-c")
PARTITIONS = 8


@dataclass
class Shared:
    """The topics of a broker, and the jobs that share them."""

    broker: KafkaBroker
    config: Config
    jobs: dict[str, Thread] = field(default_factory=dict)

    def start(self, *shards: str) -> None:
        for shard in shards:
            self.jobs[shard] = Thread(cast(SparkSession, PlainSession()), self.config.in_shard(shard))
            self.jobs[shard].start()

    def end(self, *shards: str) -> None:
        for shard in shards:
            self.jobs.pop(shard).end()

    def write(self, count: int) -> None:
        """So many records to each partition."""
        with producer(self.broker) as through:
            for name, ends in self._ends().items():
                for number in ends:
                    send(through, name, [Record(b"%d" % at) for at in range(count)], number)

    def await_ends(self) -> None:
        """Until all is committed, and the group knows."""
        wait_until(lambda: self._committed() == self._ends(), lambda: str([one.error for one in self.jobs.values()]))
        wait_until(lambda: self._told() == self._ends(), lambda: str(self._told()))

    def _committed(self) -> dict[str, Mapping[int, Offset | None]]:
        held = topics_held(self.config.warehouse)
        found = {one.topic: held.get(one.log_id, {}) for one in self.config.named_topics}
        return {name: {number: one.offset for number, one in states.items()} for name, states in found.items()}

    def _told(self) -> dict[str, dict[int, int]]:
        return {name: group_offsets(self.broker, name) for name in TOPICS}

    def _ends(self) -> dict[str, Mapping[int, Offset]]:
        return {one.topic: open_topic(one).bounds().latest.next for one in self.config.named_topics}


def test_partitions_of_topics_move_between_shards_while_they_grow(
    newest_kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two shards to three, with one of the old left for a while; a topic gains partitions meanwhile."""
    use_plain(monkeypatch)
    for name in TOPICS:
        create_topic(newest_kafka, name, PARTITIONS)
    shared = Shared(newest_kafka, config_of(newest_kafka, tmp_path, *TOPICS))
    shared.write(20)
    try:
        shared.start("1/2", "2/2")
        shared.await_ends()
        shared.end("2/2")
        shared.start("1/3", "2/3", "3/3")
        add_partitions(newest_kafka, TOPICS[0], PARTITIONS + 4)
        shared.write(20)
        shared.await_ends()
        shared.end("1/2")
        shared.write(20)
        shared.await_ends()
    finally:
        shared.end(*shared.jobs)
    assert assert_replicated(tmp_path, newest_kafka, *TOPICS) == 60 * PARTITIONS * len(TOPICS) + 40 * 4
