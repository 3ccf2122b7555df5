"""How often a commit is tried again, and how long is waited between tries."""

from itertools import pairwise

import pytest

from sinks.delta import commits
from sinks.delta.commits import doubled_s, retrying
from sinks.delta.kernel import KernelConflict
from sources.errors import ReplicaError


def test_a_commit_is_tried_again_until_it_takes() -> None:
    conflicts = [KernelConflict("first"), KernelConflict("second")]

    def commit(version: int) -> int:
        if conflicts:
            raise conflicts.pop()
        return version

    assert retrying(ReplicaError)(commit, 7) == 7
    assert not conflicts


def test_one_that_is_always_refused_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "ATTEMPTS", 3)
    tried: list[int] = []
    with pytest.raises(ReplicaError, match="a conflict at each of 3 attempts: ConcurrentWrite") as caught:
        for attempt in retrying(ReplicaError):
            with attempt:
                tried.append(len(tried))
                raise KernelConflict("ConcurrentWrite")
    assert tried == [0, 1, 2]
    assert isinstance(caught.value.__cause__, KernelConflict)


def test_what_is_no_conflict_is_raised_at_once() -> None:
    tried: list[int] = []
    with pytest.raises(OSError, match="disk"):
        for attempt in retrying(ReplicaError):
            with attempt:
                tried.append(len(tried))
                raise OSError("disk")
    assert tried == [0]


def test_waits_double_up_to_the_most_however_long_a_master_is_away() -> None:
    waits = [doubled_s(1.0, tries, 30.0) for tries in range(5000)]
    assert waits[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert set(waits[6:]) == {30.0}
    assert all(later == 2 * wait for wait, later in pairwise(doubled_s(0.5, tries, 1e6) for tries in range(20)))
