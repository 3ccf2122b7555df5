"""Entry logs written by hand, and read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sources.dister.log import DisterLog
from sources.master import Chunk, Damage
from sources.offsets import LogId
from tests.spans import span

LOG_ID = LogId("dister", "g")
owned = span


def set_line(entry_id: int, key: str = "k", value: str = "v") -> bytes:
    return b'%d,300,{"%s":"%s"}\n' % (entry_id, key.encode(), value.encode())


def write(folder: Path, files: Mapping[int, bytes]) -> Path:
    """The batch files of a leader's folder, which is given back."""
    for number, data in files.items():
        path = folder / "dister.entry.log" / str(number // 100) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def leader(folder: Path, *lines: bytes, **options: Any) -> DisterLog:
    """A log whose first batch file has these lines."""
    return log_of(write(folder, {0: b"".join(lines)}), **options)


def log_of(folder: Path, **options: Any) -> DisterLog:
    return DisterLog(log_id=LOG_ID, path=str(folder), **options)


def pieces(log: DisterLog, start: int, end: int, *, boundary: bool = True) -> list[tuple[str, int, int, bytes | None]]:
    """What reading gives: what it is, its range, its bytes; a chunk as its single records."""
    found: list[tuple[str, int, int, bytes | None]] = []
    for piece in log.read(owned(start, end), committed=None, boundary=boundary):
        if isinstance(piece, Damage):
            raw = None if piece.raw is None else bytes(piece.raw)
            found.append(("damage", piece.covered.start, piece.covered.end, raw))
        else:
            found += records(log, piece)
    return found


def records(log: DisterLog, chunk: Chunk) -> list[tuple[str, int, int, bytes | None]]:
    """Of each record its range and its part of the chunk's bytes, which the records must fill, and give back."""
    assert log.restore(chunk.records) == chunk.raw
    found: list[tuple[str, int, int, bytes | None]] = []
    at, start = 0, int(chunk.covered.start)
    for row, length in zip(chunk.records.to_pylist(), log.lengths(chunk.records).tolist(), strict=True):
        assert row["offset"] == start
        start += row["size"]
        found.append(("entry", row["offset"], start, bytes(chunk.raw[at : at + length])))
        at += length
    assert (start, at) == (chunk.covered.end, len(chunk.raw))
    return found


def raw(log: DisterLog, start: int, end: int) -> bytes:
    return b"".join(map(bytes, log.raw(owned(start, end), committed=None)))


def ids(log: DisterLog, start: int, end: int) -> list[int]:
    return [end - 1 for kind, _, end, _ in pieces(log, start, end) if kind == "entry"]
