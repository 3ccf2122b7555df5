"""Why a message has no body. Pure.

A record of Kafka may have none. One of RocketMQ always has: it cannot be decompressed, or its inner batch is not what
the record says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from sinks.typed.formats.json_fields import NO_BODY, Misfit

NOT_DECOMPRESSED: Final = "not_decompressed"
"""The reason of a misfit whose body is not what its sys_flag says; its dead letter has the body as it is stored."""


def missing_body(one: Misfit, messages: pa.RecordBatch) -> Misfit:
    """`one` of `messages`; if it has no body, it says why there is none."""
    if one.reason != NO_BODY:
        return one
    names = ("stored_body", "sys_flag", "batch_index")
    stored, sys_flag, index = (messages[name][one.row].as_py() for name in names)
    if stored is not None:
        found = f"sys_flag {sys_flag}, {len(stored):,} bytes that cannot be decompressed, or are too many then"
        return replace(one, reason=NOT_DECOMPRESSED, found=found)
    if index is not None:
        return replace(one, found=f"sys_flag {sys_flag}, an inner batch that has no message {index}")
    return one
