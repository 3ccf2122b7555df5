"""How often a commit is tried again, and how long is waited between tries."""

from itertools import pairwise
from unittest.mock import Mock, call

import pytest

from sinks.delta import commits
from sinks.delta.commits import doubled_s, retrying
from sinks.delta.kernel import KernelConflict
from sources.errors import ReplicaError


def test_a_commit_is_tried_again_until_it_takes() -> None:
    commit = Mock(side_effect=[KernelConflict("first"), KernelConflict("second"), "taken"])
    assert retrying(ReplicaError)(commit, 7) == "taken"
    assert commit.mock_calls == [call(7)] * 3


def test_one_that_is_always_refused_is_the_callers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "ATTEMPTS", 3)
    commit = Mock(side_effect=KernelConflict("ConcurrentWrite"))
    with pytest.raises(ReplicaError, match="a conflict at each of 3 attempts: ConcurrentWrite") as caught:
        retrying(ReplicaError)(commit)
    assert commit.call_count == 3
    assert isinstance(caught.value.__cause__, KernelConflict)


def test_what_is_no_conflict_is_raised_at_once() -> None:
    commit = Mock(side_effect=OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        retrying(ReplicaError)(commit)
    commit.assert_called_once()


def test_waits_double_up_to_the_most_however_long_a_master_is_away() -> None:
    waits = [doubled_s(1.0, tries, 30.0) for tries in range(5000)]
    assert waits[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert set(waits[6:]) == {30.0}
    assert all(later == 2 * wait for wait, later in pairwise(doubled_s(0.5, tries, 1e6) for tries in range(20)))
