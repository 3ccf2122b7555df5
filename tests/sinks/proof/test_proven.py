"""Which ranges of a log are proven, and the proof of them."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.proof.proven_log import Proof, check_joined, proven_ranges
from sinks.state.holes import Holes
from sinks.values.ledger_row import LedgerRow
from sources.errors import CoverageError, Divergent
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.accounts import ledger_row

BROKER_A = LogId("rocketmq", "broker-a")
LOG = bytes(range(256)) * 4


def row(start: int, end: int) -> LedgerRow:
    return ledger_row(start, end, LOG[start:end])


def holes(*ranges: tuple[int, int]) -> Holes:
    return Holes(ranges=tuple(OffsetRange(Offset(start), Offset(end)) for start, end in ranges))


def proven(ledger: list[LedgerRow], owed: list[LedgerRow], missing: Holes, position: int) -> list[LedgerRow]:
    return proven_ranges(BROKER_A, ledger, owed, missing, Offset(position))


@pytest.mark.parametrize(
    ("ledger", "owed", "missing", "position", "expected"),
    [
        ([row(30, 40), row(10, 20)], [], holes((0, 10), (20, 30)), 40, [row(10, 20), row(30, 40)]),
        # what the newest commits owe counts where the ledger lacks it, and nothing else is there
        ([row(0, 10)], [row(0, 10), row(10, 20)], holes(), 20, [row(0, 10), row(10, 20)]),
        ([row(0, 15), row(15, 30)], [row(10, 20)], holes(), 30, [row(0, 15), row(15, 30)]),
        ([row(10, 20)], [row(0, 10)], holes((0, 10)), 20, [row(10, 20)]),  # it was deleted since
        # the ledger is read after the log table: the stream and a backfill may have gone on
        ([row(0, 10), row(10, 15), row(20, 30)], [], holes((10, 20)), 30, [row(0, 10), row(20, 30)]),
        ([row(0, 10), row(10, 20)], [], holes(), 10, [row(0, 10)]),
    ],
)
def test_rows_and_holes_fill_everything(
    ledger: list[LedgerRow], owed: list[LedgerRow], missing: Holes, position: int, expected: list[LedgerRow]
) -> None:
    assert proven(ledger, owed, missing, position) == expected


@pytest.mark.parametrize(
    ("ledger", "missing", "at", "found"),
    [
        ([row(0, 10), row(20, 30)], holes(), 10, "[10, 20) in none"),
        ([row(0, 10), row(5, 30)], holes(), 5, "[5, 10) in several"),
        ([row(10, 30)], holes(), 0, "[0, 10) in none"),
        ([row(0, 20)], holes(), 20, "[20, 30) in none"),
        ([row(0, 20)], holes((20, 40)), 30, "[30, 40) beyond the position"),
        ([], holes(), 0, "[0, 30) in none"),
    ],
    ids=["between", "twice", "before", "after", "beyond", "nothing"],
)
def test_what_does_not_fill_it_is_an_error(ledger: list[LedgerRow], missing: Holes, at: int, found: str) -> None:
    with pytest.raises(CoverageError, match="ledger and holes") as caught:
        proven(ledger, [], missing, 30)
    error = caught.value
    assert (error.log, error.offset, error.found) == ("rocketmq/broker-a", at, found)
    assert error.expected == "each offset below 30, and no other, in one of their ranges"
    assert "logtwin coverage" in (error.hint or "")


@given(cuts=st.sets(st.integers(1, len(LOG) - 1), max_size=6), piece=st.integers(1, len(LOG)))
def test_the_masters_bytes_pass_in_whatever_pieces(cuts: set[int], piece: int) -> None:
    edges = [0, *sorted(cuts), len(LOG)]
    proof = Proof(BROKER_A, [row(start, end) for start, end in pairwise(edges)])
    for at in range(0, len(LOG), piece):
        proof.take(memoryview(LOG[at : at + piece]))


def test_another_byte_stops_at_the_end_of_its_range() -> None:
    proof = Proof(BROKER_A, [row(0, 100), row(100, 200), row(200, 300)])
    changed = bytearray(LOG[:300])
    changed[150] ^= 1
    proof.take(memoryview(changed)[:199])
    with pytest.raises(Divergent, match=r"\[100, 200\)") as caught:
        proof.take(memoryview(changed)[199:200])
    assert caught.value.offset == 100
    assert caught.value.log == "rocketmq/broker-a"


def records(*places: tuple[int, int]) -> pa.RecordBatch:
    offsets, sizes = zip(*places, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(offsets), pa.array(sizes, pa.int32())], ["offset", "size"])


@pytest.mark.parametrize(
    ("places", "at"),
    [(((6, 9), (15, 7)), 5), (((5, 10), (16, 7)), 15), (((5, 10), (5, 10), (15, 7)), 15)],
    ids=["late", "missing", "twice"],
)
def test_records_that_do_not_are_named(places: tuple[tuple[int, int], ...], at: int) -> None:
    check_joined(BROKER_A, records((5, 10), (15, 7), (22, 1)), Offset(5))
    with pytest.raises(Divergent, match="missing, or there twice") as caught:
        check_joined(BROKER_A, records(*places), Offset(5))
    assert caught.value.offset == at
