"""A promise is for one master: which ones may take it."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest

from sinks.batch.master_proof import prove_master
from sinks.values.continuity import Link
from sinks.values.ledger_row import LedgerRow
from sources.errors import AboveMaximum, Recreated, Rewritten
from sources.offsets import Offset, OffsetRange
from tests.sinks.accounts import ledger_row
from tests.sinks.memory_master import MemoryMaster, Overtaken, Rewriting, raw_bytes

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500
MASTER = MemoryMaster(SIZES)
POSITION = Offset(400)
LINK = Link.of(OffsetRange(Offset(100), Offset(400)), raw_bytes(MASTER.records()[2]))


def prove(master: MemoryMaster, position: Offset, link: Link | None) -> None:
    """Of a master whose last record is proof enough."""

    prove_master(master, position, link, Mock(side_effect=AssertionError("nobody needs it")))


@dataclass(frozen=True, slots=True)
class Empty(MemoryMaster):
    """Holds nothing, from `at` on."""

    at: int = 0

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        return OffsetRange(Offset(self.at), Offset(self.at))


@pytest.mark.parametrize(
    "master",
    [
        MASTER,
        MemoryMaster(SIZES[:3]),  # it ends where the replica does
        Rewriting(SIZES, since=400),  # what differs is not in the replica
        Overtaken(SIZES, minimum=100),
        Overtaken(SIZES, minimum=400),  # the record is gone
        Overtaken(SIZES, minimum=410),  # so is what comes next: another matter
        Empty(SIZES, at=400),
    ],
)
def test_a_master_that_contradicts_nothing_is_believed(master: MemoryMaster) -> None:
    prove(master, POSITION, LINK)
    prove(master, POSITION, None)


@pytest.mark.parametrize("master", [Rewriting(SIZES), Rewriting(SIZES, since=100), MemoryMaster((400, 10, 90))])
def test_other_bytes_in_the_last_record(master: MemoryMaster) -> None:
    with pytest.raises(Rewritten) as caught:
        prove(master, POSITION, LINK)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", 100)
    prove(master, POSITION, None)  # of a replica that an older version wrote


@pytest.mark.parametrize("link", [LINK, None])
def test_a_master_that_ends_below(link: Link | None) -> None:
    with pytest.raises(AboveMaximum) as caught:
        prove(MemoryMaster((10, 90, 299)), POSITION, link)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", 400)


@pytest.mark.parametrize("at", [0, 100, 500])
def test_an_empty_master(at: int) -> None:
    with pytest.raises(Recreated) as caught:
        prove(Empty(SIZES, at=at), POSITION, LINK)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", 400)
    assert "--accept-master" in str(caught.value)


def ledger_of(*edges: tuple[int, int]) -> list[LedgerRow]:
    """Rows of `MASTER`'s records, from edge to edge."""
    whole = b"".join(map(raw_bytes, MASTER.records()))
    return [ledger_row(start, end, whole[start:end]) for start, end in edges]


LEDGERS = [
    ledger_of((0, 400)),
    ledger_of((0, 10), (10, 100), (100, 400)),
    ledger_of((0, 10), (100, 400)),  # what is missing cannot be compared
    [],
]


@pytest.mark.parametrize("rows", LEDGERS)
@pytest.mark.parametrize(
    "master",
    [
        MemoryMaster(SIZES, proves_all=True),
        Rewriting(SIZES, proves_all=True, since=400),
        Overtaken(SIZES, proves_all=True, minimum=100),
        Overtaken(SIZES, proves_all=True, minimum=410),
    ],
)
def test_all_that_can_be_compared_is_the_same(master: MemoryMaster, rows: list[LedgerRow]) -> None:
    prove_master(master, POSITION, LINK, lambda: rows)


@pytest.mark.parametrize("pieces", [1, 7, 64, 1000])
def test_the_masters_bytes_are_read_once_and_in_order(pieces: int) -> None:
    @dataclass(frozen=True, slots=True)
    class InPieces(MemoryMaster):
        def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
            asked.append(wanted)
            (whole,) = MemoryMaster.raw(self, wanted, committed=committed)
            buffer = bytearray(pieces)
            for at in range(0, len(whole), pieces):
                part = whole[at : at + pieces]
                buffer[: len(part)] = part  # good until the next is asked for
                yield memoryview(buffer)[: len(part)]

    asked: list[OffsetRange] = []
    prove_master(InPieces(SIZES, proves_all=True), POSITION, None, lambda: LEDGERS[1])
    prove_master(InPieces(SIZES, proves_all=True), POSITION, None, lambda: LEDGERS[2])
    assert [(one.start, one.end) for one in asked] == [(0, 400), (0, 10), (100, 400)]


@pytest.mark.parametrize(("since", "differs"), [(0, 0), (10, 10), (100, 100)])
def test_the_first_range_that_differs_is_named(since: int, differs: int) -> None:
    @dataclass(frozen=True, slots=True)
    class OnlyThere(Rewriting):
        """What follows is the same again: the last record proves nothing."""

        def _bytes(self, row: dict[str, Any]) -> bytes:
            return Rewriting._bytes(self, row) if row["offset"] == since else raw_bytes(row)

    master = OnlyThere(SIZES, proves_all=True, since=since)
    with pytest.raises(Rewritten) as caught:
        prove_master(master, POSITION, LINK, lambda: LEDGERS[1])
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", differs)
    assert "logtwin repair" in str(caught.value)


def test_a_master_that_has_fewer_bytes_there() -> None:
    @dataclass(frozen=True, slots=True)
    class Lacking(MemoryMaster):
        """As where an entry is missing between two ids."""

        def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
            (whole,) = MemoryMaster.raw(self, wanted, committed=committed)
            yield whole[: -len(raw_bytes(MASTER.records()[2]))]

    with pytest.raises(Rewritten) as caught:
        prove_master(Lacking(SIZES, proves_all=True), POSITION, None, lambda: LEDGERS[1])
    assert caught.value.offset == 100


@dataclass(frozen=True, slots=True)
class Doubtful(Rewriting):
    """Is in doubt whether its log goes on behind its second record, except for who knows that it did."""

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        return OffsetRange(Offset(0), Offset(100 if known is None else 500))


def test_what_was_replicated_from_a_doubt_on_is_compared() -> None:
    """Not only the last record, which a broker may have cut off and left where it stood."""
    rows = ledger_of((0, 10), (10, 100), (100, 400))
    prove_master(Doubtful(SIZES, since=400), POSITION, LINK, lambda: rows)
    with pytest.raises(Rewritten) as raised:
        prove_master(Doubtful(SIZES, since=100), POSITION, None, lambda: rows)
    assert raised.value.offset == 100
    prove(Doubtful(SIZES, since=100), Offset(100), None)  # one behind the position is none of the replica
