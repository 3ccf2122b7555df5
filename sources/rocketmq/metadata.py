"""A broker's metadata: the requests of a slave's SlaveSynchronize, and their answers as rows. No I/O.

None of the requests has fields or a body. Answers are fastjson's, with unquoted integer keys, except for 60:

====  ================================  ==============================================================================
code  kind                              answer
====  ================================  ==============================================================================
21    topics                            ``topicConfigTable``: topic -> configuration; 5.x also
                                        ``topicQueueMappingDetailMap``: static topic -> mapping
201   subscription groups               ``subscriptionGroupTable``: group -> configuration; 5.x also
                                        ``forbiddenTable``: group -> topic -> bits
43    consumer offsets                  ``offsetTable``: ``topic@group`` -> queue id -> offset; 5.5 also
                                        ``pullOffsetTable`` of the same shape
45    delay offsets                     ``offsetTable``: delay level -> offset
402   message request modes (5.x)       ``messageRequestModeMap``: topic -> group -> mode
61    timer metrics (5.x)               ``timingCount``: topic -> count, time
60    timer checkpoint (5.x)            binary, see CHECKPOINT
====  ================================  ==============================================================================

A table missing from an answer is an error, never an empty set: that would end every version of every item. The
``dataVersion`` that answers carry beside their tables is ignored: the item itself tells its version.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from sources.errors import LogtwinError, ProtocolViolation
from sources.metadata import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    MESSAGE_REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    TIMER_CHECKPOINT,
    TIMER_METRICS,
    TOPICS,
    FetchedMetadata,
    MetadataKind,
)
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, accepted, loads

CHECKPOINT: Final = struct.Struct(
    ">"
    "q"  # lastReadTimeMs
    "q"  # lastTimerLogFlushPos
    "q"  # lastTimerQueueOffset
    "q"  # masterTimerQueueOffset
    "24x"  # dataVersion: stateVersion, timestamp, counter
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GROUP_SEPARATOR: Final = "@"
# A 5.x broker whose timer is switched off knows the requests but has nothing to say.
_NO_TIMER: Final = ("The timer message store is null", "The checkpoint is null")

_Row = dict[str, Any]
_TOPIC_KEYS: Final = {
    "read_queue_nums": "readQueueNums",
    "write_queue_nums": "writeQueueNums",
    "perm": "perm",
    "topic_filter_type": "topicFilterType",
    "topic_sys_flag": "topicSysFlag",
    "ordered": "order",
}
_GROUP_KEYS: Final = {
    "consume_enable": "consumeEnable",
    "consume_from_min_enable": "consumeFromMinEnable",
    "consume_broadcast_enable": "consumeBroadcastEnable",
    "consume_message_orderly": "consumeMessageOrderly",
    "retry_queue_nums": "retryQueueNums",
    "retry_max_times": "retryMaxTimes",
    "consume_timeout_minute": "consumeTimeoutMinute",
    "broker_id": "brokerId",
    "which_broker_when_consume_slowly": "whichBrokerWhenConsumeSlowly",
    "notify_consumer_ids_changed_enable": "notifyConsumerIdsChangedEnable",
    "group_sys_flag": "groupSysFlag",
}


def fetch(ask: Callable[[Command], Command]) -> Iterator[FetchedMetadata]:
    """Yield every kind in turn. `ask` sends a request and returns the answer of any code; it raises LogtwinError.

    If a kind fails, its result holds the error, and the others are still asked for.
    """
    for kind in _REQUESTS:
        try:
            yield FetchedMetadata(kind, _fetch(kind, ask))
        except LogtwinError as error:
            yield FetchedMetadata(kind, error)


def _fetch(kind: MetadataKind, ask: Callable[[Command], Command]) -> pa.Table | None:
    code, _ = _REQUESTS[kind]
    answer = ask(Command(code))
    return None if _has_no_such_kind(answer) else items_of(kind, accepted(code, answer, "the broker").body)


def items_of(kind: MetadataKind, body: bytes) -> pa.Table:
    """Return the items in the body of a successful answer. Raises ProtocolViolation."""
    _, rows_of = _REQUESTS[kind]
    try:
        return pa.Table.from_pylist(list(rows_of(body)), schema=kind.schema)
    except (pa.ArrowException, ArithmeticError, KeyError, TypeError, ValueError, struct.error) as error:
        raise ProtocolViolation(
            f"the broker's {kind.name} are not what its protocol says",
            expected=f"rows of {', '.join(kind.schema.names)}",
            found=repr(error),
            hint="This is probably a version of RocketMQ that logtwin does not know: please report it.",
        ) from error


def _has_no_such_kind(answer: Command) -> bool:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return True
    return answer.code == ResponseCode.SYSTEM_ERROR and answer.remark in _NO_TIMER


def _topics(body: bytes) -> Iterator[_Row]:
    answer = _mapping(loads(body))
    mappings = _mapping(answer.get("topicQueueMappingDetailMap") or {})
    for topic, config in _mapping(answer.get("topicConfigTable")).items():
        yield {
            "topic": topic,
            **_renamed(config, _TOPIC_KEYS),
            "attributes": _pairs(config.get("attributes")),
            "queue_mapping": _text(mappings.get(topic)),
            "stored": _text(config),
        }


def _groups(body: bytes) -> Iterator[_Row]:
    answer = _mapping(loads(body))
    forbidden = _mapping(answer.get("forbiddenTable") or {})
    for group, config in _mapping(answer.get("subscriptionGroupTable")).items():
        yield {
            "consumer_group": group,
            **_renamed(config, _GROUP_KEYS),
            "group_retry_policy": _text(config.get("groupRetryPolicy")),
            "attributes": _pairs(config.get("attributes")),
            "forbidden": _pairs(forbidden.get(group)),
            "stored": _text(config),
        }


def _consumer_offsets(body: bytes) -> Iterator[_Row]:
    answer = _mapping(loads(body))
    consumed = _by_queue(_mapping(answer.get("offsetTable")))
    pulled = _by_queue(_mapping(answer.get("pullOffsetTable") or {}))
    for key in consumed | pulled:
        topic, group, queue = key
        row = {"topic": topic, "consumer_group": group, "queue_id": queue}
        yield row | {"next_queue_offset": consumed.get(key), "next_pull_queue_offset": pulled.get(key)}


def _by_queue(table: Mapping[str, Any]) -> dict[tuple[str, str, int], Any]:
    found = {}
    for name, queues in table.items():
        topic, _, group = name.partition(_GROUP_SEPARATOR)
        for queue, offset in _mapping(queues).items():
            found[topic, group, int(queue)] = offset
    return found


def _delay_offsets(body: bytes) -> Iterator[_Row]:
    for level, offset in _mapping(_mapping(loads(body)).get("offsetTable")).items():
        yield {"delay_level": int(level), "next_queue_offset": offset}


def _request_modes(body: bytes) -> Iterator[_Row]:
    for topic, groups in _mapping(_mapping(loads(body)).get("messageRequestModeMap")).items():
        for group, mode in _mapping(groups).items():
            values = _renamed(mode, {"mode": "mode", "pop_share_queue_num": "popShareQueueNum"})
            yield {"topic": topic, "consumer_group": group, **values, "stored": _text(mode)}


def _timer_metrics(body: bytes) -> Iterator[_Row]:
    for topic, metric in _mapping(_mapping(loads(body)).get("timingCount")).items():
        counted = _mapping(metric)
        yield {"topic": topic, "waiting": counted["count"], "counted_at": _time(counted["timeStamp"])}


def _timer_checkpoint(body: bytes) -> Iterator[_Row]:
    read_ms, flushed, queue_offset, masters = CHECKPOINT.unpack_from(body)
    yield {
        "last_timer_log_flush_position": flushed,
        "last_timer_queue_offset": queue_offset,
        "master_timer_queue_offset": masters,
        "last_read_at": _time(read_ms),
    }


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.100} where a JSON object should be")
    return value


def _renamed(config: object, keys: Mapping[str, str]) -> _Row:
    given = _mapping(config)
    return {column: given.get(key) for column, key in keys.items()}


def _pairs(value: object) -> list[tuple[str, Any]] | None:
    return None if value is None else sorted(_mapping(value).items())


def _text(value: object) -> str | None:
    """Return the same text for the same value, whatever the order of its keys in the broker's hash tables."""
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


_REQUESTS: Final[Mapping[MetadataKind, tuple[RequestCode, Callable[[bytes], Iterable[_Row]]]]] = {
    TOPICS: (RequestCode.GET_ALL_TOPIC_CONFIG, _topics),
    SUBSCRIPTION_GROUPS: (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _groups),
    CONSUMER_OFFSETS: (RequestCode.GET_ALL_CONSUMER_OFFSET, _consumer_offsets),
    DELAY_OFFSETS: (RequestCode.GET_ALL_DELAY_OFFSET, _delay_offsets),
    MESSAGE_REQUEST_MODES: (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, _request_modes),
    TIMER_METRICS: (RequestCode.GET_TIMER_METRICS, _timer_metrics),
    TIMER_CHECKPOINT: (RequestCode.GET_TIMER_CHECK_POINT, _timer_checkpoint),
}
