"""HTTP/1.1 messages as they pass through a proxy: heads are read, bodies go on piece by piece as they are."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import IO

PIECE_BYTES = 64 * 1024
UNLIMITED = 1 << 62
_LONGEST_LINE = 64 * 1024
_NO_BODY = frozenset({204, 304})


class Broken(ConnectionError):
    """An end went away in the middle of a message."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a message, and its headers in their order."""

    line: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str, default: str = "") -> str:
        """The header's last value; `name` is lower-case."""
        return next((value for has, value in reversed(self.headers) if has.lower() == name), default)

    def without(self, *names: str) -> Head:
        """`names` are lower-case."""
        return Head(self.line, tuple(pair for pair in self.headers if pair[0].lower() not in names))

    def packed(self) -> bytes:
        lines = [self.line, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")

    @property
    def method(self) -> str:
        return self.line.split(" ", 1)[0]

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.line.split(" ")[1])

    @property
    def keeps_connection(self) -> bool:
        """Whether another message may come after this one."""
        said = self.get("connection").lower()
        return said != "close" and ("HTTP/1.0" not in self.line or said == "keep-alive")

    @property
    def is_chunked(self) -> bool:
        return self.get("transfer-encoding").lower() == "chunked"

    @property
    def length(self) -> int:
        return int(self.get("content-length", "0"))


def read_head(stream: IO[bytes]) -> Head | None:
    """None where the other end has no more messages. Raises Broken in the middle of one."""
    first = stream.readline(_LONGEST_LINE)
    if not first:
        return None
    headers = []
    while (line := _line(stream)) not in (b"\r\n", b"\n"):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name.strip(), value.strip()))
    return Head(first.decode("latin-1").rstrip("\r\n"), tuple(headers))


def answer_head(status: int, headers: tuple[tuple[str, str], ...]) -> Head:
    return Head(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", headers)


def has_body(method: str, answer: Head) -> bool:
    """Whether a body follows the head of the answer to a request by this method."""
    return method != "HEAD" and answer.status not in _NO_BODY


def pass_body(head: Head, source: IO[bytes], sink: IO[bytes], *, most: int = UNLIMITED) -> None:
    """The body that follows `head`, into `sink`, as it is. Raises Broken after `most` bytes."""
    way = _Way(source, sink, most)
    if not head.is_chunked:
        way.move(head.length)
        return
    while True:
        size = way.move_line()
        if int(size.split(b";")[0], 16) == 0:
            break
        way.move(int(size.split(b";")[0], 16) + len(b"\r\n"))
    while way.move_line() not in (b"\r\n", b"\n"):  # trailers
        pass


class _Way:
    def __init__(self, source: IO[bytes], sink: IO[bytes], most: int) -> None:
        self._source = source
        self._sink = sink
        self._most = most

    def move(self, count: int) -> None:
        left = count
        while left:
            piece = self._source.read(min(left, PIECE_BYTES))
            if not piece:
                raise Broken
            left -= len(piece)
            self._put(piece)

    def move_line(self) -> bytes:
        line = _line(self._source)
        self._put(line)
        return line

    def _put(self, piece: bytes) -> None:
        piece = piece[: self._most]
        self._most -= len(piece)
        self._sink.write(piece)
        if not self._most:
            self._sink.flush()
            raise Broken


def _line(stream: IO[bytes]) -> bytes:
    line = stream.readline(_LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise Broken
    return line
