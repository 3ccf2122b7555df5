"""Views beside what a live broker says, under traffic of a real Java client; and while the log grows.

That queues and the index are the broker's files is shown with stored logs: tests/sinks/views.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.patience import wait_until
from tests.peers.java_client import Sent, java_client
from tests.peers.live_replica import AT_REST, GROUPS, TOPICS, Live, live_replica
from tests.peers.logical_side import MOST_FOUND, consumer_progress, count_of, delay_offsets
from tests.peers.replicating import replicating, wait_for_all

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]

INVISIBLE = {"rolled_back", "late_rolled_back", "given_up", "pending", "immune", "cancelled"}
STATES = {"late_committed": "committed", "late_rolled_back": "rolled_back", "immune": "pending"}
ASKED_FOR = {"late_committed", "late_rolled_back", "given_up"}
REFUNDS = ("recovers", "dies", "dies_at_once", "waits")


@pytest.fixture(scope="module")
def live(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_replica(spark, tmp_path_factory.mktemp("views")) as running:
        yield running


def test_the_index_finds_what_query_by_key_finds(live: Live) -> None:
    rows = live.rows("SELECT topic, key, offset FROM message_index")
    found: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["key"]), set()).add(row["offset"])
    assert all(len(offsets) < MOST_FOUND for offsets in found.values())
    assert found == {(topic, key): live.found(topic, key) for topic, key in found}


def test_messages_are_what_consumers_can_see(live: Live) -> None:
    rows = live.rows(
        """
        SELECT *, to_json(json) AS json_text, unix_millis(stored_timestamp) AS stored_ms,
               unix_millis(delivered_timestamp) AS delivered_ms
        FROM messages
        """
    )
    visible = {live.place(one): one for one in live.said.sent if one.fate not in INVISIBLE}
    found = {(row["offset"], row["queue_offset"]): row for row in rows}
    assert found.keys() == visible.keys()
    assert len(rows) == len(found)
    for place, one in visible.items():
        row = found[place]
        assert (row["topic"], row["tags"], row["keys"] or []) == (one.topic, one.tags, one.keys)
        assert (bytes(row["body"]), row["text"]) == (one.body, as_text(one.body))
        assert (row["json_text"] and json.loads(row["json_text"])) == as_json(one.body)
        assert (row["stored_ms"], row["delivered_ms"]) == (
            live.store_time_ms(live.offset(one)),
            live.store_time_ms(place[0]),
        )
        assert row["unique_key"] == one.unique_key
        if place[0] == live.offset(one):
            assert (row["queue_id"], row["message_id"]) == (one.queue_id, one.message_id)


def test_only_what_the_application_set_is_a_property(live: Live) -> None:
    expected: dict[str, list[dict[str, str]]] = {topic: [{}] for topic in TOPICS}
    expected["orders"] = [{"channel": "web"}]
    expected["refunds"] = [{"fate": fate} for fate in sorted(REFUNDS)]
    expected["transfers"] = [{"fate": "committed"}, {"fate": "late_committed"}]
    found: dict[str, list[dict[str, str]]] = {topic: [] for topic in TOPICS}
    for row in live.rows("SELECT DISTINCT topic, to_json(properties) AS properties FROM messages ORDER BY properties"):
        found[row["topic"]].append(json.loads(row["properties"]))
    assert found == expected


def test_redeliveries_are_counted(live: Live) -> None:
    rows = live.by_unique_key("SELECT unique_key, retries FROM messages WHERE topic IN ('orders', 'refunds')")
    times = {one.unique_key: 0 for topic in ("orders", "refunds") for one in live.said.of(topic)}
    for one in live.said.consumed:
        times[one.unique_key] = max(one.times, times[one.unique_key])
    assert {key: row["retries"] for key, row in rows.items()} == times


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


def test_retries(live: Live) -> None:
    rows = live.rows("SELECT * FROM retries")
    refunds = {live.offset(one): one for one in live.said.of("refunds")}
    (waiting,) = (row for row in rows if row["state"] == "waiting")
    assert refunds[waiting["original_offset"]].fate == "waits"
    delivered = {
        (row["consumer_group"], row["delivered_offset"], row["attempt"]) for row in rows if row["state"] == "delivered"
    }
    assert delivered == {(one.group, one.offset, one.times) for one in live.said.consumed if one.times}
    for row in rows:
        assert_original(row, refunds)


def test_dead_letters(live: Live) -> None:
    rows = live.rows("SELECT * FROM dead_letters")
    dead = {entry[0] for (topic, _, _), entry in live.queues.items() if topic == "%DLQ%refunding"}
    assert {(row["consumer_group"], row["offset"]) for row in rows} == {("refunding", offset) for offset in dead}
    refunds = {live.offset(one): one for one in live.said.of("refunds", "dies", "dies_at_once")}
    assert {row["original_offset"] for row in rows} == refunds.keys()
    for row in rows:
        assert_original(row, refunds)


def assert_original(row: Row, refunds: dict[int, Sent]) -> None:
    one = refunds[row["original_offset"]]
    assert (row["topic"], row["original_message_id"]) == (one.topic, one.message_id)
    assert (row["original_queue_id"], row["original_queue_offset"]) == (one.queue_id, one.queue_offset)
    assert bytes(row["body"]) == one.body


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
        wait_until(
            lambda: count_of(live.connection, "transfers") == transfers, "the last transfer, which nobody awaits"
        )
        wait_for_all(job, live.broker)
    for look in looks:
        assert look["messages"] == look["committed"] == look["entries"]
        assert (look["torn_pairs"], look["torn_queues"]) == (0, 0)
    assert {look["end"] for look in looks} <= {row["end"] for row in live.rows("SELECT end FROM ledger")}
    assert live.rows("SELECT count(*) FROM messages WHERE topic = 'transfers'") == [(transfers,)]


def as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def as_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
