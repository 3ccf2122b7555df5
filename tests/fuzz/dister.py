"""Lines of dister's log: any JSON, any number, any byte changed; one by one, and as files."""

import json
import random
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from sources.dister.entries import decode_line
from sources.dister.log import DisterLog
from sources.errors import CorruptRecord
from sources.master import Chunk, Damage
from sources.offsets import LogId
from tests.fuzz.mutations import LONG_DIGITS, mutated, text
from tests.sources.dister.entry_logs import records, write

PLAIN_ITEMS = ("{}", "[]", "null", '{"k":"\\ud800"}', '["\\u0000"]', '{"k":NaN}')
ODD_ITEMS = ("[" * 3000, '{"a":' * 2000, *PLAIN_ITEMS, *LONG_DIGITS)


def check(rng: random.Random) -> None:
    """A line is an entry that gives it back or CorruptRecord; a log's pieces join, and have all the bytes read."""
    lines = _lines(rng)
    for line in lines:
        try:
            entry = decode_line(line.rstrip(b"\n"))
        except CorruptRecord as error:
            assert "makes its decoder fail" not in str(error)
        else:
            assert entry.head + entry.items_json + b"\n" == line
    if rng.random() < 0.3:
        _check_log(b"".join(lines), rng)


def _lines(rng: random.Random) -> list[bytes]:
    at, lines = rng.choice((0, 10_000)), []
    for _ in range(rng.randint(1, 12)):
        at += rng.choice((1, 7, 10_000))
        act = rng.choice((300, 300, 310, 999, 2**31))
        line = f"{rng.choice((at, at, at, rng.choice(LONG_DIGITS)))},{act},{_items(act, rng)}\n".encode(
            "utf-8", "replace"
        )
        lines.append(mutated(line[:-1], rng, 2).replace(b"\n", b"") + b"\n" if rng.random() < 0.3 else line)
    return lines


def _items(act: int, rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(ODD_ITEMS)
    if act == 310:
        return json.dumps([text(rng) for _ in range(rng.randint(0, 3))])
    return json.dumps({text(rng): text(rng) for _ in range(rng.randint(0, 3))}, ensure_ascii=rng.random() < 0.5)


def _check_log(data: bytes, rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(write(Path(folder), {0: data}))
        options: dict[str, Any] = {
            "log_id": LogId("dister", "g"),
            "path": path,
            "chunk_bytes": rng.choice((1, 200, 1 << 20)),
        }
        try:
            DisterLog(**options).bounds()
        except CorruptRecord as error:
            assert "makes its decoder fail" not in str(error)
        log = DisterLog(**options, past_damage=True)
        bounds, pieces = log.bounds(), []
        try:
            for piece in log.read(bounds, committed=None, boundary=True):
                pieces.append(piece)
                _check_piece(log, piece, data)
        except CorruptRecord as error:
            assert "between two ids" in str(error)
            return
        assert [piece.covered.start for piece in pieces][:1] in ([], [bounds.start])
        assert all(one.covered.end == other.covered.start for one, other in pairwise(pieces))
        assert not pieces or pieces[-1].covered.end == bounds.end


def _check_piece(log: DisterLog, piece: Chunk | Damage, data: bytes) -> None:
    if isinstance(piece, Damage):
        assert piece.raw is None or bytes(piece.raw) in data or b"\n" in bytes(piece.raw)
        assert "makes its decoder fail" not in str(piece.error)
    else:
        records(log, piece)
