"""Columns of bodies: as a consumer gets them, and as they are stored if that differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.spans import Ints, cut
from sources.rocketmq.format.bodies import COMPRESSED, decompress
from sources.rocketmq.format.layout import Limits

if TYPE_CHECKING:
    from sources.rocketmq.columns.loops import Messages


@dataclass(frozen=True, slots=True)
class BodyColumns:
    """`body` and `stored_body`, one row per message. Use only the first `complete` rows."""

    body: pa.Array
    stored_body: pa.Array
    complete: int

    @classmethod
    def of(cls, view: memoryview, messages: Messages, limits: Limits) -> BodyColumns:
        """Read the bodies of `messages`, until the decompressed ones exceed `limits.max_decompressed_bytes`."""
        buffer, starts, ends = pa.py_buffer(view), messages.body_starts, messages.body_ends
        is_compressed = (messages.sys_flag & COMPRESSED != 0) & (starts < ends)
        count = len(starts)
        if not is_compressed.any():
            return cls(cut(pa.binary(), buffer, starts, ends), pa.nulls(count, pa.binary()), count)
        plain = cut(pa.binary(), buffer, starts, ends, ~is_compressed)
        rows = np.flatnonzero(is_compressed)
        bodies = _decompressed(view, messages, rows, limits)
        if len(bodies) < len(rows):
            count = int(rows[len(bodies)])
        done = np.zeros(len(starts), np.bool_)
        done[rows[: len(bodies)]] = True
        body = pc.replace_with_mask(plain, pa.array(done), pa.array(bodies, pa.binary()))
        return cls(body, cut(pa.binary(), buffer, starts, ends, is_compressed), count)


def _decompressed(view: memoryview, messages: Messages, rows: Ints, limits: Limits) -> list[bytes | None]:
    """Decompress the bodies of `rows` one by one, as many as the limit allows, but always that of row 0."""
    spans = zip(messages.body_starts[rows].tolist(), messages.body_ends[rows].tolist(), strict=True)
    flags = messages.sys_flag[rows].tolist()
    bodies: list[bytes | None] = []
    left_bytes = limits.max_decompressed_bytes
    for row, (start, end), sys_flag in zip(rows.tolist(), spans, flags, strict=True):
        body = decompress(view[start:end], sys_flag, limits)
        left_bytes -= len(body or b"")
        if left_bytes < 0 and row > 0:
            break
        bodies.append(body)
    return bodies
