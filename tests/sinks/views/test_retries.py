"""Redeliveries and dead letters with their originals: of the real logs, and what these do not hold."""

from collections import Counter
from typing import Any

import pytest

from sinks.tables import LOG
from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from tests.sinks.views.lake import Asked, Row
from tests.sinks.views.stored_logs import Scenario, StoredLog, check, made_rows, message_id, time
from tests.truth import Fixture

pytestmark = pytest.mark.spark

PARKED = "SCHEDULE_TOPIC_XXXX"
RETRY, DEAD = "%RETRY%cg-fail", "%DLQ%cg-fail"


def body_of(fixture: Fixture, row: dict[str, Any]) -> bytes | None:
    record = commitlog.decode(fixture.log, row["physical_offset"], Offset(row["physical_offset"]))
    assert isinstance(record, commitlog.Message)
    return commitlog.decompress(record.body, record.sys_flag)


def original_of(fixture: Fixture, row: dict[str, Any]) -> dict[str, Any]:
    """The columns that tell of the message with the id that a redelivery names."""
    named = row["properties"].get("ORIGIN_MESSAGE_ID")
    found = next((one for one in fixture.rows if "msg_id" in one and one["msg_id"] == named), None)
    return {
        "original_message_id": named,
        "original_offset": found and found["physical_offset"],
        "original_queue_id": found and found["queue_id"],
        "original_queue_offset": found and found["queue_offset"],
        "original_timestamp": found and time(found["store_timestamp"]),
    }


def of_the_message(fixture: Fixture, row: dict[str, Any]) -> dict[str, Any]:
    properties = row["properties"]
    return {
        "topic": properties.get("RETRY_TOPIC"),
        "unique_key": properties["UNIQ_KEY"],
        "tags": properties.get("TAGS"),
        "keys": properties["KEYS"].split(" ") if "KEYS" in properties else None,
        "body": body_of(fixture, row),
        "born_timestamp": time(row["born_timestamp"]),
    }


def expected_retry(fixture: Fixture, parked: dict[str, Any] | None, copy: dict[str, Any]) -> dict[str, Any]:
    return {
        "consumer_group": copy["topic"].removeprefix("%RETRY%"),
        "attempt": copy["reconsume_times"],
        "state": "delivered",
        **of_the_message(fixture, copy),
        "parked_timestamp": parked and time(parked["store_timestamp"]),
        "due_timestamp": parked and time(parked["tags_code"]),
        "delivered_timestamp": time(copy["store_timestamp"]),
        "parked_offset": parked and parked["physical_offset"],
        "delivered_offset": copy["physical_offset"],
        "message_id": copy["msg_id"],
        "queue_id": copy["queue_id"],
        "queue_offset": copy["queue_offset"],
        **original_of(fixture, copy),
    }


def test_each_redelivery_with_its_original(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    """All of them were delivered. What a client sent to a retry topic itself (5.5.0) never waited."""
    waited = {
        (row["properties"]["UNIQ_KEY"], row["reconsume_times"]): row
        for row in fixture_log.rows
        if row.get("topic") == PARKED and row["properties"]["REAL_TOPIC"] == RETRY
    }
    assert len(waited) == 14
    expected = [
        expected_retry(fixture_log, waited.pop((row["properties"]["UNIQ_KEY"], row["reconsume_times"]), None), row)
        for row in fixture_log.rows
        if row.get("topic", "").startswith("%RETRY%")
    ]
    assert not waited
    groups = Counter(row["consumer_group"][:7] for row in expected)
    assert groups == ({"cg-fail": 14} if fixture_log.version == "4.9.7" else {"cg-fail": 14, "cg_long": 3})
    assert all(row["original_offset"] is not None for row in expected if row["consumer_group"] == "cg-fail")
    assert asked.rows("retries", log_id, "delivered_offset") == expected


def test_each_dead_letter_with_its_original(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    expected = [
        {
            "consumer_group": "cg-fail",
            "attempts": row["reconsume_times"],
            **of_the_message(fixture_log, row),
            "dead_timestamp": time(row["store_timestamp"]),
            "offset": row["physical_offset"],
            "message_id": row["msg_id"],
            "queue_id": row["queue_id"],
            "queue_offset": row["queue_offset"],
            **original_of(fixture_log, row),
        }
        for row in fixture_log.rows
        if row.get("topic") == DEAD
    ]
    assert len(expected) == 8
    assert {row["topic"] for row in expected} == {"fail-topic"}
    assert all(row["original_offset"] is not None for row in expected)
    assert asked.rows("dead_letters", log_id, "offset") == expected


def returned(original: commitlog.Message, group: str = "group") -> dict[str, str]:
    """The properties of what a consumer gave back."""
    return {
        "DELAY": "3",
        "REAL_TOPIC": f"%RETRY%{group}",
        "REAL_QID": "0",
        "RETRY_TOPIC": original.topic,
        "ORIGIN_MESSAGE_ID": message_id(original),
        "UNIQ_KEY": "k",
    }


def what_waits_and_what_came(log: StoredLog) -> list[Row]:
    """Each attempt is one, each group has its own, and two consumers may give back the same."""
    sent = log.put("orders", {"UNIQ_KEY": "k"}, queue_id=3)
    first, twice = (log.put(PARKED, returned(sent), queue_id=2, reconsume_times=1) for _ in range(2))
    other = log.put(PARKED, returned(sent, "other"), queue_id=2, reconsume_times=1)
    came = log.put("%RETRY%group", returned(sent), reconsume_times=1)
    came_too = log.put("%RETRY%other", returned(sent, "other"), reconsume_times=1)
    second = log.put(PARKED, returned(sent) | {"DELAY": "4"}, queue_id=3, reconsume_times=2)
    original = {"topic": "orders", "original_offset": sent.offset, "original_queue_id": 3}
    waits = {"state": "waiting", "delivered_offset": None, "message_id": None} | original
    delivered = {"state": "delivered"} | original
    group, others = {"consumer_group": "group", "attempt": 1}, {"consumer_group": "other", "attempt": 1}
    return [
        group | delivered | {"parked_offset": first.offset, "delivered_offset": came.offset},
        group | waits | {"parked_offset": twice.offset},
        others | delivered | {"parked_offset": other.offset, "delivered_offset": came_too.offset},
        waits | {"attempt": 2, "due_timestamp": time(second.store_timestamp_ms + 30_000)},
    ]


def what_pop_consumers_get(log: StoredLog) -> list[Row]:
    """5.x: nothing waits and nothing tells of the original, but newer brokers name the topic."""
    named = log.put("%RETRY%group+orders", {"UNIQ_KEY": "k"}, reconsume_times=1)
    plain = log.put("%RETRY%group_orders", {"UNIQ_KEY": "k"}, reconsume_times=1)
    at_once = {"state": "delivered", "parked_offset": None, "due_timestamp": None, "original_offset": None}
    return [
        at_once | {"consumer_group": "group", "topic": "orders", "delivered_offset": named.offset},
        at_once | {"consumer_group": "group_orders", "topic": None, "delivered_offset": plain.offset},
    ]


NO_ORIGINALS = ("zz", "F" * 32, "7F000001000051AF0000000000000001", "7F" * 40, "k", "0A000001000051AF0000000000000000")


def redeliveries_of_nothing(log: StoredLog) -> list[Row]:
    """What names no record finds none, whatever it says: here of another broker, at the offset of a record."""
    sent = log.put("orders", {"UNIQ_KEY": "k"})
    for named in NO_ORIGINALS:
        log.put("%RETRY%group", returned(sent) | {"ORIGIN_MESSAGE_ID": named}, reconsume_times=1)
    nothing = {"topic": "orders", "original_offset": None, "original_queue_id": None}
    return [nothing | {"original_message_id": named} for named in NO_ORIGINALS]


RETRIES = (what_waits_and_what_came, what_pop_consumers_get, redeliveries_of_nothing)


def dead_letters_of_nothing(log: StoredLog) -> list[Row]:
    sent = log.put("orders", {"UNIQ_KEY": "k"})
    for named in NO_ORIGINALS:
        log.put("%DLQ%group", returned(sent) | {"ORIGIN_MESSAGE_ID": named}, reconsume_times=17)
    nothing = {"consumer_group": "group", "attempts": 17, "topic": "orders", "original_offset": None}
    return [nothing | {"original_message_id": named} for named in NO_ORIGINALS]


def a_dead_letter_that_tells_itself(log: StoredLog) -> list[Row]:
    """Or tells nothing."""
    sent = log.put("orders", {"UNIQ_KEY": "k"}, queue_id=1)
    log.put("%DLQ%group", {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": message_id(sent), "UNIQ_KEY": "k"})
    log.put("%DLQ%group", {"ORIGIN_MESSAGE_ID": message_id(sent)})
    log.put("%DLQ%group", {"DLQ_ORIGIN_TOPIC": "payments", "RETRY_TOPIC": "orders"})
    log.put("%DLQ%group", b"")
    original = {"topic": "orders", "original_offset": sent.offset, "original_queue_id": 1}
    stored = {"original_queue_offset": 0, "original_timestamp": time(sent.store_timestamp_ms)}
    nothing = {"topic": None, "original_message_id": None, "original_offset": None, "unique_key": None}
    return [original | stored, original, nothing | {"topic": "payments"}, nothing]


DEAD_LETTERS = (dead_letters_of_nothing, a_dead_letter_that_tells_itself)


MADE_ROWS = {LOG: made_rows(*RETRIES, *DEAD_LETTERS)}


@pytest.mark.parametrize("scenario", RETRIES)
def test_retries_that_the_real_logs_do_not_hold(asked: Asked, scenario: Scenario) -> None:
    check(asked, "retries", scenario, "parked_offset", "delivered_offset")


@pytest.mark.parametrize("scenario", DEAD_LETTERS)
def test_dead_letters_that_the_real_logs_do_not_hold(asked: Asked, scenario: Scenario) -> None:
    check(asked, "dead_letters", scenario, "offset")
