"""Logs of any lines, read in any way, against a naive reader: the definition written plainly, all of a log at once."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister.log import DisterLog
from sources.errors import CorruptRecord
from sources.offsets import Offset
from tests.sources.dister.entry_logs import log_of, owned, pieces, raw, write

BATCH = 10**9
Piece = tuple[str, int, int, bytes]


@dataclass
class Naive:
    """`pieces` are entries and damage with their ranges and bytes; `broken` are the lines left at the end."""

    pieces: list[Piece] = field(default_factory=list)
    end: int = 0
    broken: list[bytes] = field(default_factory=list)
    lines: dict[int, bytes] = field(default_factory=dict)
    expired: int = 0


def naive(files: Mapping[int, bytes]) -> Naive:
    log = Naive(end=min(files) * BATCH if files else 0)
    for number in sorted(files):
        lines = files[number].split(b"\n")
        rest = lines.pop()
        for line in lines:
            _line(log, number, line + b"\n")
        if rest and number != max(files):
            _line(log, number, rest)
    return log


def _line(log: Naive, number: int, line: bytes) -> None:
    if len(line.rstrip(b"\n")) < 10:
        return
    entry_id = _id(number, line)
    if entry_id is None:
        log.broken.append(line)
    elif entry_id < max(log.end, 1):
        if log.lines.get(entry_id, line) != line:
            log.broken.append(line)
        else:
            log.expired += 1
    else:
        _damage(log, entry_id)
        log.pieces.append(("entry", log.end, entry_id + 1, line))
        log.lines[entry_id] = line
        log.end = entry_id + 1


def _damage(log: Naive, following: int) -> None:
    if not log.broken:
        return
    numbers = [int(match[0]) for line in log.broken if (match := re.match(rb"[0-9]+", line))]
    between = [number for number in numbers if log.end <= number < following]
    end = max(between) + 1 if between else following
    log.pieces.append(("damage", log.end, end, b"".join(log.broken)))
    log.end, log.broken = end, []


def _id(number: int, line: bytes) -> int | None:
    """None for what is no entry of this file."""
    match = re.fullmatch(rb"([0-9]+),([0-9]+),([^\n]*)\n", line)
    if match is None or int(match[1]) // BATCH != number:
        return None
    try:
        items = json.loads(match[3])
    except ValueError:
        return None
    if match[2] == b"300":
        is_right = isinstance(items, dict) and all(isinstance(value, str) for value in items.values())
    elif match[2] == b"310":
        is_right = isinstance(items, list) and all(isinstance(key, str) for key in items)
    else:
        is_right = True
    return int(match[1]) if is_right else None


NUMBERS = st.integers(1, 60)
GOOD = NUMBERS.map(lambda at: b'%d,300,{"k":"v%d"}\n' % (at * 7, at))
BAD = st.one_of(
    NUMBERS.map(lambda at: b'%d,300,{"k":"oth\n' % (at * 7)),
    NUMBERS.map(lambda at: b'%d,300,{"k":%d}\n' % (at * 7, at)),
    NUMBERS.map(lambda at: b'%d,310,{"k":"v"}\n' % (at * 7)),
    NUMBERS.map(lambda at: b'%d,300,{"other":"content"}\n' % (at * 7)),
    NUMBERS.map(lambda at: b'%d00%d,300,{"k":"v"}\n' % (at, at)),
    st.just(b"no entry at all, but long enough\n"),
    st.just(b"%d,300,{}        \n" % BATCH),
)
ODD = st.one_of(
    st.just(b"\n"),
    st.just(b"short\n"),
    NUMBERS.map(lambda at: b'%d,310,["k"]\n' % (at * 7)),
    NUMBERS.map(lambda at: b'00%d,0300,{"k": "v"}\n' % (at * 7)),
    NUMBERS.map(lambda at: b'%d,999,[1, {"any": null}]\n' % (at * 7)),
)
ANY = st.one_of(GOOD, GOOD, GOOD, BAD, ODD)
ASCENDING = st.sets(NUMBERS, max_size=30).map(
    lambda some: [b'%d,300,{"k":"v%d"}\n' % (at * 7, at) for at in sorted(some)]
)
LINES = st.one_of(
    st.lists(ANY, max_size=30),
    st.tuples(ASCENDING, st.lists(ANY, max_size=5), ASCENDING).map(lambda parts: [*parts[0], *parts[1], *parts[2]]),
)
TORN = st.one_of(st.just(b""), st.just(b""), st.just(b'4200,300,{"k":"v"}'), st.just(b"42"))


def moved(line: bytes, number: int) -> bytes:
    """The same line with an id of another batch, if it has one."""
    digits = len(line) - len(line.lstrip(b"0123456789"))
    return b"%d%s" % (int(line[:digits]) + number * BATCH, line[digits:]) if digits and number else line


@st.composite
def logs(draw: st.DrawFn) -> dict[int, bytes]:
    first = draw(st.sampled_from([0, 0, 0, 1, 99]))
    files = draw(st.lists(st.tuples(LINES, TORN), min_size=0, max_size=3))
    return {
        first + at: b"".join(moved(line, first + at) for line in lines) + torn for at, (lines, torn) in enumerate(files)
    }


@contextmanager
def written(files: dict[int, bytes], **options: object) -> Iterator[tuple[DisterLog, Naive]]:
    with tempfile.TemporaryDirectory() as folder:
        yield log_of(write(Path(folder), files), past_damage=True, **options), naive(files)


def has_room(truth: Naive) -> bool:
    return all(start < end for _, start, end, _ in truth.pieces)


@given(logs(), st.sampled_from([1, 50, 10_000]), st.data())
def test_cut_anywhere_it_joins_to_all_of_the_log(
    files: dict[int, bytes], chunk_bytes: int, data: st.DataObject
) -> None:
    with written(files, chunk_bytes=chunk_bytes) as (log, truth):
        bounds = log.bounds()

        assert bounds == owned(min(files, default=0) * BATCH, truth.end)
        strict = log_of(Path(log.path))
        assert strict.bounds() == bounds
        if any(kind == "damage" for kind, _, _, _ in truth.pieces):
            with pytest.raises(CorruptRecord):
                pieces(strict, bounds.start, bounds.end)
        if has_room(truth):
            ends = st.sampled_from([end for _, _, end, _ in truth.pieces] or [bounds.end])
            cuts = sorted({bounds.start, bounds.end, *data.draw(st.lists(ends))})
            assert [piece for start, end in pairwise(cuts) for piece in pieces(log, start, end)] == truth.pieces
        else:
            with pytest.raises(CorruptRecord, match="follow one another"):
                pieces(log, bounds.start, bounds.end)


@given(logs(), st.data())
def test_cut_inside_of_ranges_each_is_read_where_it_begins_and_raw_has_the_lines_of_its_ids(
    files: dict[int, bytes], data: st.DataObject
) -> None:
    with written(files) as (log, truth):
        bounds = log.bounds()
        cuts = sorted({bounds.start, bounds.end, *data.draw(st.lists(st.integers(bounds.start, bounds.end)))})
        for start, end in pairwise(cuts):
            lines = [line for kind, _, after, line in truth.pieces if kind == "entry" and start <= after - 1 < end]
            assert raw(log, start, end) == b"".join(lines)
        if not has_room(truth) or bounds.is_empty:
            return
        found = [piece for start, end in pairwise(cuts) for piece in pieces(log, start, end, boundary=False)]
        assert [one for one in found if one[0] == "entry"] == [one for one in truth.pieces if one[0] == "entry"]
        assert sum(end - start for _, start, end, _ in found) == bounds.size
        assert all(before[2] == after[1] for before, after in pairwise(found))


@given(logs(), st.data())
def test_boundaries_and_ends_of_batches(files: dict[int, bytes], data: st.DataObject) -> None:
    with written(files, max_entries_per_trigger=3) as (log, truth):
        bounds = log.bounds()
        offset = Offset(data.draw(st.integers(bounds.start, bounds.end)))
        ends = [bounds.start, *(Offset(end) for _, _, end, _ in truth.pieces)]
        assert log.boundary_after(offset, bounds.end) == min(end for end in ends if end >= offset)
        start = data.draw(st.sampled_from(ends))
        following = [end for _, begin, end, _ in truth.pieces if begin >= start]
        assert log.end_of_batch(start, bounds.end, 10**6) == ([start, *following][:4])[-1]
