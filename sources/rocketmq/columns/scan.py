"""Many records at once, before they are rows: where each field is, with every check done. numpy and Arrow, no Spark.

Records are found by hopping from head to head, one loop step each. Everything after that, beginning with the check of
the heads, works on whole columns: fields of fixed size are gathered by index, big-endian, and the spans of body, topic
and properties follow from the lengths. The checks are those of `checks`, over columns, but they only say *that*
something is wrong. `commitlog.decode` finds what is wrong, and in which record first, so that both readers fail with
the same words.

Hosts, bodies and properties are more than numbers. The rules for properties are those of `properties.decode`, applied
to all blocks at once: one pass finds all pairs, and names and values are cut out of the concatenated blocks by their
spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.decoding.columns import Bytes, Flags, Int32s, Ints, cut, read_only
from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format.bodies import COMPRESSED, decompress
from sources.rocketmq.format.checks import check_head
from sources.rocketmq.format.layout import HEAD, IPV4_HOST_BYTES, IPV6_HOST_BYTES, Host, Limits, read_head

if TYPE_CHECKING:
    from sources.rocketmq.columns.loops import Messages


class SuspectRecord(Exception):
    """Some record fails a check. This never leaves the decoders of this package."""


@dataclass(frozen=True, slots=True)
class RecordHeads:
    """The records that start in a range and are completely there, [starts, ends). `end` is where the last one ends.

    `error` is what is wrong with the head at `end`, if anything; it comes after whatever is wrong before it.
    """

    starts: Ints
    is_blank: Flags
    end: int
    error: CorruptRecord | None

    @property
    def ends(self) -> Ints:
        return np.append(self.starts[1:], self.end)

    def first(self, count: int) -> RecordHeads:
        """Return the first `count` of them."""
        if count == len(self.starts):
            return self
        return RecordHeads(self.starts[:count], self.is_blank[:count], int(self.starts[count]), None)


def hop(view: memoryview, start: Offset, stop: Offset, limits: Limits) -> RecordHeads:
    """Find the records of `view`, which begins with byte `start` of the log, that start before `stop`."""
    from sources.rocketmq.columns import loops

    stop = Offset(min(stop, start + len(view) - HEAD.size + 1))
    places, is_message = loops.hop(read_only(view), stop - start, limits.max_record_bytes)
    count, error = len(is_message), None
    for number in np.flatnonzero(~is_message).tolist():
        at = int(places[number])
        error = _head_error(*read_head(view, at), start + at, limits)
        if error is not None:
            count = number
            break
    if count and places[count] > len(view):
        count -= 1
    return RecordHeads(places[:count], ~is_message[:count], int(places[count]), error)


def _head_error(size: int, magic: int, offset: int, limits: Limits) -> CorruptRecord | None:
    try:
        check_head(size, magic, offset, limits)
    except CorruptRecord as error:
        return error
    return None


def scan(view: memoryview, starts: Ints, ends: Ints, offsets: Ints) -> Messages:
    """Read the message records of `view` that lie at [starts, ends), belong at `offsets`, and have checked heads.

    Raises SuspectRecord if a record contradicts itself or its place.
    """
    sound, messages = _read(view, starts, ends, offsets)
    if sound < len(starts):
        raise SuspectRecord
    return messages


def sound_messages(view: memoryview, start: Offset, stop: Offset, limits: Limits) -> tuple[Ints, Ints]:
    """Return the ends of the sound messages that `view` begins with, and their store times, in ms.

    `view` begins with byte `start` of the log. All but the topics' UTF-8 is checked; those of messages that start
    before `stop`.
    """
    heads = hop(view, start, stop, limits)
    blanks = np.flatnonzero(heads.is_blank)
    heads = heads.first(int(blanks[0])) if blanks.size else heads
    offsets = start + heads.starts
    sound, messages = _read(view, heads.starts, heads.ends, offsets)
    return start + heads.ends[:sound], messages.store_timestamp_ms[:sound]


def _read(view: memoryview, starts: Ints, ends: Ints, offsets: Ints) -> tuple[int, Messages]:
    """Read the records as `scan` does; return how many are sound before the first that is not."""
    from sources.rocketmq.columns.body_crcs import body_crcs
    from sources.rocketmq.columns.loops import read

    raw = read_only(view)
    sound, messages = read(raw, starts, ends, offsets)
    crcs = body_crcs(raw, messages.body_starts[:sound], messages.body_ends[:sound])
    wrong = np.flatnonzero(crcs != messages.body_crc[:sound])
    return (int(wrong[0]) if wrong.size else sound), messages


_FEW_NAMES = 64


def host_column(view: memoryview, at: Ints, is_ipv6: Flags, differs: Flags) -> pa.Array:
    """Return the hosts stored at the indexes `at` of `view` as text; with `is_ipv6` they take 20 bytes instead of 8.

    Each distinct host is formatted once. Only hosts that differ from the one before are looked at: usually there is one
    store host.
    """
    firsts = np.flatnonzero(differs)
    ends = at[firsts] + np.where(is_ipv6[firsts], IPV6_HOST_BYTES, IPV4_HOST_BYTES)
    numbers: dict[bytes, int] = {}  # in order of first appearance
    spans = zip(at[firsts].tolist(), ends.tolist(), strict=True)
    of_firsts = [numbers.setdefault(bytes(view[start:end]), len(numbers)) for start, end in spans]
    texts = pa.array([str(Host.unpack(host)) for host in numbers], pa.string())
    return texts.take(pa.array(np.array(of_firsts)[np.cumsum(differs) - 1]))


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


@dataclass(frozen=True, slots=True)
class PropertyColumns:
    """The pairs of all blocks, in order.

    Those of block k are [bounds[k], bounds[k + 1]). `codes` has the index of each pair's name in `distinct_names`.
    """

    bounds: Int32s
    codes: Int32s
    distinct_names: pa.Array
    values: pa.Array

    @classmethod
    def of(cls, blocks: pa.Array) -> PropertyColumns:
        """Find the pairs of a binary array of blocks without nulls. Only the last pair of a repeated name is kept."""
        from sources.rocketmq.columns import loops

        text, data, bounds = _text_of(as_text(blocks))
        found = loops.pairs(text, bounds)
        values = cut(pa.string(), data, found.middles + 1, found.ends)
        codes, firsts, may_repeat = loops.name_codes(text, found, _FEW_NAMES)
        if len(firsts) <= _FEW_NAMES:
            names = cut(pa.string(), data, found.starts[firsts], found.middles[firsts])
        else:
            encoded = cut(pa.string(), data, found.starts, found.middles).dictionary_encode()
            codes, names, may_repeat = encoded.indices.to_numpy(), encoded.dictionary, True
        columns = cls(found.bounds, codes, names, values)
        return columns._last_of_each_name() if may_repeat else columns

    def column(self) -> pa.Array:
        """Return a map<string, string> per block; it is empty if there are no pairs."""
        names = self.distinct_names.take(pa.array(self.codes))
        return pa.MapArray.from_arrays(pa.array(self.bounds), names, self.values)

    def values_of(self, name: str) -> pa.Array:
        """Return the value of one property per block; null if the block does not have it."""
        from sources.rocketmq.columns.loops import pairs_of_name

        code = pc.index(self.distinct_names, pa.scalar(name)).as_py()
        if code < 0:
            return pa.nulls(len(self.bounds) - 1, pa.string())
        pairs = pairs_of_name(self.bounds, self.codes, code)
        return self.values.take(pa.array(pairs, mask=pairs < 0))

    def _last_of_each_name(self) -> PropertyColumns:
        rows = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        keep = _last_of_name(rows, self.codes)
        kept_before = np.concatenate(([0], np.cumsum(keep))).astype(np.int32)
        values = self.values.filter(pa.array(keep))
        return PropertyColumns(kept_before[self.bounds], self.codes[keep], self.distinct_names, values)


def as_text(blocks: pa.Array) -> pa.Array:
    """Cast binary to string. Bytes that are not UTF-8 become U+FFFD, as in Java; separators, being ASCII, stay."""
    try:
        return blocks.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([block.decode("utf-8", "replace") for block in blocks.to_pylist()], pa.string())


def _text_of(blocks: pa.Array) -> tuple[Bytes, pa.Buffer, Int32s]:
    """Return the text of string blocks as bytes and as a buffer, and where each block starts and the last one ends."""
    _, offsets, data = blocks.buffers()
    bounds = read_only(offsets, np.int32)[blocks.offset : blocks.offset + len(blocks) + 1]
    data = data or pa.py_buffer(b"")
    return read_only(data)[: bounds[-1]], data, bounds


def _last_of_name(rows: Ints, codes: Int32s) -> Flags:
    """Return which pairs no later pair of the same row overrides. `codes` has the number of each pair's name."""
    # Stable: the pairs of one name stay in the order of their rows, so two of the same row become neighbours.
    narrow = codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes  # sorted by radix
    order = np.argsort(narrow, kind="stable")
    codes, rows = codes[order], rows[order]
    keep = np.ones(len(order), np.bool_)
    keep[order[:-1][(codes[1:] == codes[:-1]) & (rows[1:] == rows[:-1])]] = False
    return keep
