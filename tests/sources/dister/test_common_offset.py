"""What a leader's folder says of a replica: by each rule, over real files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sources.dister.files.layout import ENTRY_LOG
from sources.dister.log import DisterLog
from sources.errors import CorruptRecord
from sources.offsets import LogId, OffsetRange
from sources.options import CheckAndFix
from tests.dister_folders import dirty, leader, line, write_log
from tests.spans import span


def log_of(folder: Path, mode: CheckAndFix = "safe", *, past_damage: bool = False) -> DisterLog:
    return DisterLog(
        log_id=LogId("dister", "test"), path=str(folder), check_and_fix=mode, past_damage=past_damage, chunk_bytes=200
    )


def replica(ids: Sequence[int]) -> Iterator[tuple[OffsetRange, bytes]]:
    at = 0
    for entry_id in ids:
        yield span(at, entry_id + 1), line(entry_id)
        at = entry_id + 1


@pytest.mark.parametrize("mode", ["safe", "off"])
def test_safe_and_by_hand_it_is_the_longest_prefix(tmp_path: Path, mode: CheckAndFix) -> None:
    log = log_of(tmp_path, mode)
    assert log.common_offset(replica(leader(5))) == 0  # of a leader with nothing in it
    write_log(tmp_path, leader(60))
    assert log.common_offset(replica(leader(20))) == leader(20)[-1] + 1
    assert log.common_offset(replica(leader(10) + dirty(11, 5, 30))) == leader(10)[-1] + 1
    assert log.common_offset(replica(dirty(1, 5, 30))) == 0
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
        for record in replica(ids[:4] + dirty(200_000, 5, 100)):
            taken += 1
            yield record

    assert log_of(tmp_path).common_offset(counted()) == ids[3] + 1
    assert taken == 5


def test_missing_first_files_contradict_nothing(tmp_path: Path) -> None:
    ids = leader(3, first=99_998) + leader(3, first=199_999)
    write_log(tmp_path, ids)
    (tmp_path / ENTRY_LOG / "0/0").unlink()
    assert log_of(tmp_path).common_offset(replica(ids[:5])) == ids[4] + 1
    assert log_of(tmp_path).common_offset(replica(ids[:3] + dirty(100_500, 5))) == ids[2] + 1


def test_damage_is_nobodys_entry(tmp_path: Path) -> None:
    """What the replica passed, and the leader still has so, is no difference; what it replicated before is one."""
    ids = leader(30)
    path = tmp_path / ENTRY_LOG / "0/0"
    whole = write_log(tmp_path, ids)
    broken = line(ids[9])
    path.write_bytes(whole.replace(broken, b"{" + broken[1:]))
    with pytest.raises(CorruptRecord):
        log_of(tmp_path).common_offset(replica(ids))
    log = log_of(tmp_path, past_damage=True)
    with_hole = [record for record in replica(ids) if record[0].end != ids[9] + 1]
    assert log.common_offset(with_hole) == ids[-1] + 1
    assert log.common_offset(replica(ids)) == ids[8] + 1
