"""Answers of brokers as rows. Texts are what 4.9.7 and 5.5.0 say, shortened; keys of the specification, section 6.3."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sources.errors import LogtwinError, MasterRefused, MasterSilent, ProtocolViolation
from sources.metadata import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    KINDS,
    MESSAGE_REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    TIMER_CHECKPOINT,
    TIMER_METRICS,
    TOPICS,
    MetadataKind,
)
from sources.rocketmq.metadata import fetch, items_of
from sources.rocketmq.wire.remoting import Command

OLD_TOPIC = (
    '{"order":false,"perm":6,"readQueueNums":3,"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,'
    '"writeQueueNums":2}'
)
OLD_GROUP = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":false,"groupName":"CG",'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)
CODES = {  # of the specification
    "topics": 21,
    "subscription_groups": 201,
    "consumer_offsets": 43,
    "delay_offsets": 45,
    "message_request_modes": 402,
    "timer_metrics": 61,
    "timer_checkpoint": 60,
}
ASKED = [kind for kind in KINDS if kind.name in CODES]
CHECKPOINT = struct.pack(">7q", 1_700_000_000_123, 52, 7, 9, 0, 1_700_000_000_999, 5)
EMPTY: dict[str, bytes] = {
    "topics": b'{"topicConfigTable":{}}',
    "subscription_groups": b'{"subscriptionGroupTable":{}}',
    "consumer_offsets": b'{"offsetTable":{}}',
    "delay_offsets": b'{"offsetTable":{}}',
    "message_request_modes": b'{"messageRequestModeMap":{}}',
    "timer_metrics": b'{"timingCount":{}}',
    "timer_checkpoint": CHECKPOINT,
}


def rows(kind: MetadataKind, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = items_of(kind, text.encode()).to_pylist()
    return found


def test_a_topic_of_4_9_7() -> None:
    text = '{"dataVersion":{"counter":2,"timestamp":1795271892922},"topicConfigTable":{"T1":' + OLD_TOPIC + "}}"
    assert rows(TOPICS, text) == [
        {
            "topic": "T1", "read_queue_nums": 3, "write_queue_nums": 2, "perm": 6, "topic_filter_type": "SINGLE_TAG",
            "topic_sys_flag": 0, "ordered": False, "attributes": None, "queue_mapping": None, "stored": OLD_TOPIC,
        }
    ]  # fmt: skip


def test_a_topic_of_5_5_0_with_attributes_and_a_mapping() -> None:
    text = (
        '{"topicConfigTable":{"S":{"attributes":{"message.type":"FIFO","cleanup.policy":"DELETE"},"order":true,"novel":1}},'
        '"topicQueueMappingDetailMap":{"S":{"totalQueues":2,"hostedQueues":{0:[]}}}}'
    )
    (row,) = rows(TOPICS, text)
    assert row["ordered"] is True
    assert row["attributes"] == [("cleanup.policy", "DELETE"), ("message.type", "FIFO")]
    assert json.loads(row["queue_mapping"]) == {"totalQueues": 2, "hostedQueues": {"0": []}}
    assert json.loads(row["stored"])["novel"] == 1  # a column of a broker yet to come is not lost


def test_the_order_of_keys_is_no_difference() -> None:
    one = rows(TOPICS, '{"topicConfigTable":{"T":{"perm":6,"attributes":{"a":"1","b":"2"}}}}')
    other = rows(TOPICS, '{"topicConfigTable":{"T":{"attributes":{"b":"2","a":"1"},"perm":6}}}')
    assert one == other


def test_a_group_of_4_9_7_lacks_what_came_later() -> None:
    (row,) = rows(SUBSCRIPTION_GROUPS, '{"subscriptionGroupTable":{"CG":' + OLD_GROUP + "}}")
    assert row["consumer_group"] == "CG"
    assert (row["consume_enable"], row["consume_from_min_enable"], row["retry_max_times"]) == (True, False, 16)
    assert (row["broker_id"], row["which_broker_when_consume_slowly"]) == (0, 1)
    later = ("consume_message_orderly", "consume_timeout_minute", "group_retry_policy", "group_sys_flag", "attributes")
    assert [row[name] for name in later] == [None] * 5
    assert row["forbidden"] is None


def test_a_group_of_5_5_0_with_what_it_must_not_do() -> None:
    text = (
        '{"forbiddenTable":{"CG":{"T2":2,"T1":1}},"subscriptionGroupTable":{"CG":{"attributes":{},'
        '"groupRetryPolicy":{"type":"CUSTOMIZED"},"consumeTimeoutMinute":15,"groupSysFlag":0}}}'
    )
    (row,) = rows(SUBSCRIPTION_GROUPS, text)
    assert row["forbidden"] == [("T1", 1), ("T2", 2)]
    assert row["group_retry_policy"] == '{"type":"CUSTOMIZED"}'
    assert (row["consume_timeout_minute"], row["group_sys_flag"], row["attributes"]) == (15, 0, [])


def test_consumer_offsets_with_unquoted_keys() -> None:
    text = '{"offsetTable":{"T1@CG":{0:2,10:35},"%RETRY%CG@CG":{0:9007199254740993}}}'
    assert [tuple(row.values()) for row in rows(CONSUMER_OFFSETS, text)] == [
        ("T1", "CG", 0, 2, None),
        ("T1", "CG", 10, 35, None),
        ("%RETRY%CG", "CG", 0, 9007199254740993, None),
    ]


def test_offsets_of_5_5_0_also_say_what_was_pulled() -> None:
    text = (
        '{"dataVersion":{"counter":0},"groupTopicMap":{"CG":["orders"]},"offsetTable":{"orders@CG":{0:1}},'
        '"pullOffsetTable":{"orders@CG":{0:4,1:5}}}'
    )
    assert [tuple(row.values()) for row in rows(CONSUMER_OFFSETS, text)] == [
        ("orders", "CG", 0, 1, 4),
        ("orders", "CG", 1, None, 5),
    ]


def test_delay_offsets_as_they_lie_in_the_file_too() -> None:
    assert rows(DELAY_OFFSETS, '{\n\t"offsetTable":{1:1,18\n\t\t:-3}\n}') == [
        {"delay_level": 1, "next_queue_offset": 1},
        {"delay_level": 18, "next_queue_offset": -3},
    ]


def test_message_request_modes() -> None:
    mode = '{"consumerGroup":"CG","mode":"POP","popShareQueueNum":2,"topic":"T1"}'
    assert rows(MESSAGE_REQUEST_MODES, '{"messageRequestModeMap":{"T1":{"CG":' + mode + "}}}") == [
        {"topic": "T1", "consumer_group": "CG", "mode": "POP", "pop_share_queue_num": 2, "stored": mode}
    ]


def test_timer_metrics() -> None:
    text = '{"dataVersion":{"counter":1},"timingCount":{"orders":{"count":3,"timeStamp":1700000000123}}}'
    counted = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert rows(TIMER_METRICS, text) == [{"topic": "orders", "waiting": 3, "counted_at": counted}]


@pytest.mark.parametrize("more", [b"", b"a field of a version to come"])
def test_the_timer_checkpoint(more: bytes) -> None:
    (row,) = items_of(TIMER_CHECKPOINT, CHECKPOINT + more).to_pylist()
    assert row == {
        "last_timer_log_flush_position": 52,
        "last_timer_queue_offset": 7,
        "master_timer_queue_offset": 9,
        "last_read_at": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
    }


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"offsetTable":null}'])
def test_an_answer_without_its_table_is_an_error_and_not_an_empty_set(kind: MetadataKind, body: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        items_of(kind, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TOPICS, b'{"topicConfigTable":{"T":null}}'),
        (TOPICS, b'{"topicConfigTable":{"T":{"perm":"six"}}}'),
        (TOPICS, b'{"topicConfigTable":{"T":{"perm":true}}}'),
        (TOPICS, b'{"topicConfigTable":{"T":{"readQueueNums":4294967296}}}'),
        (TOPICS, b'{"topicConfigTable":{"T":{"attributes":["a"]}}}'),
        (CONSUMER_OFFSETS, b'{"offsetTable":{"T@G":7}}'),
        (CONSUMER_OFFSETS, b'{"offsetTable":{"T@G":{"first":7}}}'),
        (DELAY_OFFSETS, b'{"offsetTable":{1:"much"}}'),
        (TIMER_METRICS, b'{"timingCount":{"T":{"timeStamp":1}}}'),
        (TIMER_METRICS, b'{"timingCount":{"T":{"count":1,"timeStamp":9223372036854775807}}}'),
        (TIMER_CHECKPOINT, CHECKPOINT[:-1]),
    ],
)
def test_values_of_another_kind_are_refused(kind: MetadataKind, body: bytes) -> None:
    with pytest.raises(ProtocolViolation, match=kind.name) as caught:
        items_of(kind, body)
    assert caught.value.hint


def broker(answers: dict[int, Command | LogtwinError]) -> Callable[[Command], Command]:
    """Answers what it is told to, and an empty set to everything else."""
    empty = {CODES[name]: body for name, body in EMPTY.items()}

    def ask(request: Command) -> Command:
        answer = answers.get(request.code, request.response(0, body=empty[request.code]))
        if isinstance(answer, LogtwinError):
            raise answer
        return answer

    return ask


def test_every_kind_is_asked_for_by_its_code() -> None:
    asked: list[int] = []

    def ask(request: Command) -> Command:
        asked.append(request.code)
        return broker({})(request)

    fetched = list(fetch(ask))
    assert asked == [CODES[one.kind.name] for one in fetched]
    assert sorted(asked) == sorted(CODES.values())
    for one in fetched:
        assert not isinstance(one.items, LogtwinError)
        assert one.items is not None
        assert one.items.schema == one.kind.schema


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (402, Command(3, remark=" request type 402 not supported")),  # 4.9.7
        (61, Command(1, remark="The timer message store is null")),  # 5.5.0 with timerWheelEnable=false
        (60, Command(1, remark="The checkpoint is null")),
    ],
)
def test_what_a_broker_does_not_have_is_no_error(code: int, answer: Command) -> None:
    found = {CODES[one.kind.name]: one.items for one in fetch(broker({code: answer}))}
    assert found.pop(code) is None
    assert all(items is not None for items in found.values())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Command(1, remark="java.lang.NullPointerException"), MasterRefused),
        (Command(16, remark="no permission"), MasterRefused),
        (Command(0, body=b"{}"), ProtocolViolation),
        (MasterSilent("no answer"), MasterSilent),
    ],
)
def test_a_kind_that_fails_does_not_keep_the_others(answer: Command | LogtwinError, kind: type[LogtwinError]) -> None:
    found = {CODES[one.kind.name]: one.items for one in fetch(broker({43: answer}))}
    error = found.pop(43)
    assert type(error) is kind
    if isinstance(answer, Command) and answer.remark:
        assert answer.remark in str(error)
    assert not any(isinstance(items, LogtwinError) for items in found.values())
    assert len(found) == 6
