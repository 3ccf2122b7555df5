"""sinks.delta.commits: what one call raises keeps nobody else waiting, and nobody is served twice."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from sinks.delta.commits import GroupCommit
from tests.patience import wait_until


def test_those_that_wait_are_served_together_by_the_next_when_one_fails() -> None:
    served: list[list[str]] = []
    goes_on = threading.Event()

    def commit(wanted: Sequence[str]) -> None:
        if not served:
            served.append([])
            goes_on.wait(60)
            raise KeyboardInterrupt
        served.append([*wanted])

    group = GroupCommit(commit)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(group.take, "a")
        wait_until(lambda: served == [[]], "the first to begin")
        others = [pool.submit(group.take, name) for name in "bcd"]
        wait_until(lambda: len(group._waiting) == 4, "all to wait")
        goes_on.set()
        for other in others:
            other.result()
        with pytest.raises(KeyboardInterrupt):
            first.result()
    assert [sorted(names) for names in served] == [[], ["a", "b", "c", "d"]]
