"""What became of each half message: as the producers of the real logs meant it, and what these logs do not hold."""

from collections import Counter, defaultdict
from typing import Any

import pytest

from sinks.tables import LOG
from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import Message
from tests.sinks.views.lake import Asked, Row
from tests.sinks.views.stored_logs import Scenario, StoredLog, check, made_rows, message_id, time
from tests.truth import Fixture

pytestmark = pytest.mark.spark

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
STATES = {
    "commit": "committed",
    "late-commit": "committed",
    "rollback": "rolled_back",
    "late-rollback": "rolled_back",
    "pending": "pending",
}
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def removals_of(fixture: Fixture) -> dict[int, int]:
    """Queue offset of a half message -> when an op message named it, ms."""
    found: dict[int, int] = {}
    for row in fixture.rows:
        if row.get("topic") == OP:
            op = commitlog.decode(fixture.log, row["physical_offset"], Offset(row["physical_offset"]))
            assert isinstance(op, Message)
            found |= {int(number): row["store_timestamp"] for number in op.body.split(b",") if number}
    return found


def expected_transaction(
    puts: list[dict[str, Any]], committed: dict[int, dict[str, Any]], removals: dict[int, int]
) -> dict[str, Any]:
    """What the view must say of a half message that was put so often; the truth's `fate` is what was meant."""
    first, last = puts[0], puts[-1]
    properties = first["properties"]
    became = next((committed[put["physical_offset"]] for put in puts if put["physical_offset"] in committed), None)
    removed_ms = min((removals[put["queue_offset"]] for put in puts if put["queue_offset"] in removals), default=None)
    return {
        "transaction_id": properties["UNIQ_KEY"],
        "state": STATES[properties["fate"]],
        "producer_group": "pg-tx",
        "topic": "tx-topic",
        "queue_id": int(properties["REAL_QID"]),
        "tags": properties.get("TAGS"),
        "keys": properties["KEYS"].split(" ") if "KEYS" in properties else None,
        "born_timestamp": time(first["born_timestamp"]),
        "prepared_timestamp": time(first["store_timestamp"]),
        "resolved_timestamp": time(became["store_timestamp"] if became else removed_ms),
        "checks": int(last["properties"].get("TRANSACTION_CHECK_TIMES", 0)),
        "half_offset": first["physical_offset"],
        "last_half_offset": last["physical_offset"],
        "message_offset": became and became["physical_offset"],
        "message_id": became and became["msg_id"],
        "queue_offset": became and became["queue_offset"],
    }


def test_each_became_what_its_producer_meant(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    puts = defaultdict(list)
    for row in fixture_log.rows:
        if row.get("topic") == HALF:
            puts[row["properties"]["UNIQ_KEY"]].append(row)
    committed = {row["prepared_transaction_offset"]: row for row in fixture_log.rows if row.get("sys_flag", 0) & 8}
    removals = removals_of(fixture_log)
    expected = [expected_transaction(of_one, committed, removals) for of_one in puts.values()]
    assert Counter(row["state"] for row in expected) == {"committed": 25, "rolled_back": 13, "pending": 10}
    assert asked.rows("transactions", log_id, "half_offset") == expected


def half(topic: str, unique_key: str, **more: str) -> dict[str, str]:
    """The properties of a half message of a broker from 4.3 on."""
    return {"PGROUP": "pg", "REAL_TOPIC": topic, "REAL_QID": "2", "TRAN_MSG": "true", "UNIQ_KEY": unique_key, **more}


def row(unique_key: str | None, state: str, ended: Message | None = None, checks: int = 0) -> Row:
    """What is asked of a transaction that the record `ended` has ended."""
    became = ended if state == "committed" else None
    return {
        "transaction_id": unique_key,
        "state": state,
        "checks": checks,
        "resolved_timestamp": time(ended.store_timestamp_ms if ended else None),
        "message_offset": became and became.offset,
        "message_id": became and message_id(became),
        "queue_offset": became and became.queue_offset,
    }


def op_messages_with_one_number_and_many(log: StoredLog) -> list[Row]:
    """4.3 to 5.0, and since. What is no number, or of another queue, or has another tag, ends nothing."""
    for name in ("alone", "listed", "last", "other queue", "other tag", "odd"):
        log.put(HALF, half("orders", name))
    alone = log.put(OP, {"TAGS": "d"}, body=b"0")
    listed = log.put(OP, {"TAGS": "d"}, body=b"1,2,")
    log.put(OP, {"TAGS": "d"}, body=b"3", queue_id=1)
    log.put(OP, {"TAGS": "e"}, body=b"4")
    log.put(OP, {"TAGS": "d"}, body=b"\xff,x,99999999999999999999,,")
    ended = [
        row("alone", "rolled_back", alone),
        row("listed", "rolled_back", listed),
        row("last", "rolled_back", listed),
    ]
    return ended + [row(name, "pending") for name in ("other queue", "other tag", "odd")]


def a_redelivered_commit(log: StoredLog) -> list[Row]:
    """It keeps its type and names offset 0, where a half message may be."""
    log.put(HALF, half("orders", "first of the log"))
    second = log.put(HALF, half("orders", "second"))
    message = log.put(
        "orders", {"UNIQ_KEY": "second"}, sys_flag=COMMIT, queue_id=2, prepared_transaction_offset=second.offset
    )
    log.put("%RETRY%group", {"UNIQ_KEY": "second", "REAL_TOPIC": "%RETRY%group"}, sys_flag=COMMIT, reconsume_times=1)
    return [row("first of the log", "pending"), row("second", "committed", message)]


def given_up_after_the_last_check(log: StoredLog) -> list[Row]:
    """A producer may still commit it. Of one that began before the replica only the end is there."""
    asked, last = {"TRANSACTION_CHECK_TIMES": "1"}, {"TRANSACTION_CHECK_TIMES": "15"}
    puts = {name: log.put(HALF, half("orders", name)) for name in ("forgotten", "revived")}
    for name in puts:
        log.put(HALF, half("orders", name, **asked))
    ends = {
        name: log.put("TRANS_CHECK_MAX_TIME_TOPIC", half("orders", name, **last)) for name in (*puts, "begun before")
    }
    message = log.put(
        "orders", half("orders", "revived"), sys_flag=COMMIT, prepared_transaction_offset=puts["revived"].offset
    )
    return [
        row("begun before", "given_up", ends["begun before"], 15) | {"half_offset": None, "prepared_timestamp": None},
        row("forgotten", "given_up", ends["forgotten"], 15),
        row("revived", "committed", message, 15),
    ]


def half_messages_in_their_own_topic(log: StoredLog) -> list[Row]:
    """3.1.5 to 4.2: types prepared, commit and rollback. Op messages of the broker's successor are not about them."""
    puts = {
        name: log.put(
            "orders", {"PGROUP": "pg", "UNIQ_KEY": name}, sys_flag=PREPARED, queue_id=1, queue_offset=0, body=b"paid"
        ).offset
        for name in ("good", "bad", "open")
    }
    good = log.put(
        "orders", {"UNIQ_KEY": "good"}, sys_flag=COMMIT, queue_id=1, prepared_transaction_offset=puts["good"]
    )
    bad = log.put("orders", {}, sys_flag=ROLLBACK, queue_offset=0, body=b"", prepared_transaction_offset=puts["bad"])
    log.put(OP, {"TAGS": "d"}, body=b"0", queue_id=1)
    place = {"producer_group": "pg", "topic": "orders", "queue_id": 1}
    return [
        row("good", "committed", good) | place | {"half_offset": puts["good"], "last_half_offset": puts["good"]},
        row("bad", "rolled_back", bad) | place,
        row("open", "pending") | place,
    ]


def a_broker_that_keeps_track_in_rocksdb(log: StoredLog) -> list[Row]:
    """5.4, where it is configured: an op message names the half message by its offset."""
    bad = log.put("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", half("orders", "bad"))
    log.put("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", half("orders", "open"))
    named = {"TAGS": "d", "REAL_TOPIC": "orders", "TRANS_OFFSET": str(bad.offset)}
    op = log.put("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", named, body=b"\0")
    log.put("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", named | {"TRANS_OFFSET": "odd"}, body=b"\0")
    return [row("bad", "rolled_back", op), row("open", "pending")]


def what_clients_leave_out_or_make_up(log: StoredLog) -> list[Row]:
    """No unique key: puts of one message belong together by birth and body, those of two do not. No number where one
    belongs. The same key in two topics is two transactions.
    """
    nameless = {"PGROUP": "pg", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    log.put(HALF, nameless, body=b"one")
    log.put(HALF, nameless, body=b"two")
    log.put(HALF, nameless | {"TRANSACTION_CHECK_TIMES": "1"}, body=b"one")
    log.put(HALF, half("orders", "shared", TRANSACTION_CHECK_TIMES="often") | {"REAL_QID": "x"})
    log.put(HALF, half("payments", "shared"))
    return [
        row(None, "pending", checks=1) | {"topic": "orders", "queue_id": 0},
        row(None, "pending") | {"topic": "orders", "queue_id": 0},
        row("shared", "pending") | {"topic": "orders", "queue_id": None},
        row("shared", "pending") | {"topic": "payments", "queue_id": 2},
    ]


SCENARIOS = (
    op_messages_with_one_number_and_many,
    a_redelivered_commit,
    given_up_after_the_last_check,
    half_messages_in_their_own_topic,
    a_broker_that_keeps_track_in_rocksdb,
    what_clients_leave_out_or_make_up,
)


MADE_ROWS = {LOG: made_rows(*SCENARIOS)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_the_real_logs_do_not_hold(asked: Asked, scenario: Scenario) -> None:
    check(asked, "transactions", scenario, "half_offset")
