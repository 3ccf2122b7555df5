"""What is read has to begin with the last committed record: only what lies behind it goes on."""

from dataclasses import replace

import pytest

from sinks.values.continuity import Link, behind, checksum_of, nothing_of
from sources.epochs import Epoch
from sources.errors import CorruptRecord, Rewritten
from sources.loss import Condition
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from tests.sinks.memory_master import MemoryMaster, chunk_of, raw_bytes

MASTER = MemoryMaster((10, 90, 300, 5))  # records start at 0, 10, 100, 400 and end at 405
ROWS = MASTER.records()
LINK = Link.of(OffsetRange(Offset(10), Offset(100)), raw_bytes(ROWS[1]))


def behind_link(first: Chunk | Damage) -> Chunk:
    return behind(LINK, first, MASTER.lengths)


def test_a_link_is_a_record_by_its_place_and_the_sha256_of_its_bytes() -> None:
    link = Link.of(OffsetRange(Offset(10), Offset(13)), memoryview(b"abc"))
    checksum = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert link == Link(start=Offset(10), end=Offset(13), checksum=checksum)


def test_chunks_after_the_link_are_passed_on_whole_and_of_the_committed_record_alone_nothing() -> None:
    said = replace(chunk_of(ROWS[1:]), mark=7, epochs=(Epoch(3, Offset(0)),))
    found = behind_link(said)
    assert (found.covered, found.mark, found.epochs) == (OffsetRange(Offset(100), Offset(405)), 7, said.epochs)
    assert found.records.column("offset").to_pylist() == [100, 400]
    assert found.raw == raw_bytes(ROWS[2]) + raw_bytes(ROWS[3])
    found = behind_link(chunk_of(ROWS[1:2]))
    assert (found.covered, found.records.num_rows, bytes(found.raw)) == (OffsetRange(Offset(100), Offset(100)), 0, b"")


def test_nothing_another_record_or_damage_in_its_place_is_a_rewritten_log() -> None:
    found = nothing_of(LINK, None)
    assert isinstance(found, Rewritten)
    assert_says(found, "nothing")
    with pytest.raises(Rewritten) as caught:
        behind_link(chunk_of(ROWS[1:], lambda row: b"x" * int(row["size"])))
    assert_says(caught.value, checksum_of(b"x" * 90))
    error = CorruptRecord("no magic number", offset=10)
    with pytest.raises(Rewritten) as caught:
        behind_link(Damage(LINK.range, None, error))
    assert_says(caught.value, "no sound record: no magic number")


def assert_says(error: Rewritten, found: str) -> None:
    assert (error.offset, error.found, error.hint) == (10, found, Condition.REWRITTEN.hint)
    assert error.expected == f"[10, 100) with {checksum_of(raw_bytes(ROWS[1]))}"


@pytest.mark.parametrize("offset", [10, 99])
def test_a_record_that_cannot_be_read_in_its_place_is_a_rewritten_log(offset: int) -> None:
    found = nothing_of(LINK, CorruptRecord("no magic number", offset=offset))
    assert isinstance(found, Rewritten)
    assert_says(found, "no sound record: no magic number")


@pytest.mark.parametrize("offset", [100, 101, None])
def test_damage_elsewhere_says_nothing_of_the_committed_record(offset: int | None) -> None:
    error = CorruptRecord("no magic number", offset=offset)
    assert nothing_of(LINK, error) is error
