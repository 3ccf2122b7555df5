"""The entry log in a leader's folder, while the leader may be appending to it, or removing and rewriting its files.

It answers two questions: where the log begins and ends (`bounds`), and what lies in a range (`chunks`, `raw`). The cost
of an answer grows with what it reads, not with the log. It keeps nothing between calls but the path.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa

from sources.bounds import ToldDoubt, check_within
from sources.decoding.undecodable import as_damage, up_to_damage
from sources.dister import columns
from sources.dister.layout import ENTRY_LOG, BatchFile, are_joined, list_batches
from sources.dister.line_walk import Broken, Sound
from sources.dister.log_walk import BatchBytes, LogWalk, end_of, minimum_of, start_at
from sources.errors import ConfigurationError, CorruptRecord, LogtwinError, MissingSegment, error_from
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange

log = logging.getLogger(__name__)

SETTLE_S = 0.2
"""How long a batch file may be missing: to rewrite it, a leader removes it first, and a listing is no snapshot."""

_DAMAGE_HINT = (
    "Compare the line with a copy of the leader's log. With on_loss = record it goes to quarantine, and the log goes "
    "on behind it."
)


class EntryLog:
    """The log in the folder `path`, below `ENTRY_LOG`. With `past_damage`, reading goes on behind damage.

    A doubt about its end is told once for each `told`.
    """

    def __init__(self, path: Path | str, told: ToldDoubt, *, past_damage: bool = False) -> None:
        self._path = Path(path)
        self._told = told
        self._past_damage = past_damage

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Return the range from the first file's first id to behind the last entry; ``[0, 0)`` if there is no file yet.

        What is wrong behind the last entry is not yet part of the log; a warning says what it is. `known` is an end
        found earlier. Raises ConfigurationError, MasterSilent.
        """
        found = self._bounds(known)
        if found.is_empty:  # an overruled leader removes its file and writes it again
            time.sleep(SETTLE_S)
            found = self._bounds(known)
        return found

    def _bounds(self, known: Offset | None) -> OffsetRange:
        batches = self._list()
        walk = LogWalk(batches, end_of(batches, known))
        for _ in walk.pieces():  # includes what was appended since
            pass
        doubt = walk.open_damage
        if doubt is not None and not self._told.is_told(walk.end, doubt.error):
            self._told.tell(self._path, walk.end, doubt.error, named=_named(doubt))
        return OffsetRange(minimum_of(batches), walk.end)

    def chunks(self, owned: OffsetRange, boundary: bool, chunk_bytes: int) -> Generator[Chunk | Damage]:
        """Yield the entries whose ranges begin in `owned`, about `chunk_bytes` at a time, and the damage in it.

        With `boundary` an entry, or damage, must end at ``owned.start``. A chunk has at least one entry.
        Raises BelowMinimum, AboveMaximum, CorruptRecord, MissingSegment, MasterSilent.
        """
        walk = self._walk_to(owned)
        with closing(walk.reaching_into(owned)) as pieces:
            for part in _grouped(_beginning_in(owned, pieces, boundary=boundary), chunk_bytes):
                for piece in [part] if isinstance(part, Broken) else _decoded(part):
                    yield self._damage(piece, owned) if isinstance(piece, Broken) else piece
        check_within(owned, OffsetRange(owned.start, max(owned.start, walk.end)))
        if walk.expired:
            log.warning("%s: %d entries below %s are expired, and passed", self._path, walk.expired, walk.end)

    def raw(self, wanted: OffsetRange, piece_bytes: int) -> Generator[memoryview]:
        """Yield the lines of the entries whose ids are in `wanted`, about `piece_bytes` at a time.

        Raises BelowMinimum, AboveMaximum, MissingSegment (also with `past_damage`), MasterSilent.
        """
        gathered = bytearray()
        with closing(self._walk_to(wanted).reaching_into(wanted)) as pieces:
            for piece in pieces:
                if isinstance(piece, Sound) and piece.entry.id < wanted.end:
                    gathered += piece.line.text + b"\n"
                elif isinstance(piece, Broken) and isinstance(piece.error, MissingSegment):
                    raise piece.error
                if len(gathered) >= piece_bytes:
                    yield memoryview(gathered)
                    gathered = bytearray()
        if gathered:
            yield memoryview(gathered)

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        """Return the end of the first entry or damage that ends at or after `offset`; at most `maximum`.

        Raises BelowMinimum, AboveMaximum, ConfigurationError, MasterSilent.
        """
        if offset >= maximum:
            return maximum
        walk = self._walk_to(OffsetRange(offset, maximum))
        if walk.end == offset:
            return offset
        return next(
            (min(piece.covered.end, maximum) for piece in walk.pieces() if piece.covered.end >= offset), maximum
        )

    def end_of_batch(self, start: Offset, maximum: Offset, *, entries: int, size_bytes: int) -> Offset:
        """Return the end, up to `maximum`, of a batch from `start` on: `entries`, or about `size_bytes` of lines.

        Raises as `boundary_after` does.
        """
        if start >= maximum:
            return maximum
        wanted, read_bytes, end = OffsetRange(start, maximum), 0, maximum
        with closing(self._walk_to(wanted).reaching_into(wanted)) as pieces:
            for count, piece in enumerate(pieces, start=1):
                read_bytes += piece.length
                if count >= entries or read_bytes >= size_bytes:
                    end = min(piece.covered.end, maximum)
                    break
        return end

    def _list(self) -> tuple[BatchFile, ...]:
        """Return the batch files now. Raises ConfigurationError if the leader's folder itself is missing."""
        if not self._path.is_dir():
            raise ConfigurationError(
                "the leader's folder cannot be read",
                expected=f"a folder at {self._path}",
                found="none",
                hint=f"Check `path`: it must name the folder that holds {ENTRY_LOG}.",
            )
        batches = list_batches(self._path / ENTRY_LOG)
        if not are_joined(batches):
            time.sleep(SETTLE_S)
            batches = list_batches(self._path / ENTRY_LOG)
        return batches

    def _walk_to(self, wanted: OffsetRange) -> LogWalk:
        """Return a walk that begins at or before `wanted`. Raises BelowMinimum, AboveMaximum, and as `_list`."""
        batches = self._list()
        check_within(wanted, OffsetRange(minimum_of(batches), end_of(batches, wanted.end).end))
        return LogWalk(batches, start_at(batches, wanted.start))

    def _damage(self, found: Broken, owned: OffsetRange) -> Damage:
        """Return the part of `found` in `owned`; its beginning has the bytes. Raises its error unless `past_damage`."""
        error = _named(found)
        if not self._past_damage:
            raise error
        if found.covered.is_empty:
            raise _without_room(error, found.covered.start)
        start, end = max(found.covered.start, owned.start), min(found.covered.end, owned.end)
        raw = None if found.raw is None or start > found.covered.start else memoryview(found.raw)
        return Damage(OffsetRange(start, end), raw, error)


def _beginning_in(owned: OffsetRange, pieces: Iterable[Sound | Broken], *, boundary: bool) -> Iterator[Sound | Broken]:
    """Skip an entry that begins before `owned`; with `boundary` there must be none."""
    for piece in pieces:
        if isinstance(piece, Broken) or piece.start >= owned.start:
            yield piece
        elif boundary:
            raise CorruptRecord(
                "the leader has no entry that ends where reading is to begin",
                offset=owned.start,
                expected=f"an entry with id {owned.start - 1}",
                found=f"{piece.entry.id} as the first id from there on",
                hint="The leader lost a write that was replicated, wrote its log anew, or is another one.",
            )


def _grouped(pieces: Iterable[Sound | Broken], size_bytes: int) -> Iterator[list[Sound] | Broken]:
    """Group consecutive entries, about `size_bytes` of lines together and at least one; damage stays by itself."""
    group: list[Sound] = []
    group_bytes = 0
    for piece in pieces:
        if isinstance(piece, Sound):
            group.append(piece)
            group_bytes += piece.length
        if group and (isinstance(piece, Broken) or group_bytes >= size_bytes):
            yield group
            group, group_bytes = [], 0
        if isinstance(piece, Broken):
            yield piece
    if group:
        yield group


def _decoded(group: Sequence[Sound]) -> Iterator[Chunk | Broken]:
    """Yield the entries as columns; one that does not fit into them is damage."""
    while group:
        records, count, damage = up_to_damage(len(group), partial(_columns, group), group[0].start)
        if count:
            covered = OffsetRange(group[0].start, group[count - 1].covered.end)
            lines = b"".join(part for piece in group[:count] for part in (piece.line.text, b"\n"))
            yield Chunk(covered, records, memoryview(lines))
        group = group[count:]
        if damage is not None:
            guilty = group[0]
            yield Broken(guilty.covered, guilty.line.text + b"\n", damage, guilty.line)
            group = group[1:]


def _columns(group: Sequence[Sound], count: int) -> pa.RecordBatch:
    with as_damage(None):
        return columns.encode(group[:count])


def _named(found: Broken) -> LogtwinError:
    """Return the error with the file, the line and the byte."""
    line, error = found.line, found.error
    if line is None:
        return error
    with BatchBytes(line.batch) as file:
        where = f"{line.batch.path}, line {file.line_number(line.at)}, byte {line.at}"
    problem, hint = f"{where}: {error.problem}", error.hint or _DAMAGE_HINT
    return error_from({**error.facts(), "problem": problem, "offset": found.covered.start, "hint": hint})


def _without_room(error: LogtwinError, at: Offset) -> CorruptRecord:
    return CorruptRecord(
        f"damage between two ids that follow one another cannot be passed: {error.problem}",
        offset=at,
        expected="an id between them that is free",
        found="none",
        hint="Take the damaged line out of a copy of the leader's log, and read that.",
    )
