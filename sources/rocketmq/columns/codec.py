"""Many commit-log records at once: bytes <-> an Arrow batch of RECORD_SCHEMA. numpy and Arrow, no Spark.

`commitlog` defines a record; this module gives the same results a few hundred thousand times a second. A record costs
one loop step, one CRC of its body, and otherwise only its share of the work on columns. A field becomes a Python object
only if a body is compressed. The input is looked at in place and never copied as a whole, and nothing returned refers
to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.columns import Flags, Ints, cut, fit, time_column
from sources.decoding.undecodable import as_damage, placed, up_to_damage
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import BLANK, MESSAGE, RECORD_SCHEMA
from sources.rocketmq.columns.restore import encode
from sources.rocketmq.columns.scan import (
    BodyColumns,
    PropertyColumns,
    RecordHeads,
    SuspectRecord,
    hop,
    host_column,
    scan,
)
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.layout import BLANK as BLANK_MAGIC
from sources.rocketmq.format.layout import (
    BORN_HOST_IPV6,
    DEFAULT_LIMITS,
    HEAD,
    STORE_HOST_IPV6,
    V1,
    Buffer,
    Host,
    Limits,
)
from sources.rocketmq.format.properties import DELAY, KEYS, SCHEDULE_TOPIC, TAGS, UNIQ_KEY, delay_ms, tags_code

if TYPE_CHECKING:
    from sources.rocketmq.columns.loops import Messages

__all__ = ["DecodedRecords", "decode", "encode"]

_MAX_DATA_BYTES = 2**31 - 1  # Arrow's binary columns count bytes in 32 bits


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Whole records, one row each (RECORD_SCHEMA), in log order; `end` is the first byte that was not decoded.

    `error` is what is wrong with the record at `end`; None if nothing is known to be wrong.
    """

    records: pa.RecordBatch
    end: Offset
    error: CorruptRecord | None = None


def decode(data: Buffer, start: Offset, stop: Offset, limits: Limits = DEFAULT_LIMITS) -> DecodedRecords:
    """Like `decode_sound`, but raise the error if there is one."""
    decoded = decode_sound(data, start, stop, limits)
    if decoded.error is not None:
        raise decoded.error
    return decoded


def decode_sound(data: Buffer, start: Offset, stop: Offset, limits: Limits = DEFAULT_LIMITS) -> DecodedRecords:
    """Decode every record that starts before `stop` and lies wholly in `data`, which begins at the boundary `start`.

    Decoding ends before the first record in which anything is wrong, with the error that `commitlog.decode` raises for
    it or, if only this decoder fails, with one that says so (`sources.decoding.undecodable`). It ends earlier, after at
    least one record, if the decompressed bodies exceed `limits.max_decompressed_bytes`; then go on at `end` as usual. A
    body that cannot be decompressed, or only to more than `limits.max_body_bytes`, is null in `body` and whole in
    `stored_body`: brokers store what producers send and check neither. A record with a time that no table takes
    (`sources.decoding.columns`) has null there, and is whole in `stored_body`.

    It also ends earlier if there is not enough memory for all records at once. Raises OutOfMemory, naming the record,
    if there is not enough for one; ValueError for 2 GiB of data or more.
    """
    view = memoryview(data).cast("B")
    if len(view) > _MAX_DATA_BYTES:
        raise ValueError(f"{len(view)} bytes at once; at most {_MAX_DATA_BYTES} can be decoded")
    try:
        return _decode(view, start, stop, limits)
    finally:
        # So that a memory map can be closed while an error of ours is raised. The traceback of another error may still
        # hold parts of it.
        with contextlib.suppress(BufferError):
            view.release()


def _decode(view: memoryview, start: Offset, stop: Offset, limits: Limits) -> DecodedRecords:
    heads = hop(view, start, stop, limits)
    decoded, sound, damage = up_to_damage(
        len(heads.starts), lambda count: _rows_of(view, start, heads.first(count), limits), start
    )
    if damage is not None:
        heads = replace(heads.first(sound), error=_error_at(view, int(heads.starts[sound]), start, limits, damage))
    return replace(decoded, error=heads.error) if decoded.end == start + heads.end else decoded


@dataclass(frozen=True, slots=True)
class LogPart:
    """`data` of a log, which begins at the boundary `start`. The records that start before `stop` are wanted."""

    data: bytes
    start: Offset
    stop: Offset
    limits: Limits


def decode_together(parts: Sequence[LogPart]) -> list[DecodedRecords | None]:
    """Decode parts of different logs at once, which costs little more than one of them does.

    Where anything is unusual, the answer is None, and `decode_sound` says what it is: if a part holds a blank, or not
    all that is wanted, or a record that is not sound.
    """
    found = [hop(memoryview(part.data), part.start, part.stop, part.limits) for part in parts]
    usual = [at for at, heads in enumerate(found) if _is_plain(parts[at], heads)]
    decoded: list[DecodedRecords | None] = [None] * len(parts)
    if not usual:
        return decoded
    first = parts[usual[0]]
    bases = np.cumsum([0, *(len(parts[at].data) for at in usual)])
    starts = np.concatenate([base + found[at].starts for base, at in zip(bases, usual, strict=False)])
    ends = np.concatenate([base + found[at].ends for base, at in zip(bases, usual, strict=False)])
    offsets = np.concatenate([parts[at].start + found[at].starts for at in usual])
    view = memoryview(b"".join([parts[at].data for at in usual]))
    try:
        with as_damage(first.start):
            messages = scan(view, starts, ends, offsets)
            bodies = BodyColumns.of(view, messages, first.limits)
            records = _records(view, offsets, messages, bodies)
    except (CorruptRecord, MemoryError):
        return _halved(parts)
    if bodies.complete < len(starts):
        return _halved(parts)
    row = 0
    for at in usual:
        count = len(found[at].starts)
        decoded[at] = DecodedRecords(records.slice(row, count), Offset(parts[at].start + found[at].end))
        row += count
    return decoded


def _halved(parts: Sequence[LogPart]) -> list[DecodedRecords | None]:
    """Find out which of `parts` cannot be decoded with the others; a single one cannot."""
    half = len(parts) // 2
    return [None] if half == 0 else [*decode_together(parts[:half]), *decode_together(parts[half:])]


def _is_plain(part: LogPart, heads: RecordHeads) -> bool:
    """Whether all records of `part` that are wanted are there, and are messages, by their heads."""
    return heads.error is None and part.start + heads.end >= part.stop > part.start and not heads.is_blank.any()


def _rows_of(view: memoryview, start: Offset, heads: RecordHeads, limits: Limits) -> DecodedRecords:
    """Decode the records of `heads`. Raises CorruptRecord if anything is wrong, without saying where."""
    with as_damage(start):
        return _decode_rows(view, start, heads, limits)


def _error_at(view: memoryview, at: int, start: Offset, limits: Limits, damage: CorruptRecord) -> CorruptRecord:
    """Return what is wrong with the record at index `at`, over which this decoder fails with `damage`.

    If it also fails over a record known to be sound, that error is raised: then the decoder itself is broken.
    """
    offset = Offset(start + at)
    try:
        commitlog.decode(view, at, offset, limits)
    except CorruptRecord as error:
        return error
    sound = memoryview(commitlog.encode(_SOUND))
    _decode_rows(sound, _SOUND.offset, hop(sound, _SOUND.offset, Offset(1), DEFAULT_LIMITS), DEFAULT_LIMITS)
    return placed(damage, offset)


_SOUND: Final = commitlog.Message(
    magic=V1, body_crc=commitlog.body_crc(b"sound"), queue_id=0, flag=0, queue_offset=0, offset=Offset(0), sys_flag=0,
    born_timestamp_ms=0, born_host=Host(bytes(4), 0), store_timestamp_ms=0, store_host=Host(bytes(4), 0),
    reconsume_times=0, prepared_transaction_offset=0, body=b"sound", topic=SCHEDULE_TOPIC,
    properties=b"DELAY\x011\x02KEYS\x01a b\x02TAGS\x01c\x02UNIQ_KEY\x01d\x02",
)  # fmt: skip


def _decode_rows(view: memoryview, start: Offset, heads: RecordHeads, limits: Limits) -> DecodedRecords:
    at = np.flatnonzero(~heads.is_blank)
    if not len(at):
        return DecodedRecords(_with_blanks(NO_ROWS, view, start, heads), Offset(start + heads.end))
    offsets = start + heads.starts[at]
    messages = scan(view, heads.starts[at], heads.ends[at], offsets)
    bodies = BodyColumns.of(view, messages, limits)
    records = _records(view, offsets, messages, bodies)
    if len(at) < len(heads.starts):
        records = _with_blanks(records, view, start, heads)
    if bodies.complete == len(at):
        return DecodedRecords(records, Offset(start + heads.end))
    complete = int(at[bodies.complete])
    return DecodedRecords(records.slice(0, complete), Offset(start + int(heads.starts[complete])))


# Made of nulls, because pyarrow imports pandas for any list, which costs each planning process 27 MiB.
NO_ROWS = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in RECORD_SCHEMA], schema=RECORD_SCHEMA)


_AS_STORED = (
    "queue_id",
    "queue_offset",
    "magic",
    "body_crc",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
)


def _records(view: memoryview, offsets: Ints, messages: Messages, bodies: BodyColumns) -> pa.RecordBatch:
    """Return the rows of messages only, in RECORD_SCHEMA."""
    buffer, count = pa.py_buffer(view), len(messages.starts)
    topics = _topics(buffer, messages)
    blocks = cut(pa.binary(), buffer, messages.properties_starts, messages.properties_ends)
    properties = PropertyColumns.of(blocks)
    tags = properties.values_of(TAGS)
    born_fits, store_fits = fit(messages.born_timestamp_ms), fit(messages.store_timestamp_ms)
    columns = {
        "offset": pa.array(offsets),
        "size": pa.array((messages.properties_ends - messages.starts).astype(np.int64)),
        "kind": pa.repeat(MESSAGE, count),
        "topic": topics,
        "tags": tags,
        "keys": _keys(properties.values_of(KEYS)),
        "unique_key": properties.values_of(UNIQ_KEY),
        "store_timestamp": time_column(messages.store_timestamp_ms, store_fits),
        "born_timestamp": time_column(messages.born_timestamp_ms, born_fits),
        "body": bodies.body,
        "properties": properties.column(),
        "born_host": _hosts(view, messages, "born_host", BORN_HOST_IPV6),
        "store_host": _hosts(view, messages, "store_host", STORE_HOST_IPV6),
        "tags_code": _tags_codes(tags, topics, properties.values_of(DELAY), messages.store_timestamp_ms),
        "stored_properties": blocks,
        "stored_body": _with_whole(bodies.stored_body, view, messages, born_fits & store_fits),
    }
    for name in _AS_STORED:
        columns[name] = pa.array(getattr(messages, name))
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)


def _hosts(view: memoryview, messages: Messages, name: str, ipv6: int) -> pa.Array:
    at, differs = getattr(messages, f"{name}_at"), getattr(messages, f"{name}_differs")
    return host_column(view, at, messages.sys_flag & ipv6 != 0, differs)


def _with_whole(stored_bodies: pa.Array, view: memoryview, messages: Messages, fits: Flags) -> pa.Array:
    """Return `stored_bodies` with the whole record in place of each whose times do not all fit into columns."""
    rows = np.flatnonzero(~fits)
    if not len(rows):
        return stored_bodies
    spans = zip(messages.starts[rows].tolist(), messages.properties_ends[rows].tolist(), strict=True)
    whole = pa.array([bytes(view[start:end]) for start, end in spans], pa.binary())
    return pc.replace_with_mask(stored_bodies, pa.array(~fits), whole)


def _topics(buffer: pa.Buffer, messages: Messages) -> pa.Array:
    try:
        return cut(pa.binary(), buffer, messages.topic_starts, messages.topic_ends).cast(pa.string())
    except pa.ArrowInvalid:
        raise SuspectRecord from None


def _keys(values: pa.Array) -> pa.Array:
    """Split KEYS at single spaces, dropping empty parts; null stays null."""
    lists = pc.split_pattern(values, " ")
    parts = lists.values
    keep = pc.not_equal(parts, "").to_numpy(zero_copy_only=False)
    if keep.all():
        return lists
    kept_before = np.concatenate(([0], np.cumsum(keep))).astype(np.int32)
    offsets = kept_before[lists.offsets.to_numpy()]
    return pa.ListArray.from_arrays(pa.array(offsets), parts.filter(pa.array(keep)), mask=values.is_null())


def _tags_codes(tags: pa.Array, topics: pa.Array, delays: pa.Array, store_timestamp_ms: Ints) -> pa.Array:
    """Return what the consume queue holds: the hash of the tags or, for a parked delay message, its delivery time."""
    codes = _per_distinct(tags, tags_code, 0)
    if delays.null_count < len(delays):
        parked = pc.if_else(pc.equal(topics, SCHEDULE_TOPIC), delays, pa.scalar(None, pa.string()))
        delays_ms = _per_distinct(parked, lambda delay: _NO_DELAY if (ms := delay_ms(delay)) is None else ms, _NO_DELAY)
        codes = np.where(delays_ms != _NO_DELAY, store_timestamp_ms + delays_ms, codes)
    return pa.array(codes)


_NO_DELAY = -1


def _per_distinct(texts: pa.Array, number_of: Callable[[str], int], of_null: int) -> Ints:
    """Return a number for each text, computed once per distinct text."""
    encoded = texts.dictionary_encode()
    numbers = np.array([*map(number_of, encoded.dictionary.to_pylist()), of_null], np.int64)
    rows: Ints = numbers[encoded.indices.fill_null(len(numbers) - 1).to_numpy()]
    return rows


def _with_blanks(messages: pa.RecordBatch, view: memoryview, start: Offset, heads: RecordHeads) -> pa.RecordBatch:
    """Return the rows of `messages` with a row for each blank between them."""
    is_blank, starts, ends = heads.is_blank, heads.starts, heads.ends
    blank = pa.array(is_blank)
    rows = messages.take(pa.array(np.cumsum(~is_blank) - 1, mask=is_blank))
    rests = [_rest(view[at + HEAD.size : end]) for at, end in zip(starts[is_blank], ends[is_blank], strict=True)]
    filled = {
        "offset": pa.array(start + starts),
        "size": pa.array((ends - starts).astype(np.int64)),
        "kind": pc.if_else(blank, BLANK, MESSAGE),
        "magic": pc.if_else(blank, pa.scalar(BLANK_MAGIC, pa.int32()), rows.column("magic")),
        "stored_body": pc.replace_with_mask(rows.column("stored_body"), blank, pa.array(rests, pa.binary())),
    }
    columns = [filled.get(name, rows.column(name)) for name in RECORD_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _rest(rest: memoryview) -> bytes | None:
    """Return what a blank holds after its head; None if that is all zeros."""
    return bytes(rest) if np.frombuffer(rest, np.uint8).any() else None
