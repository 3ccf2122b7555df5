"""Answers of brokers as rows. Texts are what 4.9.7 and 5.5.0 say, shortened; keys of the specification, section 6.3."""

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


def offset(*values: Any) -> dict[str, Any]:
    return dict(zip(CONSUMER_OFFSETS.schema.names, values, strict=True))


MODE = '{"consumerGroup":"CG","mode":"POP","popShareQueueNum":2,"topic":"T1"}'


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (TOPICS, '{"dataVersion":{"counter":2},"topicConfigTable":{"T1":' + OLD_TOPIC + "}}", [{
            "topic": "T1", "read_queue_nums": 3, "write_queue_nums": 2, "perm": 6, "topic_filter_type": "SINGLE_TAG",
            "topic_sys_flag": 0, "ordered": False, "attributes": None, "queue_mapping": None, "stored": OLD_TOPIC,
        }]),
        (SUBSCRIPTION_GROUPS, '{"subscriptionGroupTable":{"CG":' + OLD_GROUP + "}}", [{
            "consumer_group": "CG", "consume_enable": True, "consume_from_min_enable": False, "retry_max_times": 16,
            "broker_id": 0, "which_broker_when_consume_slowly": 1, "consume_message_orderly": None,
            "consume_timeout_minute": None, "group_retry_policy": None, "group_sys_flag": None, "attributes": None,
            "forbidden": None,
        }]),
        (SUBSCRIPTION_GROUPS, '{"forbiddenTable":{"CG":{"T2":2,"T1":1}},"subscriptionGroupTable":{"CG":{"attributes":'
         '{},"groupRetryPolicy":{"type":"CUSTOMIZED"},"consumeTimeoutMinute":15,"groupSysFlag":0}}}', [{
            "forbidden": [("T1", 1), ("T2", 2)], "group_retry_policy": '{"type":"CUSTOMIZED"}',
            "consume_timeout_minute": 15, "group_sys_flag": 0, "attributes": [],
        }]),
        (CONSUMER_OFFSETS, '{"offsetTable":{"T1@CG":{0:2,10:35},"%RETRY%CG@CG":{0:9007199254740993}}}', [
            offset("T1", "CG", 0, 2, None), offset("T1", "CG", 10, 35, None),
            offset("%RETRY%CG", "CG", 0, 9007199254740993, None),
        ]),
        (CONSUMER_OFFSETS, '{"dataVersion":{"counter":0},"groupTopicMap":{"CG":["orders"]},"offsetTable":'
         '{"orders@CG":{0:1}},"pullOffsetTable":{"orders@CG":{0:4,1:5}}}',
         [offset("orders", "CG", 0, 1, 4), offset("orders", "CG", 1, None, 5)]),
        (DELAY_OFFSETS, '{\n\t"offsetTable":{1:1,18\n\t\t:-3}\n}', [
            {"delay_level": 1, "next_queue_offset": 1}, {"delay_level": 18, "next_queue_offset": -3},
        ]),
        (MESSAGE_REQUEST_MODES, '{"messageRequestModeMap":{"T1":{"CG":' + MODE + "}}}", [
            {"topic": "T1", "consumer_group": "CG", "mode": "POP", "pop_share_queue_num": 2, "stored": MODE},
        ]),
        (TIMER_METRICS, '{"timingCount":{"orders":{"count":3,"timeStamp":1700000000123}}}', [
            {"topic": "orders", "waiting": 3, "counted_at": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)},
        ]),
    ],
    ids=["topic of 4.9.7", "group of 4.9.7 lacks what came later", "group of 5.5.0 with what it must not do",
         "offsets with unquoted keys", "offsets of 5.5.0, also pulled", "delay offsets as in the file",
         "request modes", "timer metrics"],
)  # fmt: skip
def test_the_rows_of_an_answer(kind: MetadataKind, text: str, expected: list[dict[str, Any]]) -> None:
    found = rows(kind, text)
    assert [{name: row[name] for name in wanted} for row, wanted in zip(found, expected, strict=True)] == expected


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
