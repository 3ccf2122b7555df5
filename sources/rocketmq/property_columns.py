"""Properties blocks to a map column, and the properties that have columns of their own. numpy and Arrow.

The rules are those of `properties.decode`, over all blocks at once: the positions of all separators are found in one
pass, and names and values are cut out of the concatenated blocks by their spans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.rocketmq import properties
from sources.spans import Bytes, Flags, Ints, cut_pairs

_NAME_VALUE = properties.NAME_VALUE_SEPARATOR[0]
_SEPARATOR = properties.PROPERTY_SEPARATOR[0]
_FEW_NAMES = 64


@dataclass(frozen=True, slots=True)
class PropertyColumns:
    """The pairs of `count` blocks, in order: `rows` says whose a pair is, `names` and `values` are string arrays."""

    count: int
    rows: Ints
    names: pa.Array
    values: pa.Array
    codes: Ints
    distinct_names: pa.Array

    @classmethod
    def of(cls, blocks: pa.Array) -> PropertyColumns:
        """The pairs of a binary array of blocks without nulls. Of a repeated name only the last one is kept."""
        rows, names, values = _pairs(as_text(blocks))
        encoded = names.dictionary_encode()
        codes = encoded.indices.to_numpy()
        if _may_repeat(rows, codes, len(encoded.dictionary)):
            keep = _last_of_name(rows, codes)
            rows, codes = rows[keep], codes[keep]
            names, values = names.filter(pa.array(keep)), values.filter(pa.array(keep))
        return cls(len(blocks), rows, names, values, codes, encoded.dictionary)

    def column(self) -> pa.Array:
        """map<string, string>, one a block; empty where there are no pairs."""
        ends = np.cumsum(np.bincount(self.rows, minlength=self.count))
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), self.names, self.values)

    def values_of(self, name: str) -> pa.Array:
        """The values of one property, one a block; null without it."""
        code = pc.index(self.distinct_names, pa.scalar(name)).as_py()
        if code < 0:
            return pa.nulls(self.count, pa.string())
        pairs = np.flatnonzero(self.codes == code)
        at = np.full(self.count, -1, np.int64)
        at[self.rows[pairs]] = pairs
        return self.values.take(pa.array(at, mask=at < 0))


def as_text(blocks: pa.Array) -> pa.Array:
    """Binary -> string. Bytes that are no UTF-8 become U+FFFD as in Java, which moves no separator: these are ASCII."""
    try:
        return blocks.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([block.decode("utf-8", "replace") for block in blocks.to_pylist()], pa.string())


def _pairs(blocks: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    """Row, name and value of each pair with both."""
    _, offsets_buffer, text_buffer = blocks.buffers()
    bounds = np.frombuffer(offsets_buffer, np.int32)[blocks.offset : blocks.offset + len(blocks) + 1].astype(np.int64)
    text_buffer = (text_buffer or pa.py_buffer(b""))[bounds[0] : bounds[-1]]
    bounds -= bounds[0]
    starts, middles, ends = _spans(np.frombuffer(text_buffer, np.uint8), bounds)
    rows = np.repeat(np.arange(len(blocks)), np.diff(np.searchsorted(middles, bounds)))
    has_both = (starts < middles) & (middles + 1 < ends)
    if not has_both.all():
        starts, middles, ends, rows = starts[has_both], middles[has_both], ends[has_both], rows[has_both]
    return rows, *cut_pairs(pa.string(), text_buffer, starts, middles, ends)


def _spans(text: Bytes, bounds: Ints) -> tuple[Ints, Ints, Ints]:
    """Where each pair starts, is divided and ends. Its name or its value may be empty.

    Separators that do their work take turns: NAME_VALUE divides a pair, PROPERTY ends it. Of several of one kind in
    a row only the first does; the others belong to a value, or end parts that are no pairs.
    """
    marks, kinds, nexts = _separators(text, bounds)
    takes_turn = kinds[1:] != kinds[:-1]
    before, marks = nexts[:-1], marks[1:]
    if not takes_turn.all():
        before, marks = before[takes_turn], marks[takes_turn]
    return before[0::2], marks[0::2], marks[1::2]


def _separators(text: Bytes, bounds: Ints) -> tuple[Ints, Bytes, Ints]:
    """Every separator's position, its kind and the position after it.

    There is one of no width before the first block, and one at the end of each block that does not end in its own.
    """
    marks = np.flatnonzero(text <= _SEPARATOR).astype(np.int32)
    kinds = text[marks]
    if not kinds.all():  # a zero byte is text
        marks, kinds = marks[kinds > 0], kinds[kinds > 0]
    edges = bounds[1:][np.diff(bounds) > 0]
    edges = np.concatenate(([0], edges[text[edges - 1] != _SEPARATOR])).astype(np.int32)
    at = np.searchsorted(marks, edges)
    return np.insert(marks, at, edges), np.insert(kinds, at, _SEPARATOR), np.insert(marks + 1, at, edges)


def _may_repeat(rows: Ints, codes: Ints, distinct: int) -> bool:
    """Whether some row may have two pairs of one name. False where it is known cheaply: names are few as a rule."""
    if distinct > _FEW_NAMES:
        return True
    return bool(np.bincount(rows * distinct + codes).max(initial=0) > 1)


def _last_of_name(rows: Ints, codes: Ints) -> Flags:
    """Which pairs no later pair of the same row overrides. `codes` says which name a pair has."""
    # Stable: the pairs of one name stay in order of their rows, so that two of one row become neighbours.
    narrow = codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes  # sorted by radix
    order = np.argsort(narrow, kind="stable")
    codes, rows = codes[order], rows[order]
    keep = np.ones(len(order), np.bool_)
    keep[order[:-1][(codes[1:] == codes[:-1]) & (rows[1:] == rows[:-1])]] = False
    return keep
