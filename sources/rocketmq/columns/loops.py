"""Compiled loops over the bytes of commit-log records: from head to head, over the fields, over the properties.

`scan` puts the results into columns. Modules import this one only when they need it (see `sources.decoding.compiled`).
The loops say *that* something is wrong, but not what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sources.decoding.columns import Bytes, Flags, Int32s, Ints
from sources.decoding.compiled import BYTES, INT32S, INTS, OFFSETS, compiled, inlined, types
from sources.rocketmq.format.layout import (
    BODY_LENGTH,
    BORN_HOST_IPV6,
    HEAD,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    LEAD,
    LEAD_AT,
    PROPERTIES_LENGTH,
    STORE_HOST_IPV6,
    STORE_TIMESTAMP,
    TAIL,
    TAIL_AT,
    TOPIC_LENGTH,
    V1,
    V2,
    minimum_size,
)
from sources.rocketmq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_HEAD_BYTES = HEAD.size
_LEAD_BYTES = LEAD.size
_TIMESTAMP_BYTES = STORE_TIMESTAMP.size
_TAIL_BYTES = TAIL.size
_BODY_LENGTH_BYTES = BODY_LENGTH.size
_V1_TOPIC_LENGTH_BYTES = TOPIC_LENGTH[V1].size
_V2_TOPIC_LENGTH_BYTES = TOPIC_LENGTH[V2].size
_PROPERTIES_LENGTH_BYTES = PROPERTIES_LENGTH.size
_MIN_V1_BYTES = minimum_size(V1, 0)
_MIN_V2_BYTES = minimum_size(V2, 0)
_NAME_VALUE = NAME_VALUE_SEPARATOR[0]
_SEPARATOR = PROPERTY_SEPARATOR[0]


class Messages(NamedTuple):
    """Message records of a buffer as columns, one row per record. Fields ending in `at`, `starts`, `ends` are indexes.

    A host differs if its bytes are not those of the row before; the host of the first row always does.
    """

    starts: Ints
    magic: Int32s
    body_crc: Int32s
    queue_id: Int32s
    flag: Int32s
    queue_offset: Ints
    sys_flag: Int32s
    born_timestamp_ms: Ints
    born_host_at: Ints
    born_host_differs: Flags
    store_timestamp_ms: Ints
    store_host_at: Ints
    store_host_differs: Flags
    reconsume_times: Int32s
    prepared_transaction_offset: Ints
    body_starts: Ints
    body_ends: Ints
    topic_starts: Ints
    topic_ends: Ints
    properties_starts: Ints
    properties_ends: Ints


# A signed index may count from the end, which costs each read a comparison; unsigned ones turn several reads into one.


@inlined
def _int16(raw: Bytes, at: int) -> np.int64:
    first = np.uint64(at)
    return np.int64(np.int8(raw[first])) << 8 | np.int64(raw[first + np.uint64(1)])


@inlined
def _int32(raw: Bytes, at: int) -> np.int32:
    word, first = np.uint32(0), np.uint64(at)
    for byte in range(4):
        word = word << np.uint32(8) | np.uint32(raw[first + np.uint64(byte)])
    return np.int32(word)


@inlined
def _int64(raw: Bytes, at: int) -> np.int64:
    word, first = np.uint64(0), np.uint64(at)
    for byte in range(8):
        word = word << np.uint64(8) | np.uint64(raw[first + np.uint64(byte)])
    return np.int64(word)


@inlined
def _same(text: Bytes, one: int, other: int, size: int) -> bool:
    byte = np.uint64(0)
    while byte < np.uint64(size) and text[np.uint64(one) + byte] == text[np.uint64(other) + byte]:
        byte += np.uint64(1)
    return bool(byte == np.uint64(size))


@compiled(BYTES, types.int64, types.int64)
def hop(raw: Bytes, stop: int, max_record_bytes: int) -> tuple[Ints, Flags]:
    """Find where records start, below `stop`, and which heads may be those of messages; the others are blanks or wrong.

    The places include where the last record ends; all of them are right only if the records' sizes are. A size below
    that of a head, which no record has, ends the loop. `raw` must have a whole head at each index below `stop`.
    """
    places, is_message = np.empty(1024, np.int64), np.empty(1024, np.bool_)
    count, at, size = 0, 0, np.int64(_HEAD_BYTES)
    while at < stop and size >= _HEAD_BYTES:
        if count + 1 == len(places):
            more_places, more_flags = np.empty(2 * len(places), np.int64), np.empty(2 * len(places), np.bool_)
            more_places[:count], more_flags[:count] = places[:count], is_message[:count]
            places, is_message = more_places, more_flags
        # Unsigned: the same for a sound head, and a wrong one cannot lead backwards.
        size, magic = np.int64(np.uint32(_int32(raw, at + LEAD_AT.size))), _int32(raw, at + LEAD_AT.magic)
        least = _MIN_V1_BYTES if magic == V1 else _MIN_V2_BYTES
        places[count] = at
        is_message[count] = (magic in (V1, V2)) and least <= size <= max_record_bytes
        at += int(size)
        count += 1
    places[count] = at
    return places[: count + 1], is_message[:count]


@compiled(BYTES, INTS, INTS, INTS)
def read(raw: Bytes, starts: Ints, ends: Ints, offsets: Ints) -> tuple[int, Messages]:
    """Read the fields of the message records at [starts, ends), whose heads are checked; they belong at `offsets`.

    Returns how many of them are sound, apart from the CRCs of the bodies, before the first that is not. Ignore the
    columns from that one on.
    """
    count = len(starts)
    messages = Messages(
        starts=starts,
        magic=np.empty(count, np.int32),
        body_crc=np.empty(count, np.int32),
        queue_id=np.empty(count, np.int32),
        flag=np.empty(count, np.int32),
        queue_offset=np.empty(count, np.int64),
        sys_flag=np.empty(count, np.int32),
        born_timestamp_ms=np.empty(count, np.int64),
        born_host_at=np.empty(count, np.int64),
        born_host_differs=np.ones(count, np.bool_),
        store_timestamp_ms=np.empty(count, np.int64),
        store_host_at=np.empty(count, np.int64),
        store_host_differs=np.ones(count, np.bool_),
        reconsume_times=np.empty(count, np.int32),
        prepared_transaction_offset=np.empty(count, np.int64),
        body_starts=np.empty(count, np.int64),
        body_ends=np.empty(count, np.int64),
        topic_starts=np.empty(count, np.int64),
        topic_ends=np.empty(count, np.int64),
        properties_starts=np.empty(count, np.int64),
        properties_ends=ends,
    )
    for row in range(count):
        at, end = starts[row], ends[row]
        magic, sys_flag = _int32(raw, at + LEAD_AT.magic), _int32(raw, at + LEAD_AT.sys_flag)
        born_ms = _int64(raw, at + LEAD_AT.born_timestamp)
        messages.magic[row] = magic
        messages.body_crc[row] = _int32(raw, at + LEAD_AT.body_crc)
        messages.queue_id[row] = _int32(raw, at + LEAD_AT.queue_id)
        messages.flag[row] = _int32(raw, at + LEAD_AT.flag)
        messages.queue_offset[row] = _int64(raw, at + LEAD_AT.queue_offset)
        messages.sys_flag[row] = sys_flag
        messages.born_timestamp_ms[row] = born_ms
        is_in_place = _int64(raw, at + LEAD_AT.offset) == offsets[row]

        born_host_at = at + _LEAD_BYTES
        store_timestamp_at = born_host_at + (IPV6_HOST_BYTES if sys_flag & BORN_HOST_IPV6 else IPV4_HOST_BYTES)
        store_host_at = store_timestamp_at + _TIMESTAMP_BYTES
        tail_at = store_host_at + (IPV6_HOST_BYTES if sys_flag & STORE_HOST_IPV6 else IPV4_HOST_BYTES)
        body_length_at = tail_at + _TAIL_BYTES
        body_start = body_length_at + _BODY_LENGTH_BYTES
        topic_length_bytes = _V1_TOPIC_LENGTH_BYTES if magic == V1 else _V2_TOPIC_LENGTH_BYTES
        # What is left for body, topic and properties: everything but the fields of fixed size and the lengths.
        room = end - body_start - topic_length_bytes - _PROPERTIES_LENGTH_BYTES
        if room < 0 or not is_in_place:
            return row, messages
        store_ms = _int64(raw, store_timestamp_at)
        messages.born_host_at[row] = born_host_at
        messages.store_timestamp_ms[row] = store_ms
        messages.store_host_at[row] = store_host_at
        if row > 0 and (sys_flag ^ messages.sys_flag[row - 1]) & (BORN_HOST_IPV6 | STORE_HOST_IPV6) == 0:
            born_before, store_before = messages.born_host_at[row - 1], messages.store_host_at[row - 1]
            born_bytes, store_bytes = store_timestamp_at - born_host_at, tail_at - store_host_at
            messages.born_host_differs[row] = not _same(raw, born_host_at, born_before, born_bytes)
            messages.store_host_differs[row] = not _same(raw, store_host_at, store_before, store_bytes)

        messages.reconsume_times[row] = _int32(raw, tail_at + TAIL_AT.reconsume_times)
        messages.prepared_transaction_offset[row] = _int64(raw, tail_at + TAIL_AT.prepared_transaction_offset)
        body_length = np.int64(_int32(raw, body_length_at))
        if body_length < 0 or body_length > room:
            return row, messages
        body_end = body_start + body_length
        topic_length = np.int64(np.int8(raw[body_end])) if magic == V1 else _int16(raw, body_end)
        room -= body_length
        if topic_length < 0 or topic_length > room:
            return row, messages
        topic_start = body_end + topic_length_bytes
        topic_end = topic_start + topic_length
        if _int16(raw, topic_end) != room - topic_length:
            return row, messages
        messages.body_starts[row] = body_start
        messages.body_ends[row] = body_end
        messages.topic_starts[row] = topic_start
        messages.topic_ends[row] = topic_end
        messages.properties_starts[row] = topic_end + _PROPERTIES_LENGTH_BYTES
    return count, messages


class Pairs(NamedTuple):
    """Names and values in a text: pair k has the name [starts[k], middles[k]) and the value [middles[k] + 1, ends[k]).

    The pairs of row r are [bounds[r], bounds[r + 1]).
    """

    bounds: Int32s
    starts: Int32s
    middles: Int32s
    ends: Int32s


@compiled(BYTES, OFFSETS)
def pairs(text: Bytes, blocks: Int32s) -> Pairs:
    """Find the pairs that have both a name and a value. Row r is [blocks[r], blocks[r + 1]) of `text`.

    Effective separators alternate: NAME_VALUE divides a pair; PROPERTY, or the end of the block, ends it. Of several
    separators of one kind in a row only the first is effective; the others belong to a value or end parts that are not
    pairs.
    """
    rows = len(blocks) - 1
    most = len(text) // 4 + rows + 1  # name, value and two separators, of which the last may be missing
    bounds = np.zeros(rows + 1, np.int32)
    starts, middles, ends = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    count = np.uint64(0)
    for row in range(rows):
        start, middle, end = np.int64(blocks[row]), np.int64(-1), np.int64(blocks[row + 1])
        for place in range(np.uint64(start), np.uint64(end)):
            byte, at = text[place], np.int64(place)
            if byte > _SEPARATOR:
                continue
            if byte == _SEPARATOR:
                starts[count], middles[count], ends[count] = start, middle, at
                if start < middle and middle + 1 < at:
                    count += np.uint64(1)
                start, middle = at + 1, np.int64(-1)
            elif byte == _NAME_VALUE and middle < 0:
                middle = at
        starts[count], middles[count], ends[count] = start, middle, end
        if start < middle and middle + 1 < end:
            count += np.uint64(1)
        bounds[row + 1] = count
    return Pairs(bounds, starts[:count], middles[:count], ends[:count])


@inlined
def _word(text: Bytes, at: int, size: int) -> np.uint64:
    """Return up to eight bytes as a number."""
    word, first = np.uint64(0), np.uint64(at)
    if at + 8 <= len(text):
        for byte in range(8):
            word |= np.uint64(text[first + np.uint64(byte)]) << np.uint64(8 * byte)
        return word if size >= 8 else word & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))
    for byte in range(min(size, 8)):
        word |= np.uint64(text[first + np.uint64(byte)]) << np.uint64(8 * byte)
    return word


@compiled(BYTES, types.NamedUniTuple(INT32S, 4, Pairs), types.int64)
def name_codes(text: Bytes, found: Pairs, most: int) -> tuple[Int32s, Ints, bool]:
    """Number the names in order of first appearance.

    Returns the number of each pair's name, the first pair of each number, and whether a row has a name twice. Usually
    there are few names, in the same order in each row. If there are more than `most`, the first pairs number `most` + 1
    and the other results are meaningless.
    """
    codes, firsts = np.empty(len(found.starts), np.int32), np.empty(most + 1, np.int64)
    last_rows = np.full(most + 1, -1, np.int64)
    followers = np.zeros(most + 1, np.int64)  # the name that last followed this one; last: at a row's start
    words, sizes = np.empty(most + 1, np.uint64), np.empty(most + 1, np.int64)
    names, repeats = 0, False
    for row in range(len(found.bounds) - 1):
        before = most
        for pair in range(found.bounds[row], found.bounds[row + 1]):
            start = found.starts[pair]
            size = found.middles[pair] - start
            word = _word(text, start, size)
            code, tried = followers[before], 0
            while tried < names:
                if words[code] == word and sizes[code] == size:
                    like = found.starts[firsts[code]]
                    if size <= 8 or _same(text, start + 8, like + 8, size - 8):
                        break
                code = code + 1 if code + 1 < names else 0
                tried += 1
            if tried == names:
                code = names
                firsts[code], words[code], sizes[code] = pair, word, size
                names += 1
                if names > most:
                    return codes, firsts, repeats
            followers[before] = code
            repeats |= last_rows[code] == row
            last_rows[code] = row
            codes[pair] = code
            before = code
    return codes, firsts[:names], repeats


@compiled(INT32S, INT32S, types.int64)
def pairs_of_name(bounds: Int32s, codes: Int32s, code: int) -> Ints:
    """Return the pair per row that has the name with this number; -1 if there is none."""
    found = np.full(len(bounds) - 1, -1, np.int64)
    for row in range(len(found)):
        for pair in range(bounds[row], bounds[row + 1]):
            if codes[pair] == code:
                found[row] = pair
    return found
