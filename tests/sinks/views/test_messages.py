"""What consumers can see, of real logs as RocketMQ decodes them; and of made ones, with data that no client makes."""

import hashlib
import re
import struct
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sinks.tables import LOG
from sinks.views.definition import named_in
from sinks.views.registration import register
from sources.offsets import Offset
from sources.rocketmq.format.commitlog import Message, decode, decode_items
from sources.rocketmq.format.properties import decode as decode_properties
from tests.sinks.views.lake import Asked, Row, write
from tests.sinks.views.made_logs import NOON, message
from tests.truth import Fixture

pytestmark = pytest.mark.spark

INVISIBLE = (
    "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # fmt: skip
"""The system topics that the fixtures' brokers have written to."""
RESERVED = (
    "KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
    "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
    "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO", "CONSUME_START_TIME",
    "INSTANCE_ID", "CLUSTER", "MSG_TYPE", "INNER_NUM", "INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "TRAN_PREPARED_QUEUE_OFFSET", "__transactionId__", "TRANSACTION_CHECK_TIMES", "CORRELATION_ID", "REPLY_TO_CLIENT",
    "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "__SHARDINGKEY",
    "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT",
    "__BORNHOST", "BORN_TIMESTAMP", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL",
    "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#",
)  # fmt: skip
"""What RocketMQ keeps for itself, of org.apache.rocketmq.common.message.MessageConst."""


def visible(fixture: Fixture) -> list[Row]:
    """The records of the truth in business topics; all records of these brokers are dispatched."""
    stored = [record for record in fixture.rows if not record.get("blank")]
    return [one for one in stored if not one["topic"].startswith("%") and one["topic"] not in INVISIBLE]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def split_keys(properties: dict[str, str]) -> list[str] | None:
    keys = properties.get("KEYS")
    return None if keys is None else [key for key in keys.split(" ") if key]


def expected(fixture: Fixture) -> Iterator[dict[str, Any]]:
    """Each message in the words of the view; an inner batch as its messages."""
    for record in visible(fixture):
        row = {
            "offset": record["physical_offset"],
            "message_id": record["msg_id"],
            "topic": record["topic"],
            "queue_id": record["queue_id"],
            "producer": record["born_host"],
            "born_ms": record["born_timestamp"],
            "delivered_ms": record["store_timestamp"],
        }
        if not record["sys_flag"] & 128:
            yield row | _content(None, record, record["properties"], record["body_sha256_decompressed"])
            continue
        stored = decode(fixture.log, row["offset"], Offset(row["offset"]))
        assert isinstance(stored, Message)
        for index, item in enumerate(decode_items(stored.body)):
            yield row | _content(index, record, decode_properties(item.properties), sha256(item.body))


def _content(index: int | None, record: dict[str, Any], properties: dict[str, str], body: str) -> dict[str, Any]:
    return {
        "batch_index": index,
        "queue_offset": record["queue_offset"] + (index or 0),
        "tags": properties.get("TAGS"),
        "keys": split_keys(properties),
        "unique_key": properties.get("UNIQ_KEY"),
        "properties": {name: value for name, value in properties.items() if name not in RESERVED},
        "body": body,
    }


def of(asked: Asked, log_id: str) -> list[Row]:
    """The messages of a log in order, properties as a dict, times also in ms."""
    found = asked.rows("messages", log_id)
    for row in found:
        row["properties"] = None if row["properties"] is None else dict(row["properties"])
        for name in ("born", "stored", "delivered"):
            row[f"{name}_ms"] = round(row[f"{name}_timestamp"].timestamp() * 1000)
    return sorted(found, key=lambda row: (row["offset"], row["batch_index"] or 0))


@pytest.fixture
def found(asked: Asked, log_id: str) -> list[Row]:
    return of(asked, log_id)


def test_every_message_of_the_truth_once(found: list[Row], fixture_log: Fixture) -> None:
    messages = list(expected(fixture_log))
    assert len(messages) > 2900
    assert sum(row["batch_index"] is not None for row in messages) == {"4.9.7": 0, "5.5.0": 32}[fixture_log.version]
    rows = [row | {"body": sha256(row["body"])} for row in found]
    assert [{name: row[name] for name in messages[0]} for row in rows] == messages
    names = {name for row in found for name in row["properties"]}
    assert {"trace-id", "fate", "idx", "odd name = 東京"} < names  # as the producers set them


def scans(frame: DataFrame) -> list[set[str]]:
    """The columns that each scan of a table reads."""
    plan = frame._jdf.queryExecution().sparkPlan().toString()
    return [set(re.findall(r"(\w+)#", columns)) for columns in re.findall(r"FileScan parquet \[([^\]]*)\]", plan)]


@pytest.mark.nightly
def test_few_columns_read_the_log_once(views: SparkSession) -> None:
    """No body. The properties name the cluster, whose topic is its own, and the size of a batch; topics the broker."""
    messages = views.table("messages")
    needed = {"log_id", "kind", "topic", "sys_flag", "properties", "size"}
    few = messages.where("producer > ''").select("queue_id", "queue_offset", "delivered_timestamp", "message_id")
    read = {"born_host", "queue_id", "queue_offset", "store_timestamp", "store_host", "offset"}
    topics = {"log_id", "topic", "perm", "read_queue_nums", "write_queue_nums", "attributes", "is_current"}
    assert scans(few) == [needed | read, topics]
    assert scans(messages.groupBy("topic").count()) == [needed, topics]
    assert len([one for one in scans(messages.select("stored_timestamp")) if one != topics]) == 2
    assert len([one for one in scans(messages.select("retries")) if one != topics]) == 2


def item(
    body: bytes = b"", properties: bytes = b"", *, size: int | None = None, body_length: int | None = None
) -> bytes:
    """An item of an inner batch, as a producer encodes it; or with lengths that are not so."""
    rest = body + struct.pack(">h", len(properties)) + properties
    lead = (len(rest) + 20 if size is None else size, 0, 0, 0, len(body) if body_length is None else body_length)
    return struct.pack(">5i", *lead) + rest


def batch(offset: int, *items: bytes, number: object = None, **fields: Any) -> dict[str, Any]:
    properties = {"INNER_NUM": str(len(items) if number is None else number), "INNER_BASE": "5"} | fields.pop(
        "more", {}
    )
    body = b"".join(items)
    usual = {"queue_offset": 5, "sys_flag": 192, "body": body, "size": len(body) + 100, "properties": properties}
    return message(offset, **usual | fields)


LATER = NOON + timedelta(minutes=1)
NOON_MS = round(NOON.timestamp() * 1000)
ID_OF_301 = f"7F00000100002A9F{301:016X}"
DELAYED = {"REAL_TOPIC": "orders", "REAL_QID": "0", "DELAY": "3"}


BODIES = (
    (b"\xff\xfe", None, None),
    (b"NaN", "NaN", None),
    (None, None, None),
    (b'{"a": {"b": [1, null]}}', '{"a": {"b": [1, null]}}', '{"a":{"b":[1,null]}}'),
    (b'{"a": 1, "a": 2}', '{"a": 1, "a": 2}', None),
    (b'{"a": 1} {', '{"a": 1} {', None),
    (b"\xed\xa0\x80", None, None),  # half a surrogate pair
    (b"42 apples", "42 apples", None),
    (b" null ", " null ", "null"),
    (b"1, 2", "1, 2", None),
    (b'1], "end of body"]', '1], "end of body"]', None),
    (b"[1], 2]", "[1], 2]", None),
)
"""Each with the text and the JSON that it is."""


def odd_records() -> Iterator[Row]:
    yield from (
        *(message(offset, body=body) for offset, (body, _, _) in enumerate(BODIES)),
        message(60, body=b"sound", stored_body=b"compressed", sys_flag=0x101),
        message(61, body=None, stored_body=b"junk", sys_flag=0x101),
        batch(62, number=2, body=None, stored_body=b"junk", sys_flag=0x1C1),
        message(50, properties={"__RMQ.TRANSIENT.X": "1", "__RMQ": "2", "keys": "3", "RMQ": "4", "tags ": "5"}),
        batch(
            100,
            item(b"one", b"TAGS\x01t\x02KEYS\x01a  b\x02x\x011\x02x\x012"),
            item(b"", b""),
            item(b"\xff", b"\x02y\x01"),
        ),
        batch(101, item(b"one"), item(b"two"), number="two"),
        batch(102, item(b"one"), item(b"two"), number=10**9),
        batch(103, item(b"one"), item(b"two", size=2**31 - 1), item(b"three")),
        batch(104, item(b"one", body_length=2**31 - 1), item(b"two", b"u\x01\x80")),
        batch(105, item(b"one", body_length=-1), item(b"two", size=0), item(b"three")),
        batch(106, b"", number=0),
        batch(107, b"no batch at all, and a client said it was one", number=2),
        message(108, sys_flag=128, body=b"one", properties={}),
        *transactions_before_4_3(),
        *waiting_messages(),
    )


def transactions_before_4_3() -> list[Row]:
    """A half message in its own topic, the message it became; one that was rolled back."""
    key = {"UNIQ_KEY": "U1"}
    return [
        message(200, "payments", sys_flag=4, properties=key),
        message(201, "payments", sys_flag=8, prepared_transaction_offset=200, store_timestamp=LATER, properties=key),
        message(202, "payments", sys_flag=4, properties={"UNIQ_KEY": "U2"}),
        message(203, "payments", sys_flag=12, prepared_transaction_offset=202),
    ]


def waiting_messages() -> list[Row]:
    """Copies with what they were parked with; a message that shares its birth with a parked one of another topic."""
    born = {"born_host": "10.0.0.9:1", "body_crc": 77}
    return [
        message(300, "SCHEDULE_TOPIC_XXXX", properties=DELAYED, **born),
        message(301, "orders", properties=DELAYED, store_timestamp=LATER, **born),
        message(302, "payments", properties=DELAYED, store_timestamp=LATER, **born),
        message(303, "SCHEDULE_TOPIC_XXXX", properties=DELAYED, store_timestamp=LATER, **born),
        *(message(at, "%RETRY%cg", properties={"ORIGIN_MESSAGE_ID": ID_OF_301}) for at in (304, 305)),
    ]


def between(rows: list[Row], start: int, end: int, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows if start <= row["offset"] < end]


def test_a_body_is_text_or_json_only_where_it_is(made: list[Row]) -> None:
    assert between(made, 0, 50, "text", "json") == [(text, parsed) for _, text, parsed in BODIES]


def test_what_cannot_be_decompressed_is_shown_as_it_is_stored(made: list[Row]) -> None:
    assert between(made, 60, 63, "offset", "batch_index", "body", "sys_flag", "stored_body") == [
        (60, None, b"sound", 0x101, None),
        (61, None, None, 0x101, b"junk"),
        (62, 0, None, 0x1C1, None),
        (62, 1, None, 0x1C1, None),
    ]


def test_only_reserved_names_are_hidden(made: list[Row]) -> None:
    assert between(made, 50, 51, "properties") == [({"keys": "3", "RMQ": "4", "tags ": "5"},)]


def test_an_inner_batch_is_its_messages(made: list[Row]) -> None:
    columns = ("batch_index", "queue_offset", "body", "text", "tags", "keys", "properties")
    assert between(made, 100, 101, *columns) == [
        (0, 5, b"one", "one", "t", ["a", "b"], {"x": "2"}),
        (1, 6, b"", "", None, None, {}),
        (2, 7, b"\xff", None, None, None, {}),
    ]


def processor_s(session: SparkSession, query: str) -> float:
    """The processor time of the tasks of a query, in seconds, of its second run: then all of it is compiled."""
    context: Any = session.sparkContext
    group = f"processor time {query}"
    for number in range(2):
        context.setJobGroup(f"{group} {number}", query)
        session.sql(query).collect()
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), scala.statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(f"{group} 1")]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    ran = [stage for stage in stages if (told := tracker.getStageInfo(stage)) is not None and told.numCompletedTasks]
    assert ran
    return float(sum(store.lastStageAttempt(stage).executorCpuTime() for stage in ran)) / 1e9


@pytest.mark.nightly
def test_a_batch_costs_what_its_messages_cost(spark: SparkSession, tmp_path: Path) -> None:
    """Four times as many messages take about four times as long, far from the sixteen of whatever is quadratic."""
    took_s = []
    for number in (10_000, 40_000):
        items = (item(b"%030d" % at, b"TAGS\x01t\x02") for at in range(number))
        write(tmp_path / str(number), LOG, [batch(100, *items)])
        session = spark.newSession()
        register(session, str(tmp_path / str(number)), views=named_in("messages"))
        query = "SELECT count(*), sum(length(body)), max(body) FROM messages"
        assert session.sql(query).first() == (number, 30 * number, b"%030d" % (number - 1))
        took_s.append(processor_s(session, query))
    assert took_s[1] < 9 * took_s[0]


def items_as_before(body: bytes, number: int) -> list[bytes | None]:
    """The bodies of a batch's messages, told one after the other: the rule of the view, and nothing clever."""
    found: list[bytes | None] = []
    at = 0
    for _ in range(number):
        size = int.from_bytes(body[at : at + 4] or b"\0")
        one = body[at : at + size] if size < 1 << 31 else b""
        length = int.from_bytes(one[16:20]) if len(one) > 16 else None
        found.append(None if length is None or length > len(one) - 22 else one[20 : 20 + length])
        at += size
    return found


def any_batches() -> Iterator[Row]:
    """Of any number of items, half of them with a size that lies: none, too little, more than there is in any body."""
    chance = Random(24)
    for offset in range(100, 400):
        items = [item(bytes(chance.choices(b"abc", k=chance.randrange(40)))) for _ in range(chance.randrange(1, 40))]
        if chance.random() < 0.5:
            at = chance.randrange(len(items))
            size = chance.choice((0, 1, 3, 21, 30, 1000, 2**31 - 1, 2**32 - 1))
            items[at] = struct.pack(">I", size) + items[at][4:]
        yield batch(offset, *items, b"trailing"[: chance.randrange(8)], number=len(items))


ODD, BATCHES = "rocketmq/odd", "rocketmq/batches"
ANY_BATCHES = list(any_batches())
MADE_ROWS = {LOG: [row | {"log_id": ODD} for row in odd_records()] + [row | {"log_id": BATCHES} for row in ANY_BATCHES]}


@pytest.fixture(scope="module")
def made(asked: Asked) -> list[Row]:
    return of(asked, ODD)


def test_items_of_a_batch_are_found_one_after_the_other(asked: Asked) -> None:
    found: dict[int, list[bytes | None]] = {}
    for row in of(asked, BATCHES):
        assert row["batch_index"] == len(found.setdefault(row["offset"], []))
        found[row["offset"]].append(row["body"])
    assert found == {
        row["offset"]: items_as_before(row["body"], int(dict(row["properties"])["INNER_NUM"])) for row in ANY_BATCHES
    }


def test_a_damaged_batch_shows_what_can_be_read(made: list[Row]) -> None:
    """A number of messages that cannot be makes it one message; an item that cannot be read has no body."""
    assert between(made, 101, 109, "offset", "batch_index", "text") == [
        *((offset, None, (item(b"one") + item(b"two")).decode()) for offset in (101, 102)),
        *((103, 0, "one"), (103, 1, "two"), (103, 2, None)),
        *((104, 0, None), (104, 1, "two")),
        *((105, 0, None), (105, 1, None), (105, 2, None)),
        (106, None, ""),
        *((107, 0, None), (107, 1, None)),
        (108, None, "one"),
    ]
    assert between(made, 104, 105, "properties") == [(None,), ({"u": "\ufffd"},)]


def test_what_is_not_seen_half_messages_rollbacks_and_what_waits(made: list[Row]) -> None:
    """Not the properties that are left from when it waited."""
    assert between(made, 200, 300, "offset", "stored_ms", "delivered_ms") == [(201, NOON_MS, NOON_MS + 60_000)]
    found = between(made, 300, 400, "offset", "topic", "stored_ms", "properties", "retries")
    assert found == [(301, "orders", NOON_MS, {}, 2), (302, "payments", NOON_MS + 60_000, {}, 0)]
