"""A master's segment files that a test appends to, cuts, rewrites and loses, and a copy of everything it ever held.

Records are written by the embedded master's own store, so queue offsets and times are those of a real log; faults are
done to the files behind its back, as disks and operators do them.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sources.offsets import Offset
from sources.rocketmq.embedded.store import CommitLogStore, Put
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.commitlog import Message, decode, encode
from sources.rocketmq.format.layout import BLANK, HEAD, Host, read_head

HOST = Host(bytes([127, 0, 0, 1]), 10911)
FILE_SIZE_BYTES = 32 * 1024
BORN_MS = 1_790_000_000_000
TOPICS = ("orders", "payments", "telemetry")


@dataclass(frozen=True)
class FaultyLog:
    """The log below `root`; `archive` has every file of its present history, also those that retention took."""

    root: Path

    @property
    def path(self) -> Path:
        return self.root / "commitlog"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    def append(self, moments: random.Random, messages: int, body: Callable[[int], bytes] | None = None) -> None:
        """So many messages of random sizes, all different; or with these bodies, by their numbers from 0."""
        puts = [_put(moments, moments.randrange(20, 900)) for _ in range(messages)]
        self._append(puts if body is None else [replace(put, body=body(at)) for at, put in enumerate(puts)])

    def rewrite_from(self, boundary: int, moments: random.Random) -> None:
        """The same records in the same places from `boundary` on, with other bodies: what a log restored from elsewhere
        may look like."""
        data, start = self.data(), self.start
        at = boundary
        while at < start + len(data):
            size, magic = read_head(data, at - start)
            if magic != BLANK:
                self._rewrite_body(at, moments)
            at += size
        self._keep()

    def cut_at(self, offset: int) -> None:
        """Everything from `offset` on is zeros, and files behind it are gone."""
        for file in self._files():
            first = int(file.name)
            if first > offset or (first == offset and first > self.start):
                file.unlink()
            elif first + FILE_SIZE_BYTES > offset:
                with file.open("r+b") as opened:
                    opened.truncate(offset - first)
                    opened.truncate(FILE_SIZE_BYTES)
        self._keep()

    def lose_a_record(self) -> int:
        """The last one; where it began."""
        at = self.boundaries[-2]
        self.cut_at(at)
        return at

    def lose_a_file(self) -> int:
        """The last one that has data; where it began."""
        at = (self.end - 1) // FILE_SIZE_BYTES * FILE_SIZE_BYTES
        self.cut_at(at)
        return at

    def rewrite_from_the_middle(self) -> int:
        """As `rewrite_from`; from where."""
        boundaries = self.boundaries
        at = boundaries[len(boundaries) // 2]
        self.rewrite_from(at, random.Random(2))
        return at

    def forget_front(self, files: int) -> None:
        """Retention: the oldest files go; the archive keeps them."""
        for file in self._files()[:files]:
            file.unlink()

    def lose(self, number: int) -> Path:
        """One file goes, by its place among those that are there. Where it was."""
        file = self._files()[number]
        file.unlink()
        return file

    def empty(self) -> None:
        shutil.rmtree(self.path)
        shutil.rmtree(self.archive)
        self.path.mkdir()

    def flip(self, offset: int, mask: int = 0xFF) -> None:
        """One byte is another one; the archive is spared."""
        first = offset // FILE_SIZE_BYTES * FILE_SIZE_BYTES
        found = (self.path / f"{first:020d}").read_bytes()[offset - first]
        self._overwrite(offset, bytes([found ^ mask]))

    @property
    def start(self) -> Offset:
        return Offset(int(self._files()[0].name))

    @property
    def files(self) -> int:
        return len(self._files())

    @property
    def boundaries(self) -> list[int]:
        """Where each record starts, and the end."""
        data, at = self.data(), 0
        found = [0]
        while at < len(data):
            at += read_head(data, at)[0]
            found.append(at)
        return [self.start + at for at in found]

    @property
    def messages(self) -> list[int]:
        data, start = self.data(), self.start
        return [at for at in self.boundaries[:-1] if read_head(data, at - start)[1] != BLANK]

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self.data()))

    def data(self) -> bytes:
        return _records(b"".join(file.read_bytes() for file in self._files()))

    def everything(self) -> bytes:
        """The archive's, from offset 0 on."""
        return _records(b"".join(file.read_bytes() for file in sorted(self.archive.iterdir())))

    def _append(self, puts: list[Put]) -> None:
        store = CommitLogStore(self.root, HOST, file_size_bytes=FILE_SIZE_BYTES)
        for put in puts:
            store.append([put])
        store.close()
        self._keep()

    def _rewrite_body(self, at: int, moments: random.Random) -> None:
        record = decode(self.data(), at - self.start, Offset(at))
        assert isinstance(record, Message)
        body = moments.randbytes(len(record.body))
        self._overwrite(at, encode(replace(record, body=body, body_crc=body_crc(body))))

    def _overwrite(self, offset: int, data: bytes) -> None:
        first = offset // FILE_SIZE_BYTES * FILE_SIZE_BYTES
        with (self.path / f"{first:020d}").open("r+b") as file:
            file.seek(offset - first)
            file.write(data)

    def _keep(self) -> None:
        """The archive follows: of what is there, as it is now; of what retention took, as it was."""
        self.archive.mkdir(exist_ok=True)
        there = {file.name for file in self._files()}
        newest = max(there, default="")
        for file in self.archive.iterdir():
            if file.name > newest:
                file.unlink()
        for name in there:
            shutil.copyfile(self.path / name, self.archive / name)

    def _files(self) -> list[Path]:
        return sorted(self.path.iterdir())


def _put(moments: random.Random, body_bytes: int) -> Put:
    return Put(
        topic=moments.choice(TOPICS),
        queue_id=moments.randrange(2),
        body=moments.randbytes(body_bytes),
        properties=f"KEYS\x01key-{moments.randrange(1000)}\x02UNIQ_KEY\x01{moments.getrandbits(128):032X}\x02".encode(),
        born_host=HOST,
        born_timestamp_ms=BORN_MS,
    )


def _records(data: bytes) -> bytes:
    at = 0
    while at + HEAD.size <= len(data) and read_head(data, at)[0] > 0:
        at += read_head(data, at)[0]
    return data[:at]
