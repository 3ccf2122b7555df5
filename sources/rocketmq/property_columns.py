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
from sources.spans import Flags, Ints, cut

_NAME_VALUE = properties.NAME_VALUE_SEPARATOR[0]
_SEPARATOR = properties.PROPERTY_SEPARATOR[0]


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
        keep = _last_of_name(rows, codes)
        if not keep.all():
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
    text = np.frombuffer(text_buffer or b"", np.uint8)[: bounds[-1]]
    marks = np.flatnonzero(text - np.uint8(_NAME_VALUE) < 2)  # both separators: 1 and 2; smaller bytes wrap around
    is_separator = text[marks] == _SEPARATOR
    separators = np.concatenate(([-1], marks[is_separator], [len(text)]))
    middles = marks[~is_separator]
    rows = np.repeat(np.arange(len(blocks)), np.diff(np.searchsorted(middles, bounds)))
    # A pair reaches from the separator before its middle to the one after it, and never beyond its block.
    before = np.flatnonzero(~is_separator) - np.arange(len(middles))
    starts = np.maximum(separators[before] + 1, bounds[rows])
    ends = np.minimum(separators[before + 1], bounds[rows + 1])
    is_first = np.concatenate(([-1], middles[:-1])) < starts
    whole = is_first & (starts < middles) & (middles + 1 < ends)
    starts, middles, ends = starts[whole], middles[whole], ends[whole]
    names = cut(pa.string(), text_buffer, starts, middles)
    return rows[whole], names, cut(pa.string(), text_buffer, middles + 1, ends)


def _last_of_name(rows: Ints, codes: Ints) -> Flags:
    """Which pairs no later pair of the same row overrides. `codes` says which name a pair has."""
    # Stable: the pairs of one name stay in order of their rows, so that two of one row become neighbours.
    narrow = codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes  # sorted by radix
    order = np.argsort(narrow, kind="stable")
    codes, rows = codes[order], rows[order]
    keep = np.ones(len(order), np.bool_)
    keep[order[:-1][(codes[1:] == codes[:-1]) & (rows[1:] == rows[:-1])]] = False
    return keep
