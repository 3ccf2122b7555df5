"""Whose bytes are wrong, and which records, for every way in which the three sides of a claim can differ."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sinks.proof.comparison import compare
from sinks.proof.master_bytes import StreamedBytes
from sinks.proof.verdicts import LISTED, Claim, Compared, Difference, DifferenceKind, Verdict
from sources.errors import CorruptRecord
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_master import SCHEMA, MemoryMaster, raw_bytes

MASTER = MemoryMaster((10, 90, 300, 5, 5, 90) * 2)  # starts 0, 10, 100, 400, 405, 410, 500, 510, 600, 900, 905, 910
ROWS = MASTER.records()
LOG = b"".join(map(raw_bytes, ROWS))
CHANGED, MISSING, TWICE, SURPLUS = DifferenceKind
BROKEN = -1
"""As queue id: the row gives no record."""


class Flagged(MemoryMaster):
    """The flag is the first byte of each record, where it is set."""

    def restore(self, records: pa.RecordBatch) -> bytes:
        rows = records.to_pylist()
        if any(row["queue_id"] == BROKEN for row in rows):
            raise CorruptRecord("the row is no record")
        return b"".join(map(stored_bytes, rows))


FORMAT = Flagged(MASTER.sizes)


def stored_bytes(row: dict[str, Any]) -> bytes:
    raw = raw_bytes(row)
    return raw if row["flag"] is None else bytes([row["flag"]]) + raw[1:]


def claim(start: int, end: int, of: bytes = LOG) -> Claim:
    records = sum(start <= row["offset"] < end for row in ROWS)
    checksum = f"sha256:{hashlib.sha256(of[start:end]).hexdigest()}"
    return Claim(OffsetRange(Offset(start), Offset(end)), checksum, records)


def batches(rows: Sequence[dict[str, Any]], size: int = 100) -> Iterable[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[at : at + size]), schema=SCHEMA)


def pieces(data: bytes, size: int = 64) -> Iterable[memoryview]:
    """Views of one buffer that is filled anew each time, as of a socket."""
    buffer = bytearray(size)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        buffer[: len(piece)] = piece
        yield memoryview(buffer)[: len(piece)]


WHOLE = claim(0, 1000)


def compared(rows: Sequence[dict[str, Any]] = ROWS, master: bytes | None = LOG, one: Claim = WHOLE) -> Compared:
    """The same, however the rows come in batches and the master's bytes in pieces."""
    found = {
        next(
            compare([one], batches(rows, size), None if master is None else StreamedBytes(pieces(master, cut)), FORMAT)
        )
        for size in (1, 5, 100)
        for cut in (7, 64, 5000)
    }
    assert len(found) == 1
    return found.pop()


def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    return [row | values if at == number else row for at, row in enumerate(ROWS)]


def flipped(at: int) -> bytes:
    return LOG[:at] + bytes([LOG[at] ^ 1]) + LOG[at + 1 :]


def differing(*found: tuple[int, DifferenceKind]) -> tuple[Difference, ...]:
    return tuple(Difference(Offset(offset), kind) for offset, kind in found)


def without(*numbers: int) -> list[dict[str, Any]]:
    return [row for number, row in enumerate(ROWS) if number not in numbers]


def test_a_difference_stays_in_its_claim() -> None:
    claims = [claim(0, 400), claim(400, 410), claim(410, 1000)]
    found = list(compare(claims, batches(changed(4, flag=1), 5), StreamedBytes(pieces(LOG)), FORMAT))
    assert [(one.claim, one.verdict, one.rows) for one in found] == [
        (claims[0], Verdict.EQUAL, 3),
        (claims[1], Verdict.REPLICA_DAMAGED, 2),
        (claims[2], Verdict.EQUAL, 7),
    ]
    assert found[1].differences == differing((405, CHANGED))


@pytest.mark.parametrize(
    ("rows", "at", "kind"),
    [
        (changed(2, flag=1), 100, CHANGED),
        *((changed(at, queue_id=BROKEN), ROWS[at]["offset"], CHANGED) for at in (0, 2, 11)),
        *((changed(at, size=None), ROWS[at]["offset"], CHANGED) for at in (0, 2, 11)),
        (without(0), 0, MISSING),
        (without(1, 2), 10, MISSING),
        (without(11), 910, MISSING),
        (without(5, 6), 410, MISSING),
        ([], 0, MISSING),
        *(([*ROWS[: at + 1], *ROWS[at:]], ROWS[at]["offset"], TWICE) for at in (0, 2, 11)),
        ([*ROWS, ROWS[-1] | {"queue_id": BROKEN}], 910, TWICE),
        (sorted([*ROWS, ROWS[2] | {"offset": 150}], key=lambda row: row["offset"]), 150, SURPLUS),
    ],
)
def test_the_replica_is_damaged(rows: list[dict[str, Any]], at: int, kind: DifferenceKind) -> None:
    found = compared(rows)
    assert (found.verdict, found.rows, found.differing) == (Verdict.REPLICA_DAMAGED, len(rows), 1)
    assert found.differences == differing((at, kind))


@pytest.mark.parametrize("size", [299, 301])
def test_a_row_of_another_size(size: int) -> None:
    found = compared(changed(2, size=size))
    assert found.verdict is Verdict.REPLICA_DAMAGED
    assert 100 <= found.differences[0].offset < 401


def test_whose_bytes_are_wrong_two_of_three_decide() -> None:
    found = compared(master=flipped(401))
    assert (found.verdict, found.differing) == (Verdict.REWRITTEN, 1)
    assert found.differences == differing((400, CHANGED))
    found = compared(master=LOG[:450])  # it ends early
    assert (found.verdict, found.differences[0]) == (Verdict.REWRITTEN, Difference(Offset(410), CHANGED))
    found = compared(one=claim(0, 1000, of=flipped(7)))
    assert (found.verdict, found.differences) == (Verdict.LEDGER_WRONG, ())
    found = compared(changed(2, flag=1), flipped(950), claim(0, 1000, of=flipped(7)))
    assert (found.verdict, found.differences) == (Verdict.ALL_DIFFER, differing((100, CHANGED), (910, CHANGED)))


def test_the_first_differences_are_named_and_all_are_counted() -> None:
    rows = [row | {"flag": 1} for row in ROWS]
    found = compared(rows)
    assert found.differing == 12
    assert found.differences == differing(*((row["offset"], CHANGED) for row in ROWS[:LISTED]))


def test_without_the_master_rows_are_held_against_the_ledger_and_a_hole_has_none() -> None:
    assert compared(master=None) == Compared(claim=WHOLE, verdict=Verdict.EQUAL, rows=12, with_master=False)
    assert compared(changed(2, flag=1), None).verdict is Verdict.REPLICA_DAMAGED
    found = compared(ROWS[:-1], None)
    assert (found.verdict, found.differences) == (Verdict.REPLICA_DAMAGED, differing((910, MISSING)))
    hole = Claim(OffsetRange(Offset(0), Offset(400)))
    assert compared([], None, hole).verdict is Verdict.EQUAL
    found = compared(ROWS[1:3], None, hole)
    assert found.verdict is Verdict.REPLICA_DAMAGED
    assert found.differences == differing((10, SURPLUS), (100, SURPLUS))


def test_verdicts_become_incidents_but_for_equality() -> None:
    assert compared() == Compared(claim=WHOLE, verdict=Verdict.EQUAL, rows=12)
    assert [verdict for verdict in Verdict if verdict.condition is None] == [Verdict.EQUAL]
    assert replace(compared(), verdict=Verdict.UNREADABLE).as_json()["verdict"] == "replica_unreadable"
