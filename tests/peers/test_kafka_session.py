"""A topic and a real broker: what a session tells a consumer group, and whether the past is still the one we know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sources.errors import AboveMaximum, BelowMinimum, ConfigurationError, LogtwinError, Recreated, Rewritten
from sources.kafka.topic import KafkaTopic
from sources.master import Committed, Known, Session
from sources.offsets import LogId, Offset
from tests.patience import wait_until
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_groups import seen_by_tools
from tests.peers.kafka_reading import settings_of, topic_of
from tests.peers.kafka_traffic import Record, create_topic, delete_records, delete_topic, producer, send

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def broker(each_kafka: KafkaBroker) -> KafkaBroker:
    """With topic t of two partitions."""
    create_filled(each_kafka, "t")
    return each_kafka


def create_filled(broker: KafkaBroker, name: str) -> None:
    create_topic(broker, name, 2)
    with producer(broker) as through:
        for partition in range(2):
            send(through, name, [Record(b"%d" % number) for number in range(20)], partition)


def a_topic(broker: KafkaBroker, group: str | None = None, name: str = "t") -> KafkaTopic:
    return KafkaTopic(settings=settings_of(broker), cluster="east", topic=name, group=group)


@contextmanager
def session_of(topic: KafkaTopic) -> Iterator[Session]:
    session = topic.open_session()
    try:
        yield session
    finally:
        session.close()


def part(number: int, name: str = "t") -> LogId:
    return LogId("kafka", f"east/{name}/{number}")


def at(*positions: tuple[int, int | None]) -> dict[LogId, Committed]:
    return {part(number): Committed(Offset(offset), epoch) for number, (offset, epoch) in enumerate(positions)}


def test_a_session_tells_the_group_also_over_a_restart(broker: KafkaBroker) -> None:
    topic = a_topic(broker, "restarted")
    topic.check()
    with session_of(topic) as session:
        session.acknowledge(at((5, 0), (0, None)))
        wait_until(lambda: session.acknowledged == {part(0): 5, part(1): 0}, "an acknowledgement")
        assert seen_by_tools(broker, "restarted") == {("t", 0): (5, 0), ("t", 1): (0, -1)}

        broker.stop()
        for offset in range(6, 16):
            session.acknowledge({part(0): Committed(Offset(offset), 0)})  # which waits for nobody
        wait_until(lambda: session.state.connected_since is None, "the loss of the connection")
        assert session.acknowledged == {part(0): 5, part(1): 0}
        broker.start()
        wait_until(lambda: session.acknowledged == {part(0): 15, part(1): 0}, "the newest acknowledgement")
        assert seen_by_tools(broker, "restarted") == {("t", 0): (15, 0), ("t", 1): (0, -1)}
        assert (session.state.acknowledged, session.state.reconnects, session.failure) == (15, 1, None)
        assert session.state.last_error is not None

        session.acknowledge(at((20, 0), (20, 0)))
    assert seen_by_tools(broker, "restarted") == {("t", 0): (20, 0), ("t", 1): (20, 0)}
    topic.check()


def test_the_history_of_all_partitions_is_asked_for_at_once(broker: KafkaBroker) -> None:
    create_filled(broker, "past")
    topic, topic_id = a_topic(broker, name="past"), topic_of(broker, "past").id

    def known(*positions: tuple[int, int | None]) -> dict[LogId, Known]:
        at = enumerate(positions)
        return {part(number, "past"): Known(str(topic_id), Offset(one), epoch) for number, (one, epoch) in at}

    topic.check_history(known((20, 0), (20, 0)))
    topic.check_history(known((0, None), (7, 0)))

    def expect(kind: type[LogtwinError], log: str, *positions: tuple[int, int | None]) -> None:
        with pytest.raises(kind) as raised:
            topic.check_history(known(*positions))
        assert type(raised.value) is kind
        assert raised.value.log == log

    expect(AboveMaximum, "kafka/east/past/1", (20, 0), (21, 0))
    expect(AboveMaximum, "kafka/east/past/2", (20, 0), (20, 0), (0, None))
    expect(Rewritten, "kafka/east/past/1", (20, 0), (20, 7))  # epoch 7 was led by nobody whom it knows
    delete_records(broker, "past", 1, 9)
    expect(BelowMinimum, "kafka/east/past/1", (20, 0), (8, 0))
    topic.check_history(known((20, 0), (9, 0)))

    delete_topic(broker, "past")
    create_again(broker, "past")
    expect(Recreated, "kafka/east/past", (0, None))


def create_again(broker: KafkaBroker, name: str) -> None:
    """Of this name, once the one before is gone."""

    def is_gone() -> bool:
        try:
            topic_of(broker, name)
        except ConfigurationError:
            return True
        return False

    wait_until(is_gone, "the topic's end")
    create_topic(broker, name, 2)
