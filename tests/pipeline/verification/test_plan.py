"""What is compared together, and what an interrupted verification leaves: pure."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.verify.sections import (
    LARGEST_SECTION_BYTES,
    SECTION_BYTES,
    Asked,
    At,
    ClaimSection,
    VerifyFile,
    VerifyState,
    claims_of,
    key_of,
    sampled,
    sections,
)
from sinks.proof.stored import Part
from sinks.proof.verdicts import Claim
from sources.offsets import Offset, OffsetRange
from tests.sinks.accounts import ledger_row
from tests.spans import span

MB = 1_000_000

ASKED = Asked(place="/log", epoch=0, share=0.1, seed=7)
STATE = VerifyState(asked=ASKED, begun_at="2026-11-21T10:00:00+00:00")


def claim(start: int, end: int) -> Claim:
    return Claim(span(start, end), f"sha256:{start}", 1, end - start)


def part(start: int, end: int, size_bytes: int = 100) -> Part:
    return Part(f"{start}.parquet", span(start, end), 1, size_bytes)


def cut(found: list[ClaimSection]) -> list[tuple[int, int, At]]:
    return [(one.range.start, one.range.end, one.at) for one in found]


def test_claims_are_rows_and_holes_in_order_as_far_as_they_are_wanted() -> None:
    rows, holes = [ledger_row(200, 300), ledger_row(100, 200), ledger_row(400, 500)], [span(0, 100), span(300, 400)]
    everything = claims_of(rows, holes, span(0, 500))
    assert [one.range.start for one in everything] == [0, 100, 200, 300, 400]
    assert [one.is_hole for one in everything] == [True, False, False, True, False]
    assert [one.range.start for one in claims_of(rows, holes, span(199, 301))] == [100, 200, 300]


def test_small_claims_that_join_are_read_together() -> None:
    claims = [claim(at, at + 10 * MB) for at in range(0, 200 * MB, 10 * MB)]
    found = sections(claims, None, [])
    assert cut(found) == [(at, min(at + 60 * MB, 200 * MB), At.MASTER) for at in range(0, 200 * MB, 60 * MB)]
    assert all(one.range.size <= SECTION_BYTES for one in found)
    assert [one for section in found for one in section.claims] == claims
    assert cut(sections([claim(0, 10), claim(20, 30)], None, [])) == [(0, 10, At.MASTER), (20, 30, At.MASTER)]
    # by bytes and not by offsets
    claims = [Claim(span(at, at + 10**9), f"sha256:{at}", 1, 20 * MB) for at in range(0, 10**10, 10**9)]
    assert [len(one.claims) for one in sections(claims, None, [])] == [3, 3, 3, 1]
    assert [one.compared_bytes for one in sections(claims, None, [])] == [60 * MB] * 3 + [20 * MB]


def test_holes_are_looked_into_where_a_file_may_hold_rows_and_what_the_master_lacks_is_marked() -> None:
    claims = [Claim(span(0, 10)), claim(10, 20), Claim(span(20, 30)), claim(30, 40)]
    found = cut(sections(claims, None, [part(8, 18), part(30, 38)]))
    assert found == [(0, 10, At.HOLE), (10, 20, At.MASTER), (30, 40, At.MASTER)]
    claims = [claim(0, 10), claim(10, 20), claim(20, 30), claim(30, 40), claim(40, 50)]
    assert cut(sections(claims, span(15, 35), [])) == [(0, 20, At.GONE), (20, 30, At.MASTER), (30, 50, At.BEYOND)]


def test_sections_have_the_files_that_may_hold_their_rows() -> None:
    claims = [claim(at, at + 60 * MB) for at in range(0, 240 * MB, 60 * MB)]
    parts = [part(120 * MB, 180 * MB), part(0, 60 * MB), part(59 * MB, 121 * MB)]
    found = sections(claims, None, parts)
    names = [[one.path for one in section.parts] for section in found]
    assert names == [[parts[1].path, parts[2].path], [parts[2].path], [parts[2].path, parts[0].path], []]


def test_sections_grow_where_every_file_would_be_read_for_each() -> None:
    claims = [claim(at, at + 10 * MB) for at in range(0, 1000 * MB, 10 * MB)]
    interleaved = [part(0, 1000 * MB, size_bytes=50 * MB) for _ in range(10)]
    found = sections(claims, None, interleaved)
    assert len(found) == 4
    assert max(one.range.size for one in found) == 250 * MB <= LARGEST_SECTION_BYTES


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_sample_is_its_share_and_repeatable(share: float) -> None:
    found = [ClaimSection((claim(at, at + 1),), At.MASTER) for at in range(1000)]
    chosen = sampled(found, share, 7)
    assert len(chosen) == 1000 * share
    assert chosen == sampled(found, share, 7)
    assert [one.range.start for one in chosen] == sorted(one.range.start for one in chosen)
    if share < 1:
        assert chosen != sampled(found, share, 8)
    assert len(sampled(found, 1e-9, 1)) == 1  # never empty
    assert sampled([], share, 1) == []


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_share_is_of_bytes(share: float) -> None:
    """Of 99 small sections and a large one, which has half of all bytes: whoever is drawn, the share is read."""
    edges = [*range(100), 198]
    found = [ClaimSection((claim(start, end),), At.MASTER) for start, end in pairwise(edges)]
    large = found[-1]
    taken = 0
    for seed in range(400):
        chosen = sampled(found, share, seed)
        size = sum(section.compared_bytes for section in chosen)
        assert size >= share * 198
        taken += large in chosen
        without_last = sorted(section.compared_bytes for section in chosen)[:-1]
        assert sum(without_last) < share * 198 or large in chosen
    assert taken > 0.5 * 400  # the first draw alone takes it every other time


def section(*edges: int, checksum: str = "sha256:00") -> ClaimSection:
    ranges = (OffsetRange(Offset(start), Offset(end)) for start, end in pairwise(edges))
    return ClaimSection(tuple(Claim(one, checksum, 1) for one in ranges), At.MASTER)


def test_it_comes_back(tmp_path: Path) -> None:
    file = VerifyFile(str(tmp_path / "ä b"), "rocketmq/broker-a")
    assert file.read() is None
    state = STATE.with_proven([section(0, 10, 20)])
    file.write(STATE)
    file.write(state)
    assert file.read() == state
    assert [path.name for path in tmp_path.rglob("*.json*")] == ["broker-a.json"]
    file.remove()
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"asked": {"speed": 1}, "begun_at": "", "proven": []}'])
def test_what_cannot_be_read_is_no_run(tmp_path: Path, text: str) -> None:
    file = VerifyFile(str(tmp_path), "rocketmq/broker-a")
    file.write(STATE)
    (tmp_path / "_verify/rocketmq/broker-a.json").write_text(text)
    assert file.read() is None


def test_a_section_is_known_by_what_the_ledger_says() -> None:
    state = STATE.with_proven([section(0, 10, 20), section(20, 30)])
    assert state.holds(section(0, 10, 20))
    assert state.holds(replace(section(20, 30), at=At.GONE))
    assert not state.holds(section(0, 20))
    assert not state.holds(section(0, 10, 20, 30))
    assert not state.holds(section(20, 30, checksum="sha256:01"))
    assert len({key_of(section(0, 10)), key_of(section(0, 1)), key_of(section(1, 10))}) == 3
