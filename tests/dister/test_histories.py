"""Random histories of leader changes, dirty tails, torn lines and crashes: in the end the replica is the leader."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sources.dister.check_and_fix import Line, faithful_point, safe_point
from sources.offsets import Offset, OffsetRange
from tests.dister.histories import History, Move, histories
from tests.dister.odd_leader import OddLeader
from tests.dister.twin import Twin

_NUMBERS = itertools.count()
PROFILE = settings.get_profile(settings.get_current_profile_name())
UNSHRUNK = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking would take minutes: the history is told as it was
    suppress_health_check=list(HealthCheck),
)


def run(spark: SparkSession, folder: Path, moves: Sequence[Move]) -> None:
    folder /= f"history-{next(_NUMBERS)}"
    nodes = [folder / name for name in ("one", "other")]
    twin = Twin(spark, nodes[0], folder / "lake", "group")
    with (
        OddLeader(nodes[0], group=twin.group, seed=1) as one,
        OddLeader(nodes[1], group=twin.group, seed=2) as other,
    ):
        History(twin, one, other).run(moves)


@settings(UNSHRUNK, max_examples=5)
@given(moves=histories(8))
def test_the_replica_ends_as_the_leader(session: SparkSession, tmp_path: Path, moves: list[Move]) -> None:
    """DI-22."""
    run(session, tmp_path, moves)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@settings(UNSHRUNK, max_examples=20)
@given(moves=histories(25))
def test_long_histories(session: SparkSession, tmp_path: Path, moves: list[Move]) -> None:
    run(session, tmp_path, moves)


# --- the two rules alone, over many histories

Log = tuple[tuple[int, str], ...]
"""Ids, and which node wrote the entry."""


@st.composite
def leaders(draw: st.DrawFn) -> list[Log]:
    """Whose log the replica meets, one after the other: each has a prefix of an earlier one, and entries of its own.

    Random parts differ between any two of them, as they do in all but one in ten thousand cases.
    """
    logs: list[Log] = [()]
    for number in range(draw(st.integers(1, 6))):
        base = draw(st.sampled_from(logs))
        kept = base[: draw(st.integers(0, len(base)))]
        index = kept[-1][0] // 10_000 if kept else 0
        mine = []
        for jump in draw(st.lists(st.sampled_from([1, 1, 1, 2, 30, 999, 1001]), min_size=1, max_size=40)):
            index += jump
            mine.append((index * 10_000 + 7 * draw(st.integers(0, 1400)) + number, f"{number}"))
        logs.append((*kept, *mine))
    return logs[1:]


def lines(log: Log) -> Iterator[Line]:
    at = 0
    for entry_id, writer in log:
        yield OffsetRange(Offset(at), Offset(entry_id + 1)), f"{entry_id},{writer}\n".encode()
        at = entry_id + 1


def fixed(replica: Log, leader: Log, mode: str) -> Log:
    """What is left of the replica."""
    if mode == "safe":
        common = safe_point(lines(replica), lines(leader), Offset(0))
    else:
        common, _ = faithful_point(lines(replica), lines(leader))
    return tuple(entry for entry in replica if entry[0] < common)


@pytest.mark.parametrize("mode", ["safe", "faithful"])
@settings(max_examples=max(50, PROFILE.max_examples))
@given(data=st.data())
def test_both_rules_end_with_the_leaders_log(mode: str, data: st.DataObject) -> None:
    """DI-70: where histories share a prefix and nothing else, whatever the order, and wherever catching up stopped."""
    replica: Log = ()
    leader: Log = ()
    for leader in data.draw(leaders()):
        kept = fixed(replica, leader, mode)
        assert kept == leader[: len(kept)]
        replica = leader[: data.draw(st.integers(len(kept), len(leader)))]
    kept = fixed(replica, leader, mode)
    assert kept + leader[len(kept) :] == leader
    if mode == "safe":
        assert kept == replica
