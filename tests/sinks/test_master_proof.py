"""A promise is for one master: which ones may take it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sinks.continuity import Link
from sinks.master_proof import prove_master
from sources.errors import AboveMaximum, MasterUnreachable, Recreated, Rewritten
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_master import MemoryMaster, Overtaken, Rewriting, raw_bytes

SIZES = (10, 90, 300, 5, 5, 90)  # records start at 0, 10, 100, 400, 405, 410 and end at 500
MASTER = MemoryMaster(SIZES)
POSITION = Offset(400)
LINK = Link.of(OffsetRange(Offset(100), Offset(400)), raw_bytes(MASTER.records()[2]))


@dataclass(frozen=True, slots=True)
class Empty(MemoryMaster):
    """Holds nothing, from `at` on."""

    at: int = 0

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        return OffsetRange(Offset(self.at), Offset(self.at))


class Away(MemoryMaster):
    def bounds(self, known: Offset | None = None) -> OffsetRange:
        raise MasterUnreachable("away")


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
    prove_master(master, POSITION, LINK)
    prove_master(master, POSITION, None)


@pytest.mark.parametrize("master", [Rewriting(SIZES), Rewriting(SIZES, since=100), MemoryMaster((400, 10, 90))])
def test_other_bytes_in_the_last_record(master: MemoryMaster) -> None:
    with pytest.raises(Rewritten) as caught:
        prove_master(master, POSITION, LINK)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", 100)
    prove_master(master, POSITION, None)  # of a replica that an older version wrote


@pytest.mark.parametrize("link", [LINK, None])
def test_a_master_that_ends_below(link: Link | None) -> None:
    with pytest.raises(AboveMaximum) as caught:
        prove_master(MemoryMaster((10, 90, 299)), POSITION, link)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", 400)


@pytest.mark.parametrize("at", [0, 100, 500])
def test_an_empty_master(at: int) -> None:
    with pytest.raises(Recreated) as caught:
        prove_master(Empty(SIZES, at=at), POSITION, LINK)
    assert (caught.value.log, caught.value.offset) == ("rocketmq/broker-a", 400)
    assert "--accept-master" in str(caught.value)


def test_a_master_that_cannot_be_asked_is_neither() -> None:
    with pytest.raises(MasterUnreachable):
        prove_master(Away(SIZES), POSITION, LINK)
