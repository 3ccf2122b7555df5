"""Which delayed messages wait and which were delivered: as the real brokers count, and what their logs do not hold."""

import re
from collections import Counter
from typing import Any

import pytest

from sinks.tables import LOG
from sources.rocketmq.format.commitlog import Message
from tests.sinks.views.lake import Asked, Row
from tests.sinks.views.stored_logs import START_MS, Scenario, StoredLog, check, made_rows, message_id, time
from tests.truth import Fixture

pytestmark = pytest.mark.spark

LEVELS = "SCHEDULE_TOPIC_XXXX"
TIMERS = "rmq_sys_wheel_timer"


def next_offsets(fixture: Fixture) -> dict[int, int]:
    """Delay level -> queue offset that the broker delivers next, from its delayOffset.json."""
    text = (fixture.path / "config" / "delayOffset.json").read_text()
    table = text[text.index('"offsetTable"') :]
    return {int(level): int(offset) for level, offset in re.findall(r"(\d+):(\d+)", table)}


def copies_in(fixture: Fixture, topic: str) -> dict[str, dict[str, Any]]:
    """The records of a topic that were parked before, by unique key."""
    return {
        row["properties"]["UNIQ_KEY"]: row
        for row in fixture.rows
        if row.get("topic") == topic and "REAL_TOPIC" in row["properties"]
    }


def expected_row(parked: dict[str, Any], copy: dict[str, Any] | None, state: str, due_ms: int) -> dict[str, Any]:
    properties = parked["properties"]
    is_timer = parked["topic"] == TIMERS
    return {
        "kind": "timer" if is_timer else "level",
        "level": None if is_timer else parked["queue_id"] + 1,
        "state": state,
        "topic": properties["REAL_TOPIC"],
        "queue_id": int(properties["REAL_QID"]),
        "unique_key": properties["UNIQ_KEY"],
        "tags": properties.get("TAGS"),
        "keys": properties["KEYS"].split(" ") if "KEYS" in properties else None,
        "born_timestamp": time(parked["born_timestamp"]),
        "parked_timestamp": time(parked["store_timestamp"]),
        "due_timestamp": time(due_ms),
        "cancelled_timestamp": None,
        "delivered_timestamp": copy and time(copy["store_timestamp"]),
        "parked_offset": parked["physical_offset"],
        "delivered_offset": copy and copy["physical_offset"],
        "message_id": copy and copy["msg_id"],
        "queue_offset": copy and copy["queue_offset"],
    }


def found_rows(asked: Asked, log_id: str, kind: str) -> list[dict[str, Any]]:
    return [row for row in asked.rows("delayed_messages", log_id, "parked_offset") if row["kind"] == kind]


def test_levels_as_the_broker_counts_them(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    next_of_level, copies = next_offsets(fixture_log), copies_in(fixture_log, "delay-topic")
    expected = []
    for row in fixture_log.rows:
        if row.get("topic") == LEVELS and row["properties"]["REAL_TOPIC"] == "delay-topic":
            is_delivered = row["queue_offset"] < next_of_level.get(row["queue_id"] + 1, 0)
            copy = copies.pop(row["properties"]["UNIQ_KEY"]) if is_delivered else None
            expected.append(expected_row(row, copy, "delivered" if copy else "pending", row["tags_code"]))
    assert not copies
    assert Counter(row["state"] for row in expected) == {"delivered": 25, "pending": 20}
    assert found_rows(asked, log_id, "level") == expected


def test_timers_and_the_one_that_was_recalled(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    copies = copies_in(fixture_log, "timer-topic")
    timers = [row for row in fixture_log.rows if row.get("topic") == TIMERS]
    recalls = {row["properties"].get("TIMER_DEL_UNIQKEY"): row for row in timers}
    expected = []
    for row in timers:
        if "TIMER_DEL_UNIQKEY" not in row["properties"]:
            key = row["properties"]["UNIQ_KEY"]
            copy = copies.pop(key, None)
            state = "delivered" if copy else "cancelled" if key in recalls else "pending"
            expected.append(expected_row(row, copy, state, int(row["properties"]["TIMER_OUT_MS"])))
            if key in recalls:
                expected[-1]["cancelled_timestamp"] = time(recalls[key]["store_timestamp"])
    assert not copies
    states = {} if fixture_log.version == "4.9.7" else {"delivered": 7, "cancelled": 1, "pending": 4}
    assert Counter(row["state"] for row in expected) == states
    assert found_rows(asked, log_id, "timer") == expected


def parked(level: int, **more: str) -> dict[str, str]:
    return {"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "1", **more}


def put_level(log: StoredLog, level: int, properties: dict[str, str] | None = None, **fields: Any) -> Message:
    return log.put(LEVELS, parked(level) | (properties or {}), queue_id=level - 1, **fields)


def timer(unique_key: str, out_ms: int | str, **more: str) -> dict[str, str]:
    return {
        "UNIQ_KEY": unique_key,
        "REAL_TOPIC": "orders",
        "REAL_QID": "1",
        "TIMER_OUT_MS": str(out_ms),
        "TIMER_DELIVER_MS": str(out_ms),
        **more,
    }


def row(waiting: Message, state: str, copy: Message | None = None) -> Row:
    """What is asked of a message that was parked as `waiting`."""
    return {
        "parked_offset": waiting.offset,
        "parked_timestamp": time(waiting.store_timestamp_ms),
        "state": state,
        "delivered_offset": copy and copy.offset,
        "message_id": copy and message_id(copy),
        "queue_offset": copy and copy.queue_offset,
    }


def the_same_key_twice(log: StoredLog) -> list[Row]:
    """Sent again with a shorter delay, it is delivered before the first; within one millisecond, too. A broker that was
    killed delivers again.
    """
    key, again = {"UNIQ_KEY": "twice"}, {"born_timestamp_ms": START_MS + 7}
    slow, quick = put_level(log, 5, key), put_level(log, 1, key, **again)
    twin_slow, twin_quick = put_level(log, 4, {"UNIQ_KEY": "twin"}), put_level(log, 2, {"UNIQ_KEY": "twin"})
    quick_copy, _once_more = (log.put("orders", parked(1, UNIQ_KEY="twice"), queue_id=1, **again) for _ in range(2))
    twin_copy = log.put("orders", parked(2, UNIQ_KEY="twin"), queue_id=1)
    slow_copy = log.put("orders", parked(5, UNIQ_KEY="twice"), queue_id=1)
    return [
        row(slow, "delivered", slow_copy),
        row(quick, "delivered", quick_copy),
        row(twin_slow, "pending"),
        row(twin_quick, "delivered", twin_copy),
    ]


def the_same_in_all_but_place(log: StoredLog) -> list[Row]:
    """Sent twice in one millisecond and stored in one: two messages, delivered one after the other."""
    at_once = {"store_timestamp_ms": START_MS}
    first, second = (put_level(log, 1, {"UNIQ_KEY": "same"}, **at_once) for _ in range(2))
    copy = log.put("orders", parked(1, UNIQ_KEY="same"), queue_id=1)
    return [row(first, "delivered", copy), row(second, "pending")]


def without_a_unique_key(log: StoredLog) -> list[Row]:
    one, two, three = (put_level(log, 1, body=body) for body in (b"one", b"two", b"two"))
    copies = [log.put("orders", parked(1), queue_id=1, body=body) for body in (b"two", b"one")]
    return [row(one, "delivered", copies[1]), row(two, "delivered", copies[0]), row(three, "pending")]


def what_is_no_copy_of_it(log: StoredLog) -> list[Row]:
    """Another queue, another topic, or sent without a delay: with the same key and the same birth."""
    waiting = put_level(log, 3, {"UNIQ_KEY": "k"})
    log.put("orders", parked(3, UNIQ_KEY="k"), queue_id=0)
    log.put("payments", parked(3, UNIQ_KEY="k"), queue_id=1)
    log.put("orders", {"UNIQ_KEY": "k"}, queue_id=1)
    return [row(waiting, "pending") | {"kind": "level", "level": 3}]


def what_is_no_delayed_message(log: StoredLog) -> list[Row]:
    """A redelivery is none, and what the broker itself waits for."""
    put_level(log, 3, {"UNIQ_KEY": "k", "REAL_TOPIC": "%RETRY%group"})
    log.put(TIMERS, timer("ck", START_MS + 9000) | {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_c1"})
    return []


def timers_that_roll(log: StoredLog) -> list[Row]:
    """Beyond the reach of the wheel they are parked again, with the same time and the number of rolls."""
    out_ms = START_MS + 3 * 86_400_000
    far, farther = log.put(TIMERS, timer("far", out_ms)), log.put(TIMERS, timer("farther", out_ms + 1000))
    log.put(TIMERS, timer("far", out_ms, TIMER_ROLL_TIMES="1", TIMER_ENQUEUE_MS="1"))
    log.put(TIMERS, timer("far", out_ms, TIMER_ROLL_TIMES="2", TIMER_ENQUEUE_MS="2"))
    log.put(TIMERS, timer("farther", out_ms + 1000, TIMER_ROLL_TIMES="1"))
    copy = log.put("orders", timer("far", out_ms, TIMER_ROLL_TIMES="2", TIMER_DEQUEUE_MS="3"), queue_id=1)
    return [row(far, "delivered", copy) | {"due_timestamp": time(out_ms), "level": None}, row(farther, "pending")]


def recalls(log: StoredLog) -> list[Row]:
    """Too late for what was delivered; with another time it never meets its message. Some brokers name the topic.
    A level heeds none.
    """
    out_ms = START_MS + 60_000
    names = ("recalled", "late", "missed", "with topic")
    puts = {name: log.put(TIMERS, timer(name, out_ms)) for name in names}
    copy = log.put("orders", timer("late", out_ms, TIMER_DEQUEUE_MS="1"), queue_id=1)
    level = put_level(log, 3, {"UNIQ_KEY": "level", "TIMER_DEL_UNIQKEY": "missed"}, store_timestamp_ms=out_ms - 10_000)
    recall = log.put(TIMERS, timer("recalled", out_ms, TIMER_DEL_UNIQKEY="recalled"))
    log.put(TIMERS, timer("late", out_ms, TIMER_DEL_UNIQKEY="late"))
    log.put(TIMERS, timer("missed", out_ms + 1000, TIMER_DEL_UNIQKEY="missed"))
    log.put(TIMERS, timer("with topic", out_ms, TIMER_DEL_UNIQKEY="orders+with topic"))
    log.put(TIMERS, timer("level", out_ms, TIMER_DEL_UNIQKEY="level"))
    return [
        row(puts["recalled"], "cancelled") | {"cancelled_timestamp": time(recall.store_timestamp_ms)},
        row(puts["late"], "delivered", copy),
        row(puts["missed"], "pending"),
        row(puts["with topic"], "cancelled"),
        row(level, "pending") | {"due_timestamp": time(out_ms), "cancelled_timestamp": None},
    ]


def odd_times_and_numbers(log: StoredLog) -> list[Row]:
    """A client writes what it likes into properties."""
    puts = [
        log.put(TIMERS, timer(odd, odd, TIMER_ROLL_TIMES="x", REAL_QID="none"))
        for odd in ("soon", "-1", "999999999999999", "9223372036854775807", "9" * 30)
    ]
    puts += [log.put(TIMERS, {"REAL_TOPIC": "orders"}), log.put(LEVELS, {"REAL_TOPIC": "orders"}, queue_id=2**31 - 1)]
    times = [None] * 6 + [time(0)]  # without a level its tags code is the hash of no tags
    return [
        row(put, "pending") | {"due_timestamp": due, "queue_id": None, "level": None}
        for put, due in zip(puts, times, strict=True)
    ]


SCENARIOS = (
    the_same_key_twice,
    the_same_in_all_but_place,
    without_a_unique_key,
    what_is_no_copy_of_it,
    what_is_no_delayed_message,
    timers_that_roll,
    recalls,
    odd_times_and_numbers,
)


MADE_ROWS = {LOG: made_rows(*SCENARIOS)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_the_real_logs_do_not_hold(asked: Asked, scenario: Scenario) -> None:
    check(asked, "delayed_messages", scenario, "parked_offset")
