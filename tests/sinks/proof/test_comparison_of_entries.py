"""The comparison of a log whose offsets are ids: entries of any length, free ids, and what is named of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sinks.proof.comparison import compare
from sinks.proof.master_bytes import master_bytes
from sinks.proof.verdicts import Claim, Compared, Difference, DifferenceKind, Verdict
from sinks.values.continuity import checksum_of
from sources.dister.log import DisterLog
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange
from sources.records import RECORD_SCHEMA
from tests.sources.dister.entry_logs import leader, log_of, set_line, write

IDS = (10_007, 20_001, 30_005, 70_000, 80_000, 90_123)
LINES = [set_line(entry_id, value="v" * number * 7) for number, entry_id in enumerate(IDS)]
STARTS = (0, *(entry_id + 1 for entry_id in IDS[:-1]))
END = Offset(IDS[-1] + 1)


WHOLE = Claim(OffsetRange(Offset(0), END), checksum_of(b"".join(LINES)), len(LINES), sum(map(len, LINES)))


@pytest.fixture
def master(tmp_path: Path) -> DisterLog:
    return leader(tmp_path, *LINES)


@pytest.fixture
def rows(master: DisterLog) -> list[dict[str, Any]]:
    pieces = master.read(WHOLE.range, committed=None, boundary=True)
    return [row for piece in pieces if isinstance(piece, Chunk) for row in piece.records.to_pylist()]


def batches(rows: Sequence[dict[str, Any]], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[at : at + size]), schema=RECORD_SCHEMA)


def compared(rows: Sequence[dict[str, Any]], master: DisterLog, one: Claim = WHOLE, *, alone: bool = False) -> Compared:
    """The same, however the rows come in batches; `alone` without the master."""
    found = set()
    for size in (1, 4, 100):
        with master_bytes(master, one.range, END) as held:
            found |= set(compare([one], batches(rows, size), None if alone else held, master))
    assert len(found) == 1
    return found.pop()


def of(number: int, kind: DifferenceKind) -> Difference:
    return Difference(Offset(STARTS[number]), kind, IDS[number])


@pytest.mark.parametrize("number", range(6))
def test_an_entry_that_differs_is_named(
    tmp_path: Path, master: DisterLog, rows: list[dict[str, Any]], number: int
) -> None:
    for body in (b'{"k":"x"}', b'{"k":"' + b"v" * 99 + b'"}'):
        changed = [row | {"body": body} if at == number else row for at, row in enumerate(rows)]
        found = compared(changed, master)
        assert (found.verdict, found.differences) == (Verdict.REPLICA_DAMAGED, (of(number, DifferenceKind.CHANGED),))
    found = compared(rows[:number] + rows[number + 1 :], master)
    assert (found.verdict, found.differences) == (Verdict.REPLICA_DAMAGED, (of(number, DifferenceKind.MISSING),))
    write(tmp_path, {0: b"".join([*LINES[:number], LINES[number].replace(b"k", b"q"), *LINES[number + 1 :]])})
    found = compared(rows, master)
    assert (found.verdict, found.differences) == (Verdict.REWRITTEN, (of(number, DifferenceKind.CHANGED),))


def test_of_several_missing_rows_the_last_is_named_of_one_twice_none(
    master: DisterLog, rows: list[dict[str, Any]]
) -> None:
    found = compared(rows[:2] + rows[4:], master)
    assert found.differences == (Difference(Offset(STARTS[2]), DifferenceKind.MISSING, IDS[3]),)
    found = compared([*rows[:3], rows[2], *rows[3:]], master)
    assert (found.verdict, found.rows) == (Verdict.REPLICA_DAMAGED, 7)
    assert found.differences == (Difference(Offset(STARTS[2]), DifferenceKind.TWICE),)


@pytest.mark.parametrize("lines", [[*LINES[:3], set_line(40_000), *LINES[3:]], [*LINES[:3], *LINES[4:]]])
def test_a_line_too_many_or_too_few_differs_with_the_entry_there(
    tmp_path: Path, rows: list[dict[str, Any]], lines: list[bytes]
) -> None:
    found = compared(rows, leader(tmp_path, *lines))
    assert (found.verdict, found.differences) == (Verdict.REWRITTEN, (of(3, DifferenceKind.CHANGED),))


def test_free_ids_at_the_end_of_a_claim_are_nothing_that_is_missing(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """As a backfill leaves them, which does not take the next entry's range apart."""
    claim = Claim(OffsetRange(Offset(0), Offset(60_000)), checksum_of(b"".join(LINES[:3])), 3)
    master = log_of(write(tmp_path, {0: b"".join(LINES)}))
    assert compared(rows, master) == Compared(claim=WHOLE, verdict=Verdict.EQUAL, rows=6)
    assert compared(rows[:3], master, claim) == Compared(claim=claim, verdict=Verdict.EQUAL, rows=3)
    assert compared(rows[:3], master, claim, alone=True).verdict is Verdict.EQUAL
