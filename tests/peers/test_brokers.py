"""Segment files of real brokers, read while they write them."""

from __future__ import annotations

import threading

import pytest

from sources.offsets import OffsetRange
from sources.rocketmq.files.segments import Segments
from tests.peers.rocketmq import Broker
from tests.peers.wire import Connection
from tests.sources.rocketmq.log_reading import chunks_of

pytestmark = pytest.mark.peer

MESSAGES = 1000


def bodies(segments: Segments, wanted: OffsetRange) -> dict[int, bytes]:
    """The records that start in `wanted`: offset -> body, None for a blank."""
    found: dict[int, bytes] = {}
    for chunk in chunks_of(segments.chunks(wanted, True, 64 * 1024)):
        found |= zip(chunk.records["offset"].to_pylist(), chunk.records["body"].to_pylist(), strict=True)
    return found


def test_a_log_is_read_while_the_broker_appends(each_broker: Broker) -> None:
    """No false alarm at the tail, no record missed, none read before it is whole."""
    with Connection(each_broker.port) as connection:
        connection.send(b"makes the first file")
        segments = Segments(each_broker.commitlog)
        start = at = segments.bounds().end
        sent: dict[int, bytes] = {}

        def produce() -> None:
            for number in range(MESSAGES):
                body = b"%d " % number * (1 + number % 600)
                sent[connection.send(body)] = body

        producer = threading.Thread(target=produce)
        producer.start()
        found: dict[int, bytes] = {}
        is_last_look = False
        while not is_last_look:
            is_last_look = not producer.is_alive()
            end = segments.bounds(at).end
            found |= bodies(segments, OffsetRange(at, end))
            at = end
        producer.join()
        assert at == connection.log_bounds().end
    assert len(sent) == MESSAGES
    assert None in found.values()  # the blank at the end of a file
    assert {offset: body for offset, body in found.items() if body is not None} == sent
    assert bodies(segments, OffsetRange(start, at)) == found
