"""Rows of a replica back to the master's bytes: the inverse of `columns.decode`, as fast. numpy and Arrow, no Spark.

Rows of one form (version, and the lengths of the two hosts) have the same fixed fields: one numpy array holds what
precedes their bodies. Arrow joins the parts of each record, and the buffer of the joined column is the log. Rows that
no decoder can have made are done one by one (`encode_rows`), to name the first of them.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.columns import Ints, joined, of_fixed_size, sizes, whole_bytes
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.records import TIMESTAMP
from sources.rocketmq.columns.scan import SuspectRecord
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import Blank, Message
from sources.rocketmq.format.layout import (
    BLANK,
    BODY_LENGTH,
    BORN_HOST_IPV6,
    HEAD,
    LEAD,
    PROPERTIES_LENGTH,
    STORE_HOST_IPV6,
    TAIL,
    TOPIC_LENGTH,
    V1,
    V2,
    Host,
    Lead,
    Limits,
    Tail,
)

_HINT = "The row was not written by a replication of this log, or was changed since: replicate its range anew."
_US_PER_MS = 1000
_AS_STORED = (
    "magic", "body_crc", "queue_id", "flag", "queue_offset", "sys_flag", "reconsume_times",
    "prepared_transaction_offset", "topic",
)  # fmt: skip
_BLANKS = -1
_WHOLE = -2
"""Messages with a time that no table takes."""
_LENGTH_FIELDS = {1: ">i1", 2: ">i2"}

Rows = npt.NDArray[Any]  # of a structured dtype
Row = dict[str, Any]
"""The COLUMNS of a row by their names; times in microseconds."""

COLUMNS = (
    "offset", "size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp",
    "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "topic",
    "stored_properties", "body", "stored_body",
)  # fmt: skip


def _fields(names: Sequence[str], of: struct.Struct) -> list[tuple[str, str]]:
    """For numpy, which has the same codes."""
    return [(name, f">{code}") for name, code in zip(names, of.format[1:], strict=True)]


LEAD_FIELDS = np.dtype(_fields(Lead._fields, LEAD))
TAIL_FIELDS = np.dtype(_fields(Tail._fields, TAIL) + _fields(["body_length"], BODY_LENGTH))


def encode(records: pa.RecordBatch) -> bytes:
    """Return the master's bytes of `records` (RECORD_SCHEMA, or at least its COLUMNS), one after the other.

    Raises CorruptRecord for a row that `decode` cannot have made: a field is missing or impossible, or the resulting
    record has another size than the row says.
    """
    try:
        return whole_bytes(_encoded(records))
    except (SuspectRecord, pa.ArrowInvalid):
        return b"".join(encode_rows(records))


def _encoded(records: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each record. Raises SuspectRecord; ArrowInvalid if they are too many for one column."""
    forms = _forms(records)
    distinct = np.unique(forms).tolist()
    if len(distinct) == 1:
        return _of_form(records, distinct[0])
    rows = [np.flatnonzero(forms == form) for form in distinct]
    parts = [_of_form(records.take(pa.array(at)), form) for at, form in zip(rows, distinct, strict=True)]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows)))) if parts else pa.array([], "binary")


def _forms(records: pa.RecordBatch) -> Ints:
    """Return the form of each row: the hosts' bits of its flags and a bit for V2, or one of those that are rare."""
    magics = _numbers(records, "magic")
    flags = records.column("sys_flag").fill_null(0).to_numpy(zero_copy_only=False)
    if not np.isin(magics, (V1, V2, BLANK)).all():
        raise SuspectRecord
    forms = (flags & (BORN_HOST_IPV6 | STORE_HOST_IPV6)) | (magics == V2)
    times = [
        records.column(name).is_null().to_numpy(zero_copy_only=False) for name in ("born_timestamp", "store_timestamp")
    ]
    forms = np.where(times[0] | times[1], _WHOLE, forms)
    return np.where(magics == BLANK, _BLANKS, forms).astype(np.int64)


def _of_form(records: pa.RecordBatch, form: int) -> pa.Array:
    if form in (_BLANKS, _WHOLE):
        return pa.array(encode_rows(records), pa.binary())
    bodies = _stored_bodies(records)
    topics = records.column("topic").cast(pa.binary())
    properties = records.column("stored_properties")
    if any(part.null_count for part in (bodies, topics, properties)):
        raise SuspectRecord
    parts = (
        of_fixed_size(_fixed_fields(records, form, bodies)),
        bodies,
        _lengths(topics, TOPIC_LENGTH[V2 if form & 1 else V1].size),
        topics,
        _lengths(properties, PROPERTIES_LENGTH.size),
        properties,
    )
    whole = joined(*parts)
    if not np.array_equal(sizes(whole), _numbers(records, "size")):
        raise SuspectRecord
    return whole


def _fixed_fields(records: pa.RecordBatch, form: int, bodies: pa.Array) -> Rows:
    """Return what precedes the bodies."""
    born = _hosts(records.column("born_host"), ipv6=bool(form & BORN_HOST_IPV6))
    store = _hosts(records.column("store_host"), ipv6=bool(form & STORE_HOST_IPV6))
    rows = np.empty(
        records.num_rows,
        [("lead", LEAD_FIELDS), ("born", born.dtype), ("at", ">i8"), ("store", store.dtype), ("tail", TAIL_FIELDS)],
    )
    lead, tail = rows["lead"], rows["tail"]
    for name in ("size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "offset", "sys_flag"):
        lead[name] = _numbers(records, name)
    lead["born_timestamp"] = _times_ms(records, "born_timestamp")
    rows["born"], rows["store"] = born, store
    rows["at"] = _times_ms(records, "store_timestamp")
    for name in Tail._fields:
        tail[name] = _numbers(records, name)
    tail["body_length"] = sizes(bodies)
    return rows


def _stored_bodies(records: pa.RecordBatch) -> pa.Array:
    stored, body = records.column("stored_body"), records.column("body")
    return body if stored.null_count == len(stored) else pc.coalesce(stored, body)


def _hosts(texts: pa.Array, *, ipv6: bool) -> Rows:
    """Return the 8 or 20 bytes of each host."""
    encoded = texts.dictionary_encode()
    if encoded.null_count:
        raise SuspectRecord
    try:
        packed = [Host.parse(text, ipv6=ipv6).pack() for text in encoded.dictionary.to_pylist()]
    except ValueError:
        raise SuspectRecord from None
    hosts: Rows = np.array(packed, np.dtype((np.void, len(packed[0]))))
    rows: Rows = hosts[encoded.indices.to_numpy()]
    return rows


def _times_ms(records: pa.RecordBatch, name: str) -> Ints:
    times_us = records.column(name).cast(TIMESTAMP).cast(pa.int64())
    times_ms, rest_us = np.divmod(_values_of(times_us), 1000)
    if rest_us.any():
        raise SuspectRecord
    return times_ms


def _numbers(records: pa.RecordBatch, name: str) -> Ints:
    return _values_of(records.column(name))


def _values_of(numbers: pa.Array) -> Ints:
    if numbers.null_count:
        raise SuspectRecord
    values: Ints = numbers.to_numpy()
    return values


def _lengths(values: pa.Array, width: int) -> pa.Array:
    """Return the length of each value as a record stores it, in `width` bytes."""
    found, fields = sizes(values), _LENGTH_FIELDS[width]
    if len(found) and found.max() > np.iinfo(fields).max:
        raise SuspectRecord
    return of_fixed_size(found.astype(fields))


def encode_rows(records: pa.RecordBatch) -> list[bytes]:
    """Return the master's bytes of each of `records`, which have at least the COLUMNS of RECORD_SCHEMA: one by one.

    Raises CorruptRecord for a row that `decode` cannot have made: a field is missing or impossible, or the resulting
    record has another size than the row says.
    """
    parse_host = functools.cache(Host.parse)
    columns = [  # times as numbers of µs
        column.cast(TIMESTAMP).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in map(records.column, COLUMNS)
    ]
    rows = pa.RecordBatch.from_arrays(columns, names=list(COLUMNS)).to_pylist()
    return [_encode_row(row, parse_host) for row in rows]


def _encode_row(row: Row, parse_host: Any) -> bytes:
    try:
        encoded = commitlog.encode(_blank(row) if row["magic"] == BLANK else _message(_filled(row), parse_host))
    except (ValueError, KeyError) as error:
        raise CorruptRecord("the row is no record", offset=row["offset"], found=error, hint=_HINT) from error
    if len(encoded) != row["size"]:
        raise CorruptRecord(
            "the row gives a record of another size",
            offset=row["offset"],
            expected=f"{row['size']} bytes",
            found=f"{len(encoded)} bytes",
            hint=_HINT,
        )
    return encoded


def _blank(row: Row) -> Blank:
    offset, size, rest = row["offset"], row["size"], row["stored_body"]
    if offset is None or size is None:
        raise ValueError("null, where a blank has a value")
    return Blank(offset, size, bytes(size - HEAD.size) if rest is None else rest)


def _message(row: Row, parse_host: Any) -> Message:
    stored = row["body"] if row["stored_body"] is None else row["stored_body"]
    if stored is None or None in [row[name] for name in COLUMNS if name not in ("body", "stored_body")]:
        raise ValueError("null, where a message has a value")
    return Message(
        **{name: row[name] for name in _AS_STORED},
        offset=Offset(row["offset"]),
        born_timestamp_ms=_whole_ms(row["born_timestamp"]),
        born_host=parse_host(row["born_host"], ipv6=bool(row["sys_flag"] & BORN_HOST_IPV6)),
        store_timestamp_ms=_whole_ms(row["store_timestamp"]),
        store_host=parse_host(row["store_host"], ipv6=bool(row["sys_flag"] & STORE_HOST_IPV6)),
        body=stored,
        properties=row["stored_properties"],
    )


def _filled(row: Row) -> Row:
    """Return `row` with what its `stored_body` says, if that is the whole record because no table takes its times."""
    stored = row["stored_body"]
    if stored is None or None not in (row["born_timestamp"], row["store_timestamp"]):
        return row
    record = commitlog.decode(stored, 0, row["offset"], Limits(max_record_bytes=len(stored)))
    if not isinstance(record, Message):
        raise ValueError("no message in stored_body, which has what is null as a time")
    times_ms = {"born_timestamp": record.born_timestamp_ms, "store_timestamp": record.store_timestamp_ms}
    filled = {name: time_ms * _US_PER_MS for name, time_ms in times_ms.items() if row[name] is None}
    return row | filled | {"stored_body": record.body}


def _whole_ms(time_us: int) -> int:
    time_ms, rest_us = divmod(time_us, _US_PER_MS)
    if rest_us:
        raise ValueError(f"a time of {time_us} µs, which is no whole millisecond")
    return time_ms
