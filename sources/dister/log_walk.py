"""Batch files as they are read: one open file, the search for an id in it, and a walk through all files of a log.

Files are read, never mapped: if somebody shortens a mapped file, the process ends. If a leader removes a file and
writes it again, whoever has it open keeps the old one.

The search does not read all of a file. Ids in a file ascend, but need not: a leader that lost its data file begins
again with low ids, behind the existing ones; these lines are expired. In a file that has some, bisection may lead to a
line behind the one that counts. So a result is trusted only

* if it is the very id that was asked for. Random parts make it improbable that a regressing run has the same one;
* and if no line has that id or a higher one among the `LOOK_BACK_BYTES` before it, and at `_PROBES` offsets from the
  beginning of the file to there.

A run of expired lines is overlooked only if it repeats ids of the log, is longer than `LOOK_BACK_BYTES`, and hides less
than one part in `_PROBES` of the file. If a result is not trusted, the answer is None: walk the file from its first
line, which is always right. A file no longer than `LOOK_BACK_BYTES` is read line by line anyway.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Self

from sources.dister.layout import BatchFile, batch_number, missing_between
from sources.dister.line_walk import Broken, Line, LineWalk, Sound, entry_of, split_lines
from sources.errors import CorruptRecord, MasterSilent
from sources.offsets import Offset, OffsetRange

_FIRST_BLOCK_BYTES: Final = 4 * 1024
_BLOCK_BYTES: Final = 256 * 1024
LOOK_BACK_BYTES: Final = 64 * 1024
_PROBES: Final = 16
_WIDER: Final = 16
_NO_HEAD: Final = (-1, None)
_CHANGED = "The leader may be writing its log anew: it is read again."


class BatchBytes:
    """An open batch file; a context manager that closes it. Raises MasterSilent if it cannot be read."""

    def __init__(self, batch: BatchFile) -> None:
        self.batch = batch
        self._file = _opened(batch)
        self.size = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def lines(self, at: int, stop: int | None = None) -> Iterator[Line]:
        """Yield the lines that begin in ``[at, stop)``, at most to the end of the file.

        Blocks grow, so looking at one line reads little.
        """
        stop = self.size if stop is None else stop
        lines = split_lines(self.batch, max(at - 1, 0), self._blocks(max(at - 1, 0)))
        for line in lines:
            if line.at >= stop:
                return
            if line.at >= at:
                yield line

    def line_number(self, at: int) -> int:
        """Return the number, from 1 on, of the line that begins with byte `at`. Reads everything before it."""
        return 1 + sum(1 for line in self.lines(0, at))

    def _blocks(self, at: int) -> Iterator[bytes]:
        length = _FIRST_BLOCK_BYTES
        while at < self.size:
            try:
                block = os.pread(self._file.fileno(), min(length, self.size - at), at)
            except OSError as error:
                raise _unreadable(self.batch, error) from error
            if not block:
                raise MasterSilent(
                    f"batch file {self.batch.path} lost bytes while it was read",
                    expected=f"{self.size} bytes",
                    found=f"{at} bytes",
                    hint=_CHANGED,
                )
            yield block
            at, length = at + len(block), min(2 * length, _BLOCK_BYTES)


def _opened(batch: BatchFile) -> BinaryIO:
    try:
        return batch.path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise MasterSilent(
            f"batch file {batch.path} has gone while the log was read",
            expected="a file that was there a moment ago",
            found="none",
            hint=_CHANGED,
        ) from error
    except OSError as error:
        raise _unreadable(batch, error) from error


def _unreadable(batch: BatchFile, error: OSError) -> MasterSilent:
    return MasterSilent(
        f"batch file {batch.path} cannot be read",
        expected="a file that this user may read",
        found=error.strerror,
        hint="It is tried again. Check the rights of the file, and the disk.",
    )


class IdSearch:
    """Searches one open file."""

    def __init__(self, file: BatchBytes) -> None:
        self._file = file

    def find(self, entry_id: int) -> Line | None:
        """Return the line of the entry with that id; None if it is not there, or not trusted."""
        return self._find(entry_id, self._file.size)

    def line_of(self, entry_id: int, before: int) -> bytes | None:
        """Implement `line_walk.Earlier`."""
        found = self._find(entry_id, before)
        return None if found is None else found.text

    def last_entry(self, known: Offset | None = None) -> Sound | None:
        """Return the entry with the highest id in the file; None if it has none.

        The start of its range is not determined. An entry that ends before `known` is trusted only after reading all of
        the file.
        """
        start = self._near(self._file.size)
        found = self._entries_from(start)
        if start and (found is None or not self._is_last(*found, known)):
            found = self._entries_from(0)
        return found and found[1]

    def _is_last(self, first: Sound, last: Sound, known: Offset | None) -> bool:
        return last.covered.end >= (known or 0) and self._is_below(first.entry.id, first.line.at)

    def _find(self, entry_id: int, before: int) -> Line | None:
        low, high = 0, before
        while high - low > LOOK_BACK_BYTES:
            middle = (low + high) // 2
            head_id, line = next(self._heads(middle, high), _NO_HEAD)
            if line is None or head_id >= entry_id:
                high = middle
            else:
                low = line.end
        for head_id, line in self._heads(low, before):
            if head_id >= entry_id and _is_entry(line):
                return line if head_id == entry_id and self._is_first(entry_id, low) else None
        return None

    def _is_first(self, entry_id: int, low: int) -> bool:
        """Whether, as far as it looks, all ids before byte `low` are below `entry_id`."""
        start = self._near(low)
        return all(head_id < entry_id for head_id, _ in self._heads(start, low)) and self._is_below(entry_id, start)

    def _near(self, stop: int) -> int:
        """Return the start of a line from which on the lines cover the `LOOK_BACK_BYTES` before `stop`."""
        back = 2 * LOOK_BACK_BYTES
        while back < stop:
            _, line = next(self._heads(stop - back, stop), _NO_HEAD)
            if line is not None and line.at <= stop - LOOK_BACK_BYTES:
                return line.at
            back *= _WIDER
        return 0

    def _is_below(self, entry_id: int, stop: int) -> bool:
        """Whether the ids at some evenly spread bytes before `stop` are below `entry_id`."""
        probes = {stop * number // _PROBES for number in range(_PROBES)}
        return all(next(self._heads(at, stop), _NO_HEAD)[0] < entry_id for at in probes)

    def _heads(self, at: int, stop: int) -> Iterator[tuple[int, Line]]:
        """Yield the lines that begin in ``[at, stop)`` and seem to be entries, with their ids."""
        return ((line.head_id, line) for line in self._file.lines(at, stop) if line.head_id is not None)

    def _entries_from(self, start: int) -> tuple[Sound, Sound] | None:
        """Return the first and the last entry of what begins at byte `start`, treated as a log of its own."""
        walk, found = LineWalk(Offset(0)), None
        for line in self._file.lines(start):
            if line.is_whole:
                for piece in walk.feed(line, lambda _id, _before: None):
                    if isinstance(piece, Sound):
                        found = (found[0] if found else piece, piece)
        return found


def _is_entry(line: Line) -> bool:
    try:
        entry_of(line)
    except CorruptRecord:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Start:
    """Where a walk begins: at byte `at` of the file with this `index`, where the log has come to offset `end`."""

    index: int
    at: int
    end: Offset


def minimum_of(batches: Sequence[BatchFile]) -> Offset:
    return Offset(batches[0].first_id if batches else 0)


def start_at(batches: Sequence[BatchFile], offset: Offset) -> Start:
    """Return the start behind the entry that ends at `offset` or, if there is none, behind one that ends before it."""
    minimum = minimum_of(batches)
    if offset <= minimum:
        return Start(0, 0, minimum)
    number = batch_number(offset - 1)
    index = next((index for index, batch in enumerate(batches) if batch.number >= number), len(batches))
    if index < len(batches) and batches[index].number == number:
        with BatchBytes(batches[index]) as file:
            line = IdSearch(file).find(offset - 1)
            if line is not None:
                return Start(index, line.end, offset)
    return _behind(batches, index, None)


def end_of(batches: Sequence[BatchFile], known: Offset | None = None) -> Start:
    """Return the start behind the last entry. An end below `known`, an earlier end, is searched for more carefully."""
    return _behind(batches, len(batches), known)


def _behind(batches: Sequence[BatchFile], stop: int, known: Offset | None) -> Start:
    for index in reversed(range(stop)):
        with BatchBytes(batches[index]) as file:
            last = IdSearch(file).last_entry(known)
        if last is not None:
            return Start(index, last.line.end, last.covered.end)
    return Start(0, 0, minimum_of(batches))


class LogWalk:
    """Walks `batches` from `start` on. Raises MasterSilent if a file disappears meanwhile."""

    def __init__(self, batches: Sequence[BatchFile], start: Start) -> None:
        self._batches = batches
        self._start = start
        self._walk = LineWalk(start.end)

    @property
    def end(self) -> Offset:
        return self._walk.end

    @property
    def expired(self) -> int:
        """How many entries it has ignored because the log was already above them."""
        return self._walk.expired

    @property
    def open_damage(self) -> Broken | None:
        """The damage at its offset, if no entry follows."""
        return self._walk.open_damage

    def pieces(self) -> Iterator[Sound | Broken]:
        """Yield each entry, and what is wrong between them, up to the last written line."""
        for index in range(self._start.index, len(self._batches)):
            is_first = index == self._start.index
            if not is_first and self._batches[index].number > self._batches[index - 1].number + 1:
                self._walk.missing(missing_between(self._batches[index - 1], self._batches[index]))
            yield from self._pieces_of(index, self._start.at if is_first else 0)

    def reaching_into(self, wanted: OffsetRange) -> Generator[Sound | Broken]:
        """Yield the pieces that overlap `wanted`, and damage of an empty range at its beginning."""
        for piece in self.pieces():
            covered = piece.covered
            if covered.start >= wanted.end:
                return
            if covered.end > wanted.start or covered.start >= wanted.start:
                yield piece
            if covered.end >= wanted.end:
                return

    def _pieces_of(self, index: int, at: int) -> Iterator[Sound | Broken]:
        is_last = index == len(self._batches) - 1
        with BatchBytes(self._batches[index]) as file:
            earlier = IdSearch(file).line_of
            for line in file.lines(at):
                if line.is_whole or not is_last:  # otherwise it is still being written
                    yield from self._walk.feed(line, earlier)
