"""The newest broker, live: what it answers its producer is in the views, and its consume queue is."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.views.definition import named_in
from sinks.views.registration import register
from sources.offsets import LogId
from tests.patience import wait_until
from tests.peers.logical_side import consume_queues, count_of
from tests.peers.rocketmq import Broker
from tests.peers.sender import BODY, Sender
from tests.peers.wire import Connection
from tests.sinks.views.lake import rows, write_records

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly]

SENT = 50


def test_messages_and_their_queue_are_the_brokers(spark: SparkSession, broker_550: Broker, tmp_path: Path) -> None:
    sent = Sender(broker_550.port, "live").send(SENT)
    with Connection(broker_550.port) as connection:
        wait_until(lambda: count_of(connection, "live") == SENT, "the queue of what was sent")
        write_records(tmp_path, LogId("rocketmq", "b1"), broker_550.log_bytes(connection.log_bounds().end))
    session = spark.newSession()
    register(session, str(tmp_path), views=named_in("messages consume_queue"))
    messages = rows(session.sql("SELECT unique_key, offset, body FROM messages WHERE topic = 'live' ORDER BY offset"))
    assert [tuple(row.values()) for row in messages] == sorted(
        ((one.unique_key, one.offset, BODY) for one in sent), key=itemgetter(1)
    )
    queue = rows(
        session.sql("SELECT queue_id, queue_offset, offset, size, tags_code FROM consume_queue WHERE topic = 'live'")
    )
    assert {("live", *row.values()) for row in queue} == {
        (*place, *entry) for place, entry in consume_queues(broker_550.store).items() if place[0] == "live"
    }
