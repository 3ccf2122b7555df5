"""A walk through the batch files of a log from any offset on, and the place of that offset in the files."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from sources.dister.files.batch_file import BatchBytes, IdSearch
from sources.dister.files.layout import BatchFile, batch_number, missing_between
from sources.dister.format.line_walk import Broken, LineWalk, Sound
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class Start:
    """Where a walk begins: at byte `at` of the file with this `index`, where the log has come to offset `end`."""

    index: int
    at: int
    end: Offset


def minimum_of(batches: Sequence[BatchFile]) -> Offset:
    return Offset(batches[0].first_id if batches else 0)


def start_at(batches: Sequence[BatchFile], offset: Offset) -> Start:
    """Return the place behind the entry that ends at `offset` or, if there is none, behind one that ends before it."""
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
    """Return the place behind the last entry. An end below `known`, an earlier end, takes a closer look."""
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
        """What is wrong where it stands, if no entry follows."""
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
