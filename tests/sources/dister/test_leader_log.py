"""The log that an embedded leader writes, byte for byte, and what becomes of it: elections, kills, full disks."""

import errno
import os
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from sources.dister.embedded.leader import Workload
from sources.dister.embedded.leader_log import entries_of
from sources.errors import MasterError, MasterRefused
from tests.dister.odd_leader import OddLog

LOG = "dister.entry.log"


def written(folder: Path, batch: str = "0/0") -> bytes:
    return (folder / LOG / batch).read_bytes()


def batches(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder / LOG)) for path in (folder / LOG).glob("*/*"))


def ids(folder: Path) -> list[int]:
    return [entry.id for entry in entries_of(folder)]


def leader_at(folder: Path, *indexes: int) -> OddLog:
    """A leader that has written one entry for each index, with 1 as its random part."""
    leader = OddLog(folder)
    for index in indexes:
        leader.skip_to(index)
        leader.set({"k": str(index)}, rnd=1)
    return leader


def test_lines_are_dister_s_own(tmp_path: Path) -> None:
    """DI-40, DI-25: the lines that were seen of dister. And DI-16: a leader without followers answers at once."""
    with OddLog(tmp_path) as leader:
        assert leader.set({"a": "x"}, rnd=7) == 10007
        assert written(tmp_path) == b'10007,300,{"a":"x"}\n'  # it is in the file when the call returns
        assert leader.remove(["a"], rnd=1) == 20001
    assert written(tmp_path) == b'10007,300,{"a":"x"}\n20001,310,["a"]\n'


def test_the_seed_is_the_chance_in_the_ids(tmp_path: Path) -> None:
    """DI-14."""
    made = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with OddLog(tmp_path / name, seed=seed) as leader:
            made[name] = [leader.set({"k": "v"}) for _ in range(50)]
    assert made["a"] == made["b"] != made["c"]
    assert [one // 10_000 for one in made["a"]] == list(range(1, 51))
    assert len({one % 10_000 for one in made["a"]}) > 40


def test_writers_come_one_after_another(tmp_path: Path) -> None:
    """DI-11: of 100 threads."""
    answered: list[int] = []
    with OddLog(tmp_path) as leader:

        def write(number: int) -> None:
            answered.extend(leader.set({f"k{number}": str(turn)}) for turn in range(10))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = [int(line.partition(b",")[0]) for line in written(tmp_path).splitlines()]
    assert len(lines) == 1000
    assert all(before < after for before, after in pairwise(lines))
    assert sorted(answered) == lines


@pytest.mark.job
def test_two_processes_come_one_after_another(tmp_path: Path) -> None:
    """DI-11: each finds the end where the other one left it."""
    program = (
        "import sys, pathlib; from sources.dister.embedded.leader_log import LeaderLog\n"
        "leader = LeaderLog(pathlib.Path(sys.argv[1]))\n"
        "for number in range(200): leader.set({'k': str(number)})\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    started = [subprocess.Popen(command, cwd=Path(__file__).parents[3]) for _ in range(2)]
    assert [process.wait(60) for process in started] == [0, 0]
    assert [index // 10_000 for index in ids(tmp_path)] == list(range(1, 401))
    assert written(tmp_path).count(b"\n") == 400


@pytest.mark.parametrize("change", [None, "a", b"a", 7, {"a": 1}, {"a": None}, {1: "a"}, ["a", 1], [["a"]], {"a": {}}])
def test_what_is_no_string_is_refused_and_uses_no_id(tmp_path: Path, change: object) -> None:
    """DI-13."""
    with OddLog(tmp_path) as leader:
        leader.set({"a": "x"}, rnd=0)
        with pytest.raises(MasterRefused, match="strings only"):
            leader.write(change)  # type: ignore[arg-type]  # that is the test
        with pytest.raises(MasterRefused):
            leader.write_many([{"b": "y"}, change])  # type: ignore[list-item]  # as above
        with pytest.raises(MasterRefused):
            leader.fail(change)  # type: ignore[arg-type]  # as above
        assert leader.set({"c": "z"}, rnd=0) == 20000
    assert written(tmp_path) == b'10000,300,{"a":"x"}\n20000,300,{"c":"z"}\n'


def test_a_failed_write_uses_its_id_and_is_stored_nowhere(tmp_path: Path) -> None:
    """DI-21, DI-22, and scenario 3: indexes jump."""
    with OddLog(tmp_path) as leader:
        leader.set({"a": "x"}, rnd=0)
        failed = leader.fail({"a": "lost"}, rnd=5)
        assert (failed.id, failed.line) == (20005, b'20005,300,{"a":"lost"}')
        assert leader.last_id == 10000
        assert leader.set({"a": "y"}, rnd=0) == 30000
    assert written(tmp_path) == b'10000,300,{"a":"x"}\n30000,300,{"a":"y"}\n'


def test_52_after_a_restart_ids_go_on_from_the_log(tmp_path: Path) -> None:
    """D-11: dister begins at index 1 again where its data file is missing."""
    with leader_at(tmp_path, 7, 100_005):
        pass
    with OddLog(tmp_path) as leader:
        assert leader.last_id == 1_000_050_001
        assert leader.set({"a": "x"}, rnd=0) == 1_000_060_000


def test_a_kill_in_a_line_loses_that_line_alone(tmp_path: Path) -> None:
    """D-8: dister glues the next entry to it, and loses both."""
    with OddLog(tmp_path) as leader:
        leader.set({"a": "x"}, rnd=0)
        leader.append_torn({"a": "y" * 200_000}, size_bytes=100_000, rnd=0)
    with OddLog(tmp_path) as leader:
        assert leader.last_id == 10000
        leader.set({"a": "z"}, rnd=3)
    assert written(tmp_path) == b'10000,300,{"a":"x"}\n20003,300,{"a":"z"}\n'


def fails_after(size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes so many more bytes of the next write, and is full then."""
    left = [size_bytes]
    write = os.write

    def write_some(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write(descriptor, data[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", write_some)


@pytest.mark.parametrize("size_bytes", [0, 1, 19])
def test_a_full_disk_is_said_and_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """DI-42, D-9: dister goes on as if it had been written."""
    with OddLog(tmp_path) as leader:
        leader.set({"a": "x"}, rnd=0)
        with monkeypatch.context() as full:
            fails_after(size_bytes, full)
            with pytest.raises(MasterError, match="cannot write its log") as caught:
                leader.set({"a": "y"}, rnd=0)
        assert caught.value.found == "No space left on device"
        assert leader.last_id == 10000
        leader.set({"a": "z"}, rnd=0)
    assert written(tmp_path) == b'10000,300,{"a":"x"}\n30000,300,{"a":"z"}\n'


@pytest.mark.parametrize(
    ("last_id", "kept"),
    [
        (0, []),
        (9_999, []),
        (10_001, [10_001]),
        (15_000, [10_001]),  # an id that is not there
        (999_990_001, [10_001, 999_990_001]),
        (1_000_000_000, [10_001, 999_990_001]),
        (1_000_000_001, [10_001, 999_990_001, 1_000_000_001]),  # the first of a batch: D-4
        (1_000_010_001, [10_001, 999_990_001, 1_000_000_001, 1_000_010_001]),
        (2**62, [10_001, 999_990_001, 1_000_000_001, 1_000_010_001, 2_000_000_001]),
    ],
)
def test_38_39_after_a_lost_election_nothing_above_the_point_is_left(
    tmp_path: Path, last_id: int, kept: list[int]
) -> None:
    """D-3, D-4, DI-85, DI-89: in any file, and the point itself stays."""
    with leader_at(tmp_path, 1, 99_999, 100_000, 100_001, 200_000) as node:
        node.truncate_to(last_id)
        assert ids(tmp_path) == kept
        assert node.last_id == (kept[-1] if kept else 0)
        assert batches(tmp_path) == sorted({f"0/{one // 10**9}" for one in kept})


def test_a_workload_sets_removes_and_fails(tmp_path: Path) -> None:
    workload = Workload(1)
    with OddLog(tmp_path, seed=1) as leader:
        for _ in range(2000):
            workload.write(leader)
    entries = list(entries_of(tmp_path))
    acts = Counter(entry.act for entry in entries)
    assert set(acts) == {300, 310}
    assert acts[300] > acts[310] > 100
    assert 0 < 2000 - len(entries) < 100  # those that failed
    assert any(entry.keys is not None and len(entry.keys) > 1 for entry in entries)
