"""A commit log written for a test, by the rules of the specification and without any code of the project."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

PROPERTIES = b"KEYS\x01k\x02"
STORED_MS = 1_700_000_000_001
BLANK_HEAD = struct.Struct(">iI")


def record_bytes(offset: int, body: bytes, properties: bytes = PROPERTIES, stored_ms: int = STORED_MS) -> bytes:
    """A V1 message record with IPv4 hosts (specification, section 1.2) at physical offset `offset`."""
    host = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
    rest = (
        struct.pack(">Iiiqqiq", zlib.crc32(body) & 0x7FFFFFFF, 0, 0, 0, offset, 0, 1_700_000_000_000) + host
        + struct.pack(">q", stored_ms) + host + struct.pack(">iq", 0, 0)
        + struct.pack(">i", len(body)) + body + b"\x01t" + struct.pack(">h", len(properties)) + properties
    )  # fmt: skip
    return struct.pack(">iI", len(rest) + 8, 0xDAA320A7) + rest


@dataclass
class SyntheticLog:
    """Segment files of `file_bytes` in `path`, the next one always allocated ahead, as a broker does.

    `starts` are the offsets of all records, blanks included; `end` is the offset after the last.
    """

    path: Path
    file_bytes: int = 4096
    minimum: int = 0

    def __post_init__(self) -> None:
        self.end = self.minimum
        self.starts: list[int] = []
        self.blanks: list[int] = []
        self.allocate(self.minimum)

    def file(self, start: int) -> Path:
        """The file whose first byte is offset `start`."""
        return self.path / f"{start:020d}"

    def allocate(self, start: int) -> None:
        with self.file(start).open("ab") as file:
            file.truncate(self.file_bytes)

    def write(self, offset: int, data: bytes) -> None:
        """Puts bytes at an offset, whatever stands there; within one file."""
        start = offset - (offset - self.minimum) % self.file_bytes
        with self.file(start).open("r+b") as file:
            file.seek(offset - start)
            file.write(data)

    def append(
        self, body: bytes, properties: bytes = PROPERTIES, *, piece_bytes: int = 1 << 30, stored_ms: int = STORED_MS
    ) -> None:
        """Appends a message, after a blank where it does not fit (section 1.3), in pieces of `piece_bytes`."""
        data = record_bytes(self.end, body, properties, stored_ms)
        if len(data) + 8 > self.left:
            self.append_blank()
            data = record_bytes(self.end, body, properties, stored_ms)
        for at in range(0, len(data), piece_bytes):
            self.write(self.end + at, data[at : at + piece_bytes])
        self._grow(len(data))

    def append_blank(self) -> None:
        """Ends the file, and allocates the one after the next."""
        left = self.left
        self.allocate(self.end + left)
        self.write(self.end, BLANK_HEAD.pack(left, 0xCBD43194))
        self.blanks.append(self.end)
        self._grow(left)
        self.allocate(self.end + self.file_bytes)

    def recover_at(self, record: int) -> None:
        """What a broker does that finds this record lost: its log ends there, and the bytes behind stay."""
        self.end = self.starts[record]
        del self.starts[record:]

    def go_on(self) -> None:
        """Begin the file after the one that the log ends in, as the broker has done since; `end` stays."""
        start = self.end + self.left % self.file_bytes
        self.allocate(start)
        self.write(start, record_bytes(start, b"later"))

    def _grow(self, size: int) -> None:
        self.starts.append(self.end)
        self.end += size

    @property
    def left(self) -> int:
        """Bytes from the end of the data to the end of its file."""
        return self.file_bytes - (self.end - self.minimum) % self.file_bytes

    @property
    def boundaries(self) -> list[int]:
        """All record boundaries, the end included."""
        return [*self.starts, self.end]

    def data(self) -> bytes:
        whole = b"".join(path.read_bytes() for path in sorted(self.path.iterdir()))
        return whole[: self.end - self.minimum]


def filled(path: Path, *sizes: int, file_bytes: int = 4096, minimum: int = 0) -> SyntheticLog:
    """A log of messages with bodies of these sizes, no byte of them zero."""
    log = SyntheticLog(path, file_bytes, minimum)
    for number, size in enumerate(sizes):
        log.append(bytes([1 + number % 255]) * size)
    return log
