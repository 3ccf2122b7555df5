"""What a real broker says of its logical side: its consume queues, what it finds by key, its statistics.

Read as the specification has them (sections 5.2, 5.3, 6), by nothing of the project's own.
"""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from tests.peers.wire import Connection, Refused

QUERY_MESSAGE, ALL_DELAY_OFFSETS, TOPIC_STATS, CONSUME_STATS = 12, 45, 202, 208
QUERY_NOT_FOUND = 22
MOST_FOUND = 64  # maxMsgsNumBatch: a query by key finds no more
QUEUE_ENTRY = struct.Struct(">qiq")  # offset, size, tags code
Queue = tuple[str, int]
"""A topic and the number of its queue."""

_PAIR = re.compile(r"(\{[^{}]*\}):(\{[^{}]*\})")  # fastjson writes a map whose keys are objects so


def consume_queues(store: Path) -> dict[tuple[str, int, int], tuple[int, int, int]]:
    """(topic, queue, index) -> offset, size, tags code, of all queues that are no BatchCQ."""
    found = {}
    for file in store.glob("consumequeue/*/*/*"):
        topic, queue_id = file.parts[-3:-1]
        first = int(file.name) // QUEUE_ENTRY.size
        for index, (offset, size, tags_code) in enumerate(QUEUE_ENTRY.iter_unpack(file.read_bytes()), first):
            if size:
                found[topic, int(queue_id), index] = offset, size, tags_code
    return found


def found_by_key(connection: Connection, topic: str, key: str) -> set[int]:
    """Offsets of the records that ``queryMsgByKey`` finds, at most `MOST_FOUND`, the newest."""
    fields = {"topic": topic, "key": key, "maxNum": str(MOST_FOUND), "beginTimestamp": "0", "endTimestamp": str(2**62)}
    try:
        records = connection.call(QUERY_MESSAGE, fields)[1]
    except Refused as refused:
        assert refused.args[0] == QUERY_NOT_FOUND
        return set()
    offsets: set[int] = set()
    at = 0
    while at < len(records):
        offsets.add(*struct.unpack_from(">q", records, at + 28))
        at += struct.unpack_from(">i", records, at)[0]
    return offsets


def topic_stats(connection: Connection, topic: str) -> dict[int, dict[str, int]]:
    """``topicStatus``: queue -> minOffset, maxOffset, lastUpdateTimestamp; nothing of a topic that is not there."""
    try:
        body = connection.call(TOPIC_STATS, {"topic": topic})[1]
    except Refused:
        return {}
    return {queue_id: stats for (_, queue_id), stats in _by_queue(body).items()}


def count_of(connection: Connection, topic: str) -> int:
    """How many entries the queues of a topic have had."""
    return sum(stats["maxOffset"] for stats in topic_stats(connection, topic).values())


def consumer_progress(connection: Connection, group: str) -> dict[Queue, dict[str, int]]:
    """``consumerProgress``: (topic, queue) -> brokerOffset, consumerOffset, lastTimestamp of the message before it."""
    return _by_queue(connection.call(CONSUME_STATS, {"consumerGroup": group})[1])


def delay_offsets(connection: Connection) -> dict[int, int]:
    """Delay level -> how many messages of it were delivered."""
    table = re.search(rb'"offsetTable":\{([^}]*)\}', connection.call(ALL_DELAY_OFFSETS)[1])
    pairs = re.findall(rb"(\d+):(\d+)", table[1] if table else b"")
    return {int(level): int(offset) for level, offset in pairs}


def _by_queue(body: bytes) -> dict[Queue, dict[str, int]]:
    pairs = ((json.loads(queue), json.loads(stats)) for queue, stats in _PAIR.findall(body.decode()))
    return {(queue["topic"], queue["queueId"]): stats for queue, stats in pairs}
