"""The entry log of an embedded leader and its files: it can be written, and cut after a lost election.

Invariants, for any number of threads and processes that write into one folder:

* writes happen one after another; ids ascend, and their order is the order of the log;
* id = index x 10000 + a random part; the index is one more than that of every id before, even of unsuccessful writes;
* a refused write uses no id; a failed one uses its id, and leaves the log as it was;
* the last id comes from the log, not from ``dister.data.db``; a torn line left by a kill is dropped at the next turn.

It differs from dister, where dister loses data (defects 8 to 11): a write that fails says so. As in dister, nothing is
forced to the disk.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from sources.dister.entries import (
    ACT_REMOVE,
    ACT_SET,
    RANDOM,
    SHORTEST_BYTES,
    Entry,
    decode_line,
    encode_line,
    index_of,
)
from sources.dister.layout import ENTRY_LOG, BatchFile, batch_number, batch_path, list_batches
from sources.errors import MasterError, MasterRefused

_LOOK_BACK_BYTES: Final = 64 * 1024


class WriterTurns:
    """Lets writers, threads and processes, take turns. The lock file says who wrote last.

    A killed writer's turn ends.
    """

    def __init__(self, path: Path) -> None:
        self._name = uuid.uuid4().hex.encode()
        self._threads = threading.Lock()
        self._file = path.open("a+b", buffering=0)

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def turn(self, look: Callable[[], None]) -> Iterator[None]:
        """Wait for the turn and take it. First call `look` if another writer wrote since the last turn."""
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                if os.pread(self._file.fileno(), len(self._name), 0) != self._name:
                    look()
                    self._file.truncate(0)
                    self._file.write(self._name)
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)


class BatchWriter:
    """The batch files below one folder, open for appending. For the one whose turn it is."""

    def __init__(self, entry_log: Path) -> None:
        self._entry_log = entry_log
        self._open: tuple[int, int] | None = None  # batch number, descriptor

    def batches(self) -> tuple[BatchFile, ...]:
        return list_batches(self._entry_log)

    def append(self, number: int, data: bytes) -> None:
        """Append all of `data` to batch `number`, or nothing. Raises OSError."""
        descriptor = self._descriptor(number)
        size_bytes = os.fstat(descriptor).st_size
        try:
            _write(descriptor, data)
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                os.ftruncate(descriptor, size_bytes)
            raise

    def drop_torn_line(self, batch: BatchFile) -> None:
        """Cut off what follows the last newline: that line was never finished."""
        self.close()
        with batch.path.open("r+b") as file:
            whole_bytes = at = file.seek(0, os.SEEK_END)
            while at > 0:
                at, end = max(0, at - _LOOK_BACK_BYTES), at
                file.seek(at)
                newline = file.read(end - at).rfind(b"\n")
                whole_bytes = at + newline + 1
                if newline >= 0:
                    break
            file.truncate(whole_bytes)

    def cut(self, batch: BatchFile, lines: Iterable[bytes]) -> None:
        """Keep only `lines` of the log from `batch` on, in a new file; remove later files, the last one first.

        A kill in between leaves the log up to some later entry.
        """
        self.close()
        for later in reversed([one for one in self.batches() if one.number > batch.number]):
            later.path.unlink()
        # Made while the old file is still there, so that the new one cannot get the same inode.
        if not exchange(batch.path, lines):
            batch.path.unlink()

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _descriptor(self, number: int) -> int:
        if self._open is not None and self._open[0] == number:
            return self._open[1]
        self.close()
        path = self._entry_log / batch_path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._open = (number, descriptor)
        return descriptor


def exchange(path: Path, parts: Iterable[bytes]) -> bool:
    """Replace the file at `path` with `parts`, atomically, unless these are empty. Return whether they were not."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.writelines(parts)
        size_bytes = file.tell()
    if size_bytes:
        new.replace(path)
    else:
        new.unlink()
    return size_bytes > 0


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn an OSError into the leader's MasterError: it cannot write `what`."""
    try:
        yield
    except OSError as error:
        raise MasterError(
            f"the leader cannot write {what}",
            found=error.strerror or str(error),
            hint="It is as it was; free the disk, or check who may write there, and write again.",
        ) from error


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


Change = Mapping[str, str] | Sequence[str]
"""What to set, by key, or the keys to remove."""

_LOCK_FILE: Final = "dister.leader.lock"


class LeaderLog:
    """The log of the node that keeps its data in `folder`, which is made if it does not exist.

    For any thread; close it, or use it in `with`. The same `seed` gives the same random parts of ids.
    """

    def __init__(self, folder: Path, *, seed: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._is_leader = True
        self._chance = random.Random(seed)  # noqa: S311  (as dister's own: no secret)
        self._index = 0  # of the last id used here
        self._last_id = 0
        self._files = BatchWriter(folder / ENTRY_LOG)
        self._turns = WriterTurns(folder / _LOCK_FILE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Idempotent; what was written stays."""
        self._files.close()
        self._turns.close()

    @property
    def last_id(self) -> int:
        """The id of the last entry; 0 without one."""
        with self._turn():
            return self._last_id

    def set(self, items: Mapping[str, str], *, rnd: int | None = None) -> int:
        """Set keys. Return the entry's id, whose random part is `rnd` if given.

        Raises MasterRefused (not the leader, or something else than strings), MasterError (it could not be written).
        """
        return self.write(items, rnd=rnd)

    def remove(self, keys: Sequence[str], *, rnd: int | None = None) -> int:
        """Remove keys, including those that do not exist. Like `set`."""
        return self.write(keys, rnd=rnd)

    def write(self, change: Change, *, rnd: int | None = None) -> int:
        """Call `set` or `remove`, depending on the change."""
        act = act_of(change)
        with self._turn():
            entry_id = self._next_id(rnd)
            with told("its log"):
                self._files.append(batch_number(entry_id), encode_line(entry_id, act, change))
            self._last_id = entry_id
            return entry_id

    def fail(self, change: Change, *, rnd: int | None = None) -> Entry:
        """Do a write that no follower acknowledges in time: it uses its id and is stored nowhere here.

        Returns the entry, because a follower may still have it.
        """
        act = act_of(change)
        with self._turn():
            entry_id = self._next_id(rnd)
            return decode_line(encode_line(entry_id, act, change).rstrip(b"\n"))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries of its folder, like `entries_of`."""
        return entries_of(self.folder, after)

    def truncate_to(self, last_id: int) -> None:
        """Remove all entries above `last_id`, as a node does whose entries there are not the new leader's.

        The file of the last remaining entry is removed and written again, so it is another file afterwards.
        """
        with self._turn(), told("its log"):
            for batch in self._files.batches():
                if batch.number >= batch_number(last_id):
                    self._files.cut(batch, [e.line + b"\n" for e in _entries_in(batch) if e.id <= last_id])
                    break
            self._look()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._turns.turn(self._look):
            yield

    def _look(self) -> None:
        """Find the log's end, which another writer may have moved."""
        self._files.close()
        self._last_id = 0
        for batch in reversed(self._files.batches()):
            self._files.drop_torn_line(batch)
            self._last_id = max((entry.id for entry in _entries_in(batch)), default=0)
            if self._last_id:
                break

    def _next_id(self, rnd: int | None) -> int:
        if not self._is_leader:
            raise MasterRefused("the node is not the leader", found="a write", hint="win_election() makes it one.")
        self._index = max(self._index, index_of(self._last_id)) + 1
        return self._index * RANDOM + (self._chance.randrange(RANDOM) if rnd is None else rnd)


def entries_of(folder: Path, after: int = 0) -> Iterator[Entry]:
    """Yield the entries with an id above `after` in the log of the leader whose folder it is, in order.

    Raises CorruptRecord for a line that is not an entry.
    """
    for batch in list_batches(folder / ENTRY_LOG):
        if batch.number >= batch_number(after):
            for entry in ascending(_entries_in(batch), after):
                after = entry.id
                yield entry


def ascending(entries: Iterable[Entry], after: int) -> Iterator[Entry]:
    """Skip entries whose id is not above `after` and every id before: they are expired, also for dister."""
    for entry in entries:
        if entry.id > after:
            after = entry.id
            yield entry


def apply(entry: Entry, data: dict[str, str]) -> None:
    """Apply an entry to the keys of `data`; an unknown act does nothing."""
    if isinstance(entry.items, dict):
        data |= entry.items
    for key in entry.items if isinstance(entry.items, list) else ():
        data.pop(key, None)


def _entries_in(batch: BatchFile) -> Iterator[Entry]:
    with batch.path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and len(line) > SHORTEST_BYTES:
                yield decode_line(line[:-1])


def act_of(change: object) -> int:
    """Return the act of a change, before it uses an id. Raises MasterRefused."""
    match change:
        case Mapping() if all(isinstance(text, str) for pair in change.items() for text in pair):
            return ACT_SET
        case str():
            pass
        case Sequence() if all(isinstance(key, str) for key in change):
            return ACT_REMOVE
    raise MasterRefused(
        "a leader takes strings only", expected="strings by key, or a list of keys", found=f"{change!r:.200}"
    )
