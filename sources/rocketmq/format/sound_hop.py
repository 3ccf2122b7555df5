"""Hops over the sound messages of a segment file, as a broker does that recovers. Pure.

A broker that was killed reads its newest file from record to record. At the first that is not sound it ends its log,
and later writes over what stands behind (CommitLog.recoverAbnormally, checkMessageAndReturnSize). So do we, by its own
checks: magic, size, place, the sum of the parts, the CRC of the body.

What it cut off may join the new records by chance, if they are as long as the old ones. Only the store time tells: a
broker takes it while it holds the lock of the append, so it never decreases along a log unless the clock is set back.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from sources.offsets import Offset
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.layout import (
    BODY_LENGTH,
    BORN_HOST_IPV6,
    HEAD,
    LEAD,
    LEAD_AT,
    PROPERTIES_LENGTH,
    STORE_HOST_IPV6,
    STORE_TIMESTAMP,
    TAIL,
    TOPIC_LENGTH,
    host_bytes,
)

NEVER_MS: Final = -(2**63)
"""A store time before all others."""

_CHECKED = struct.Struct(
    f"{HEAD.format}"
    "i"  # body CRC
    f"{LEAD_AT.offset - LEAD_AT.queue_id}x"
    "q"  # physical offset
    "i"  # sys_flag
)
_HOSTS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6


def _places(hosts: int) -> tuple[int, int]:
    """At which byte of a record with these host bits the store timestamp stands, and the body's length."""
    stored_at = LEAD.size + host_bytes(hosts & BORN_HOST_IPV6)
    return stored_at, stored_at + STORE_TIMESTAMP.size + host_bytes(hosts & STORE_HOST_IPV6) + TAIL.size


_PLACES: Final = {hosts: _places(hosts) for hosts in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, _HOSTS)}


class Hopped(NamedTuple):
    """Sound messages join up to `end`; the last of them starts at `last`, None if there is none.

    `in_order` is the end of the last one that was not stored before any other in front of it, at `latest_ms`. The last
    of all was stored at `last_ms`.
    """

    end: Offset
    last: Offset | None
    in_order: Offset
    latest_ms: int
    last_ms: int


def hop_sound(
    view: memoryview, base: int, start: Offset, enough: int, max_size: int, latest_ms: int, trusted: Offset
) -> Hopped:
    """Hop from offset `start` over sound messages to the first one at or after `enough`, or to something else.

    `view` is a whole file, whose first byte is offset `base`. `latest_ms` is the latest store time before `start`. Up
    to `trusted` all are taken to be in order. This is a hot loop: a gibibyte of small messages has millions.
    """
    unpack, unpack_time, unpack_length = _CHECKED.unpack_from, STORE_TIMESTAMP.unpack_from, BODY_LENGTH.unpack_from
    position, last, in_order, most = start - base, None, start - base, len(view) - HEAD.size
    stored_ms = latest_ms
    stop, trusted_end = min(enough - base, most - LEAD.size), trusted - base
    while position < stop:
        size, magic, crc, place, sys_flag = unpack(view, position)
        end = position + size
        stored_at, length_at = _PLACES[sys_flag & _HOSTS]
        if place != base + position or magic not in TOPIC_LENGTH or not length_at < size <= max_size or end > most:
            break
        (body_bytes,) = unpack_length(view, position + length_at)
        body_at = position + length_at + BODY_LENGTH.size
        body_end = body_at + body_bytes
        if body_bytes < 0 or not _ends_at(view, body_end, end, TOPIC_LENGTH[magic]):
            break
        if body_crc(view[body_at:body_end]) != crc:
            break
        (stored_ms,) = unpack_time(view, position + stored_at)
        last, position = position, end
        if stored_ms >= latest_ms or end <= trusted_end:
            latest_ms, in_order = stored_ms, end
    found_last = None if last is None else Offset(base + last)
    return Hopped(Offset(base + position), found_last, Offset(base + in_order), latest_ms, stored_ms)


def _ends_at(view: memoryview, at: int, end: int, topic_length: struct.Struct) -> bool:
    """Whether topic and properties, from index `at` on, end at `end`."""
    topic_at = at + topic_length.size
    if topic_at + PROPERTIES_LENGTH.size > end:
        return False
    (topic_bytes,) = topic_length.unpack_from(view, at)
    length_at = topic_at + topic_bytes
    if topic_bytes < 0 or length_at + PROPERTIES_LENGTH.size > end:
        return False
    (properties_bytes,) = PROPERTIES_LENGTH.unpack_from(view, length_at)
    return bool(length_at + PROPERTIES_LENGTH.size + properties_bytes == end)
