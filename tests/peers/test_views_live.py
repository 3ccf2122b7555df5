"""Views beside what a live broker says, under traffic of a real Java client; and while the log grows.

What stored logs of real brokers show as well, tests/sinks/views shows: queues, index, messages, redeliveries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from tests.patience import wait_until
from tests.peers.java_client import java_client
from tests.peers.live_replica import AT_REST, GROUPS, Live, live_replica
from tests.peers.logical_side import consumer_progress, count_of, delay_offsets
from tests.peers.replicating import replicating, wait_for_all
from tests.peers.wire import Connection

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

STATES = {"late_committed": "committed", "late_rolled_back": "rolled_back", "immune": "pending"}
ASKED_FOR = {"late_committed", "late_rolled_back", "given_up"}


@pytest.fixture(scope="module")
def live(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_replica(spark, tmp_path_factory.mktemp("views")) as running:
        yield running


def test_transactions(live: Live) -> None:
    rows = live.by_unique_key("SELECT *, transaction_id AS unique_key FROM transactions")
    sent = {one.unique_key: one for one in live.said.of("transfers")}
    assert rows.keys() == sent.keys()
    for key, one in sent.items():
        row = rows[key]
        assert row["state"] == STATES.get(one.fate, one.fate), one
        if row["state"] != "pending":  # the broker counts on when nobody is there to answer
            assert row["checks"] == live.said.checks[key], one
            assert (row["checks"] > 0) == (one.fate in ASKED_FOR), one
        assert (row["producer_group"], row["topic"], row["half_offset"]) == ("bank", "transfers", live.offset(one))
        assert {row["message_offset"]} - {None} == live.found("transfers", key), one


def test_delayed_messages(live: Live) -> None:
    """Of each level so many were delivered as the broker says: its count has the retries, too, which waited by level 1.

    Its count of the timers that wait is of no use here: a timer that is put again spoils it.
    """
    rows = live.by_unique_key("SELECT *, unix_millis(due_timestamp) AS due_ms FROM delayed_messages")
    tags_codes = {offset: tags_code for offset, _, tags_code in live.queues.values()}
    sent = {one.unique_key: one for topic in ("reminders", "alarms") for one in live.said.of(topic)}
    assert rows.keys() == sent.keys()
    for key, one in sent.items():
        row = rows[key]
        assert (row["topic"], row["state"], row["parked_offset"]) == (one.topic, one.fate, live.offset(one)), one
        assert row["kind"] == ("level" if one.topic == "reminders" else "timer")
        if row["kind"] == "level":
            assert row["due_ms"] == tags_codes[live.offset(one)]
        assert {row["delivered_offset"]} - {None} == live.found(one.topic, key), one
    levels = Counter(row["level"] for row in rows.values() if row["state"] == "delivered" and row["kind"] == "level")
    assert levels + Counter({1: AT_REST["%RETRY%refunding"]}) == Counter(delay_offsets(live.connection))


def test_consumer_lag_is_what_consumer_progress_says(live: Live) -> None:
    """Seconds are up to the newest record of the replica. Of a queue without entries a broker forgets the offsets."""
    rows = live.rows(
        """
        SELECT consumer_group, topic, queue_id, end_queue_offset, coalesce(next_queue_offset, 0), messages_behind,
               unix_millis(last_consumed_timestamp), seconds_behind
        FROM consumer_lag
        WHERE end_queue_offset > 0
        """
    )
    newest_ms = live.store_time_ms(max(offset for offset, _, _ in live.queues.values()))
    expected = {}
    for group in GROUPS:
        for (topic, queue_id), stats in consumer_progress(live.connection, group).items():
            end, at = stats["brokerOffset"], stats["consumerOffset"]
            if not end:
                continue
            behind_s = (newest_ms - live.store_time_ms(live.queues[topic, queue_id, at][0])) / 1000 if at < end else 0
            expected[group, topic, queue_id] = end, at, end - at, stats["lastTimestamp"] or None, behind_s
    assert sum(behind for _, _, behind, _, _ in expected.values()) == 5
    assert {tuple(row[:3]): tuple(row[3:]) for row in rows} == expected


LOOK = """
WITH queues AS (
  SELECT topic, count(*) AS entries, max(queue_offset) + 1 AS end
  FROM consume_queue
  GROUP BY topic, queue_id
),
dense AS (
  SELECT sum(entries) FILTER (WHERE topic = 'transfers') AS entries, count_if(entries <> end) AS torn_queues
  FROM queues
),
pairs AS (
  SELECT
    count(messages.offset) AS messages,
    count(transactions.message_offset) AS committed,
    count_if(messages.offset IS NULL OR transactions.message_offset IS NULL) AS torn_pairs
  FROM (SELECT offset FROM messages WHERE topic = 'transfers') AS messages
  FULL OUTER JOIN (SELECT message_offset FROM transactions WHERE state = 'committed') AS transactions
    ON messages.offset = transactions.message_offset
)
SELECT *
FROM (SELECT max(offset + size) AS end FROM log)
CROSS JOIN dense
CROSS JOIN pairs
"""


def test_a_query_sees_one_commit_while_the_log_grows(live: Live, tmp_path: Path) -> None:
    """A committed message comes after its half message: every commit of the table has both, and their transaction."""
    looks: list[Row] = []
    with (
        java_client(live.names, tmp_path, "grow") as client,
        replicating(live.spark, live.warehouse, live.broker) as job,
    ):
        while len({look["end"] for look in looks}) < 2:
            looks += live.rows(LOOK)
        client.go_on()
        transfers = AT_REST["transfers"] + len(client.said().of("transfers", "committed"))
        with Connection(live.broker.port) as connection:  # the broker ends one that was idle for two minutes
            wait_until(lambda: count_of(connection, "transfers") == transfers, "the last transfer, which nobody awaits")
        wait_for_all(job, live.broker)
    for look in looks:
        assert look["messages"] == look["committed"] == look["entries"]
        assert (look["torn_pairs"], look["torn_queues"]) == (0, 0)
    assert {look["end"] for look in looks} <= {row["end"] for row in live.rows("SELECT end FROM ledger")}
    assert live.rows("SELECT count(*) FROM messages WHERE topic = 'transfers'") == [(transfers,)]
