"""What masters yield: records, as their schemas say, and the map of texts that the records of a log may build.

The value of a key is what the last record that names it says. So the map that any records make, in any order and any
number of times, is the newest change of each key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
MESSAGE = "message"
BLANK = "blank"


def _field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


RECORD_SCHEMA = pa.schema(
    [
        _field(
            "offset", pa.int64(), "where the record begins: RocketMQ the byte, dister the entry id before it plus 1"
        ),
        _field("size", pa.int64(), "offset + size is where the next record begins; RocketMQ: the bytes it takes"),
        _field("kind", pa.string(), "message, or blank: the filler that ends a segment file"),
        _field("topic", pa.string(), "topic as stored; delayed and half messages wait in system topics"),
        _field("queue_id", pa.int32(), "queue of the topic"),
        _field("queue_offset", pa.int64(), "index in the consume queue of (topic, queue_id)"),
        _field("tags", pa.string(), "property TAGS; null without one"),
        _field("keys", pa.list_(pa.string()), "property KEYS, split at spaces; null without one"),
        _field("unique_key", pa.string(), "property UNIQ_KEY, the client's message id; retries reuse it"),
        _field(
            "store_timestamp", TIMESTAMP, "when the master stored it, by its clock; null outside the years 1 to 9999"
        ),
        _field(
            "born_timestamp", TIMESTAMP, "when the producer made it, by its clock; null outside the years 1 to 9999"
        ),
        _field("body", pa.binary(), "body, decompressed; null of a blank, and where it cannot be decompressed"),
        _field("properties", pa.map_(pa.string(), pa.string()), "properties as a RocketMQ consumer sees them"),
        _field("magic", pa.int32(), "record form: V1 -626843481, V2 -626843477, blank -875286124"),
        _field("body_crc", pa.int32(), "CRC-32 of the stored body with the top bit cleared; verified"),
        _field("flag", pa.int32(), "the producer's own flag"),
        _field("sys_flag", pa.int32(), "bits: 1 compressed, 12 transaction, 16/32 IPv6 hosts, 128 inner batch, …"),
        _field("born_host", pa.string(), "producer's address, ip:port"),
        _field("store_host", pa.string(), "address of the broker that wrote it, ip:port"),
        _field("reconsume_times", pa.int32(), "how often it was redelivered"),
        _field("prepared_transaction_offset", pa.int64(), "of a committed transaction: offset of its half message"),
        _field("tags_code", pa.int64(), "hash of the tags as in the consume queue; parked delay: delivery time, ms"),
        _field("stored_properties", pa.binary(), "the properties block as stored, byte for byte"),
        _field(
            "stored_body",
            pa.binary(),
            "the body as stored, if body differs; a blank's bytes; all of a record with a null time",
        ),
    ]
)
"""Columns of one record of a broker's or leader's log, in table order. This is the only definition; tables and data
source use it."""

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

KAFKA_SCHEMA: Final = pa.schema(
    [
        _field("offset", pa.int64(), "offset of the record in its partition; compaction and transactions leave gaps"),
        _field("leader_epoch", pa.int32(), "epoch of the leader that wrote it; null where the batch has none"),
        _field("topic", pa.string(), "topic"),
        _field("partition", pa.int32(), "partition of the topic"),
        _field(
            "timestamp", TIMESTAMP, "as timestamp_type says; null where there is none, and outside the years 1 to 9999"
        ),
        _field(
            "timestamp_type",
            pa.string(),
            "create_time (the producer's clock) or log_append_time (the broker's), and the ms if timestamp lacks them",
        ),
        _field("key", pa.binary(), "key; null of a record without one, which is not an empty one"),
        _field("value", pa.binary(), "value; null of a tombstone, which is not an empty one"),
        _field("headers", pa.list_(HEADER), "headers in their order, keys may repeat; a value may be null"),
    ]
)
"""Columns of one record of a topic, in table order. This is the only definition; tables and data source use it."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What the record `id` does to a key: it sets `value`, or removes the key if that is None.

    `id` is the master's own number of the record; it grows with the offsets.
    """

    id: int
    value: str | None


Changes = dict[str, KeyChange]
"""The newest change of each key."""


@dataclass(frozen=True, slots=True)
class KeyedState:
    """How a log builds its map.

    `made_from` are the columns of RECORD_SCHEMA that `changes` needs. `changes` returns what records, in the order of
    their offsets, do to the map; it raises CorruptRecord for a row that the master's `read` cannot have made.
    """

    made_from: tuple[str, ...]
    changes: Callable[[pa.RecordBatch], Changes]
