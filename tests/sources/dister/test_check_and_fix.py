"""The two rules of check and fix: the scenario table; random histories, by the rules as written; and real files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.dister.check_and_fix import Walk, faithful_point, safe_point, walk_back
from sources.dister.layout import ENTRY_LOG
from sources.dister.log import DisterLog
from sources.errors import CorruptRecord
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import CheckAndFix
from tests.dister_folders import RND, dirty, leader, line, write_log
from tests.spans import span


def lines(ids: Sequence[int], changed: Sequence[int] = (), at: int = 0) -> Iterator[tuple[OffsetRange, bytes]]:
    """A log of these ids from offset `at` on, in which those of the indexes `changed` say something else."""
    for entry_id in ids:
        yield span(at, entry_id + 1), line(entry_id, is_changed=entry_id // 10_000 in changed)
        at = entry_id + 1


def index_of(end: Offset) -> int:
    return (end - 1) // 10_000 if end else 0


# scenario: the replica; how many entries the leader has; the index that faithful keeps, 0 for a full resync; the index
# that safe keeps; checks
MISSING_5 = [one for one in leader(50) if one // 10_000 != 5]
TABLE = {
    "21": (leader(10) + dirty(11, 5), 500, 1, 10, 1),
    "22": (leader(10) + dirty(11, 9999), 500, 0, 10, 2),
    "23": (leader(999) + dirty(1000, 5), 1049, 1, 999, 1),
    "24": (leader(999) + dirty(1000, 9999), 1049, 0, 999, 2),
    "25": (leader(1000) + dirty(1001, 5), 1050, 1, 1000, 1),
    "26": (leader(1000) + dirty(1001, 9999), 1050, 0, 1000, 3),
    "27": (leader(1001) + dirty(1002, 5), 1051, 2, 1001, 1),
    "28 low": (leader(2000) + dirty(2001, 5), 2050, 1001, 2000, 1),
    "28 high": (leader(2000) + dirty(2001, 9999), 2050, 3, 2000, 2),
    "29 low": (leader(3000) + dirty(3001, 5, 20), 3100, 1021, 3000, 2),
    "29 high": (leader(3000) + dirty(3001, 9999, 20), 3100, 1022, 3000, 2),
    "30": (leader(3000) + dirty(3001, 5, 1500), 5000, 1502, 3000, 3),
    "31": (leader(2) + dirty(3, 5), 10, 0, 2, 2),
    "32 low": (leader(3) + dirty(4, 5), 10, 1, 3, 1),
    "32 high": (leader(3) + dirty(4, 9999), 10, 0, 3, 2),
    "33": (dirty(1, 5, 2500), 2600, 0, 0, 4),
    "34 differs": (sorted(MISSING_5 + dirty(5, 5) + dirty(51, 5)), 100, 6, 4, 1),
    "34 missing": (MISSING_5 + dirty(51, 5), 100, 6, 4, 1),
}


@pytest.mark.parametrize("scenario", TABLE)
def test_the_table(scenario: str) -> None:
    """DI-80, DI-83."""
    replica, count, faithful, safe, checks = TABLE[scenario]
    theirs = leader(count)
    assert walk_back(theirs, replica) == Walk(faithful * 10_000 + RND if faithful else None, checks)
    end, walk = faithful_point(lines(replica), lines(theirs))
    assert (index_of(end), walk.windows) == (faithful, checks)
    assert index_of(safe_point(lines(replica), lines(theirs), Offset(0))) == safe


def test_the_last_entry_counts_with_what_is_before_it_and_what_it_says() -> None:
    """A replica that goes on there would be read from that entry on, and must meet the same."""
    theirs = leader(30)
    end, walk = faithful_point(lines(leader(20), changed=[20]), lines(theirs))
    assert (index_of(end), walk.windows) == (1, 1)
    end, walk = faithful_point(lines([one for one in leader(20) if one // 10_000 != 19]), lines(theirs))
    assert (index_of(end), walk.windows) == (0, 2)  # what is missing ends the window


def test_what_one_side_does_not_have_is_not_compared() -> None:
    theirs = leader(40)
    begun_later = list(lines(leader(20, first=10), at=9 * 10_000 + RND + 1))
    assert index_of(safe_point(begun_later, lines(theirs), Offset(0))) == 29
    with_a_hole = begun_later[:5] + begun_later[8:]
    assert index_of(safe_point(with_a_hole, lines(theirs), Offset(0))) == 29
    minimum = Offset(25 * 10_000)
    assert index_of(safe_point(begun_later, lines(theirs[24:], at=minimum), minimum)) == 29


def test_below_the_minimum_is_believed_unless_what_follows_differs() -> None:
    minimum = Offset(25 * 10_000)
    later = list(lines(leader(10, first=25), at=minimum))
    assert index_of(safe_point(lines(leader(20)), later, minimum)) == 20
    assert safe_point(lines(leader(24) + dirty(25, 5)), later, minimum) == 0


def by_the_book(theirs: Sequence[int], mine: Sequence[int]) -> tuple[int | None, int]:
    """The rule as it is written down, window by window and pair by pair; the id and the checks."""
    cursor, checks = (mine[-1] if mine else 0), 0
    while True:
        window = [one for one in theirs if one > cursor - 1000 * 10_000][:1000]
        ids = [one for one in window if one < cursor]
        checks += 1
        if not ids:
            return None, checks
        own = [one for one in mine if one >= ids[0]][: len(ids)]
        for at, one in enumerate(ids):
            if one in own:
                other, left = own.index(one), len(ids) - at
                if left >= 3 and len(own) - other >= 3 and own[other : other + left] == ids[at:]:
                    return one, checks
        cursor = window[0]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """The ids of a leader and of a replica that have some in common; as sparse as failed writes can make them."""
    index, common = 0, []
    for _ in range(draw(st.integers(0, 12))):
        index += draw(st.sampled_from([1, 1, 2, 40, 400, 999, 1000, 1001, 2500]))
        for _ in range(draw(st.sampled_from([1, 2, 3, 5, 30]))):
            common.append(index * 10_000 + draw(st.sampled_from([0, 1111, 9999])))
            index += 1
    one_side = st.lists(st.integers(1, 10_000 * (index + 1500)), max_size=6)
    kept = draw(st.integers(0, len(common)))
    dropped = set(draw(st.lists(st.sampled_from(common), max_size=2))) if common else set()
    mine = sorted({*(one for one in common[:kept] if one not in dropped), *draw(one_side)})
    return sorted({*common, *draw(one_side)}), mine


@given(histories())
def test_faithful_is_the_rule_as_it_is_written_down(case: tuple[list[int], list[int]]) -> None:
    """DI-73, DI-74, DI-75, DI-76, DI-79."""
    theirs, mine = case
    found = walk_back(theirs, mine)
    assert (found.found, found.windows) == by_the_book(theirs, mine)


@given(
    count=st.integers(1, 4000), common=st.integers(0, 4000), tail=st.integers(1, 1200), rnd=st.sampled_from([5, 9999])
)
def test_41_the_number_of_windows(count: int, common: int, tail: int, rnd: int) -> None:
    common = min(count, common)
    mine = leader(common) + dirty(common + 1, rnd, tail)
    span = max(count, common + tail)
    assert walk_back(leader(count), mine).windows <= -(-span // 1000) + 1


@given(histories(), st.sets(st.integers(0, 40), max_size=2))
def test_safe_is_the_longest_equal_prefix(case: tuple[list[int], list[int]], changed: set[int]) -> None:
    theirs, mine = (
        list(lines(case[0])),
        list(lines(case[1], changed=[case[1][at] // 10_000 for at in changed if at < len(case[1])])),
    )
    common = 0
    for one, other in zip(mine, theirs, strict=False):
        if one != other:
            break
        common = one[0].end
    assert safe_point(iter(mine), iter(theirs), Offset(0)) == common


# what a leader's folder says of a replica: by each rule, over real files


def log_of(folder: Path, mode: CheckAndFix = "safe", *, past_damage: bool = False) -> DisterLog:
    return DisterLog(
        log_id=LogId("dister", "test"), path=str(folder), check_and_fix=mode, past_damage=past_damage, chunk_bytes=200
    )


@pytest.mark.parametrize("mode", ["safe", "off"])
def test_safe_and_by_hand_it_is_the_longest_prefix(tmp_path: Path, mode: CheckAndFix) -> None:
    log = log_of(tmp_path, mode)
    assert log.common_offset(lines(leader(5))) == 0  # of a leader with nothing in it
    write_log(tmp_path, leader(60))
    assert log.common_offset(lines(leader(20))) == leader(20)[-1] + 1
    assert log.common_offset(lines(leader(10) + dirty(11, 5, 30))) == leader(10)[-1] + 1
    assert log.common_offset(lines(dirty(1, 5, 30))) == 0
    assert log.common_offset(iter(())) == 0


def test_what_overrules_and_what_has_to_be_proven(tmp_path: Path) -> None:
    modes: tuple[CheckAndFix, ...] = ("safe", "faithful", "off")
    logs = [log_of(tmp_path, mode) for mode in modes]
    assert [log.traits.overrules for log in logs] == [True, True, False]
    assert [log.traits.proves_all for log in logs] == [True, False, True]


def test_over_several_files_and_no_further_than_it_has_to_read(tmp_path: Path) -> None:
    ids = leader(3, first=99_998) + leader(3, first=199_999)
    write_log(tmp_path, ids)
    taken = 0

    def counted() -> Iterator[tuple[OffsetRange, bytes]]:
        nonlocal taken
        for record in lines(ids[:4] + dirty(200_000, 5, 100)):
            taken += 1
            yield record

    assert log_of(tmp_path).common_offset(counted()) == ids[3] + 1
    assert taken == 5
    (tmp_path / ENTRY_LOG / "0/0").unlink()  # what is missing contradicts nothing
    assert log_of(tmp_path).common_offset(lines(ids[:5])) == ids[4] + 1
    assert log_of(tmp_path).common_offset(lines(ids[:3] + dirty(100_500, 5))) == ids[2] + 1


def test_damage_is_nobodys_entry(tmp_path: Path) -> None:
    """What the replica passed, and the leader still has so, is no difference; what it replicated before is one."""
    ids = leader(30)
    path = tmp_path / ENTRY_LOG / "0/0"
    whole = write_log(tmp_path, ids)
    broken = line(ids[9])
    path.write_bytes(whole.replace(broken, b"{" + broken[1:]))
    with pytest.raises(CorruptRecord):
        log_of(tmp_path).common_offset(lines(ids))
    log = log_of(tmp_path, past_damage=True)
    with_hole = [record for record in lines(ids) if record[0].end != ids[9] + 1]
    assert log.common_offset(with_hole) == ids[-1] + 1
    assert log.common_offset(lines(ids)) == ids[8] + 1
