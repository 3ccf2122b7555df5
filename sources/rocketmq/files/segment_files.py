"""The segment files of a commit log: which there are, how long each is, and one of them mapped into memory.

A commit log is a directory of files of one size. A file is named after the physical offset of its first byte, in 20
decimal digits, so names and lengths must agree: each file starts where the one before it ends. The first may start
above 0 (retention deletes from the front), and the newest is allocated before it is needed.

A broker in controller mode (RocketMQ 5.x) keeps its epochs in the file ``epochFileCheckpoint`` of the store's root,
beside ``commitlog``: a count, a CRC, and a line ``epoch-start`` for each (MessageStoreConfig.getStorePathEpochFile,
EpochFileCache, CheckpointFile). No other replica need have what it has written above its confirm offset: after a
fail-over it cuts that off (AutoSwitchHAService), and other records are written there. By path nobody can ask how far it
has confirmed.
"""

from __future__ import annotations

import mmap
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, Self

from sources.epochs import Epochs
from sources.errors import ConfigurationError, MissingSegment, SegmentError
from sources.offsets import Offset, OffsetRange

EPOCH_FILE: Final = "epochFileCheckpoint"


def controller_warning(commitlog: Path) -> str | None:
    """Return a warning about the log in the directory `commitlog`; None if no controller chooses its master."""
    found = commitlog.parent / EPOCH_FILE
    if not found.exists():
        return None
    return (
        f"{commitlog} is the log of a broker in controller mode ({found.name} lies beside it): what lies above its "
        "confirm offset is replicated too, and a fail-over may cut it off. The log would then end with Rewritten or "
        "AboveMaximum, and logtwin repair takes it back to what both share"
    )


def encode_epoch_file(epochs: Epochs) -> bytes:
    """Return the epoch file of a broker with these: number of lines, their CRC-32 without its top bit, the lines."""
    lines = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode("ascii")
    return b"%d\n%d\n%b" % (len(epochs), zlib.crc32(lines) & 0x7FFFFFFF, lines)


_NAME = re.compile(r"[0-9]{20}")
_SCATTERED = (
    "Give the directory that holds the whole commit log (storePathCommitLog); a log spread over several directories "
    "cannot be read by path"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file: `size` bytes of the log from offset `start` on."""

    path: Path
    start: Offset
    size: int

    @property
    def end(self) -> Offset:
        """The offset after its last byte, where the next file starts."""
        return Offset(self.start + self.size)

    def opened(self) -> BinaryIO:
        """Open the file. Raises FileNotFoundError; ConfigurationError if we may not read it."""
        try:
            return self.path.open("rb")
        except PermissionError as error:
            raise ConfigurationError(
                "a segment file cannot be read",
                offset=self.start,
                expected=f"permission to read {self.path}",
                found=error.strerror,
                hint="Run logtwin as the user that the broker runs as, or let ours read: setfacl -R -m u:USER:rX on "
                "the directory, with -d, too, for files to come.",
            ) from error

    def read(self, at: Offset, length: int) -> bytes:
        """Read up to `length` bytes from offset `at` on. Raises as `opened`."""
        with self.opened() as file:
            file.seek(at - self.start)
            return file.read(length)

    def has_data(self) -> bool:
        """Whether it starts with a record; a file allocated ahead of its use is all zeros. Raises as `opened`."""
        return any(self.read(self.start, 8))


@dataclass(frozen=True, slots=True)
class Hole:
    """One or more files missing between two others."""

    before: Segment
    after: Segment

    @property
    def start(self) -> Offset:
        return self.before.end

    @property
    def end(self) -> Offset:
        return self.after.start

    def error(self) -> MissingSegment:
        """Return an error that names both neighbours."""
        return MissingSegment(
            f"segment file {_following(self.before)} is missing",
            offset=self.start,
            expected=f"a file that starts where {self.before.path.name} ends",
            found=f"{self.after.path.name} next",
            hint=f"{_SCATTERED}.",
        )


def list_segments(path: Path) -> tuple[Segment, ...]:
    """Return the segment files in the directory `path`, in log order; never empty. Some may be missing between others.

    Raises ConfigurationError (no such directory, no segment file in it), and SegmentError, naming the file that
    overlaps another or has another length than its neighbours.
    """
    try:
        return _joined(_scan(path), holes=False)
    except SegmentError:
        # A scan is no snapshot: of two files created during it, it may show only the second. A second scan, begun
        # after the first has ended, sees both.
        return _joined(_scan(path), holes=True)


def check_joined(segments: Sequence[Segment]) -> None:
    """Raise MissingSegment for the first file that is missing between two of `segments`."""
    for before, after in pairwise(segments):
        _check_neighbours(before, after, holes=False)


def parts_of(segments: Sequence[Segment], wanted: OffsetRange) -> Iterator[Segment | Hole]:
    """Yield the files that share bytes with `wanted`, and the holes between them that do, in log order."""
    for number, segment in enumerate(segments):
        if number and segments[number - 1].end < segment.start:
            hole = Hole(segments[number - 1], segment)
            if hole.end > wanted.start and hole.start < wanted.end:
                yield hole
        if segment.end > wanted.start and segment.start < wanted.end:
            yield segment


def _scan(path: Path) -> list[Segment]:
    try:
        with os.scandir(path) as entries:
            found = [segment for entry in entries if (segment := _segment(entry)) is not None]
    except OSError as error:
        raise ConfigurationError(
            "the directory of segment files cannot be read",
            expected=f"a commit log directory at {path}",
            found=error.strerror,
            hint="Check `path`: it must name the broker's storePathCommitLog.",
        ) from error
    found.sort(key=lambda segment: segment.start)
    if found and not found[-1].size:
        del found[-1]  # a broker deletes an empty last file when it starts
    if not found:
        raise ConfigurationError(
            "the directory holds no segment file",
            expected=f"files named by 20 digits in {path}",
            found="none",
            hint="Check `path`: it must name the broker's storePathCommitLog; a broker makes its first file with its "
            "first message.",
        )
    return found


def _segment(entry: os.DirEntry[str]) -> Segment | None:
    """Return None for anything but a segment file, and for one that was deleted during the scan."""
    if not _NAME.fullmatch(entry.name) or entry.is_dir():
        return None
    try:
        return Segment(Path(entry.path), Offset(int(entry.name)), entry.stat().st_size)
    except FileNotFoundError:
        return None


def _joined(segments: list[Segment], *, holes: bool) -> tuple[Segment, ...]:
    """Return `segments` if each starts where the one before it ends (with `holes`: or later) and all have one size."""
    size = _file_size(segments)
    for segment in segments:
        if segment.size != size:
            raise SegmentError(
                f"segment file {segment.path} is {'shorter' if segment.size < size else 'longer'} than its neighbours",
                offset=segment.start,
                expected=f"{size} bytes",
                found=f"{segment.size} bytes",
                hint="Restore the file from a replica of this broker, or wait until a copy in progress is complete.",
            )
    for before, after in pairwise(segments):
        _check_neighbours(before, after, holes=holes)
    return tuple(segments)


def _check_neighbours(before: Segment, after: Segment, *, holes: bool) -> None:
    if after.start > before.end and not holes:
        raise Hole(before, after).error()
    if after.start < before.end:
        raise SegmentError(
            f"segment file {_following(before)} is missing",
            offset=before.end,
            expected=f"a file that starts where {before.path.name} ends",
            found=f"{after.path.name}, which starts before that",
            hint=f"{_SCATTERED}.",
        )


def _following(before: Segment) -> Path:
    return before.path.parent / f"{before.end:020d}"


def _file_size(segments: list[Segment]) -> int:
    """Return the size of a file: the common length or, if lengths differ, the smallest distance between names."""
    lengths = {segment.size for segment in segments}
    if len(lengths) == 1:
        return lengths.pop()
    return min(after.start - before.start for before, after in pairwise(segments))


class SegmentMap:
    """A segment file mapped read-only, without a copy. Made by `mapped`; a context manager that closes it."""

    def __init__(self, segment: Segment, pages: mmap.mmap) -> None:
        self.segment = segment
        self._pages = pages
        self._forgotten = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(BufferError):  # a view is still held: the map goes away with the last one
            self._pages.close()

    @contextmanager
    def view(self, start: Offset, end: Offset) -> Iterator[memoryview]:
        """Give the bytes of ``[start, end)`` for as long as the `with` lasts; the view is released after it."""
        base = self.segment.start
        with memoryview(self._pages) as whole:
            part = whole[start - base : end - base]
        try:
            yield part
        finally:
            with suppress(BufferError):  # something, perhaps a traceback, still holds it
                part.release()

    def rest(self, start: Offset) -> AbstractContextManager[memoryview]:
        """Give the bytes from `start` to the end of the file, like `view`."""
        return self.view(start, self.segment.end)

    def forget(self, end: Offset) -> None:
        """Release the pages below `end` from this process's memory, so that it stays bounded in a long file.

        They stay readable: touching one brings it back from the page cache.
        """
        stop = (end - self.segment.start) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > self._forgotten and hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED, self._forgotten, stop - self._forgotten)
            self._forgotten = stop


def mapped(segment: Segment) -> SegmentMap:
    """Map the segment's file into memory. Raises SegmentError, and as `Segment.opened`."""
    with segment.opened() as file:
        length = os.fstat(file.fileno()).st_size
        if length != segment.size:
            raise SegmentError(
                f"segment file {segment.path} has changed its length",
                offset=segment.start,
                expected=f"{segment.size} bytes",
                found=f"{length} bytes",
                hint="A broker never does that: see what else writes to this directory.",
            )
        return SegmentMap(segment, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
