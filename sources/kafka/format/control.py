"""The records of control batches: markers that Kafka itself writes into a log.

====================  =====  ==========================================================
key field             bytes  meaning (Kafka documentation, "Control Batches")
====================  =====  ==========================================================
version               i16    0
type                  i16    0 abort, 1 commit; others do not concern transactions
====================  =====  ==========================================================

A control batch has one record, or none once compaction has removed it.
"""

from __future__ import annotations

import struct
from typing import Final

from sources.errors import CorruptRecord
from sources.kafka.format.record_format import varint
from sources.offsets import Offset

ABORT: Final = 0
_KEY: Final = struct.Struct(">hh")
_ATTRIBUTES_BYTES: Final = 1


def is_abort(records: bytes | memoryview, base_offset: Offset) -> bool:
    """Whether the records of the control batch at `base_offset` mark an aborted transaction.

    Raises CorruptRecord if they are no marker at all.
    """
    if not records:
        return False
    try:
        _version, kind = _KEY.unpack_from(records, _key_at(records))
    except (ValueError, IndexError, struct.error) as error:
        raise CorruptRecord(
            "the control batch has no type",
            offset=base_offset,
            expected=f"a key of {_KEY.size} bytes",
            found=error,
            hint="The CRC of the batch is right: the broker wrote it like this.",
        ) from error
    return bool(kind == ABORT)


def _key_at(records: bytes | memoryview) -> int:
    _length, at = varint(records, 0)
    _timestamp_delta, at = varint(records, at + _ATTRIBUTES_BYTES)
    _offset_delta, at = varint(records, at)
    key_length, at = varint(records, at)
    if key_length < _KEY.size:
        raise ValueError(f"a key of {key_length} bytes")
    return at
