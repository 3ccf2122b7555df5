"""Connections that are kept between questions."""

import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sources.access.kept import IDLE_S, MOST, KeptConnections
from sources.errors import MasterSilent
from tests.patience import PATIENCE_S


class Connected:
    """A connection of which is known that it is open, has broken, or was closed."""

    def __init__(self) -> None:
        self.has_broken = self.is_closed = False

    def is_whole(self) -> bool:
        return not self.has_broken


class Cache:
    """`made` are all its connections, in order."""

    def __init__(self) -> None:
        self.made: list[Connected] = []
        self.connections = KeptConnections[str, Connected](self._connect)

    @contextmanager
    def _connect(self, peer: str) -> Iterator[Connected]:
        mine = Connected()
        self.made.append(mine)
        try:
            yield mine
        finally:
            mine.is_closed = True

    def ask(self, peer: str = "one") -> Connected:
        with self.connections.kept(peer) as connection:
            return connection

    @property
    def closed(self) -> list[bool]:
        return [one.is_closed for one in self.made]


def test_questions_share_a_connection_until_it_breaks_or_a_question_fails() -> None:
    cache = Cache()
    assert cache.ask() is cache.ask() is cache.made[0]
    assert cache.ask("other") is cache.made[1]
    cache.made[0].has_broken = True
    assert cache.ask() is cache.made[2]
    assert cache.closed == [True, False, False]
    with pytest.raises(MasterSilent), cache.connections.kept("one"):
        raise MasterSilent("no answer")
    assert cache.closed == [True, False, True]
    assert cache.ask() is cache.made[3]


def test_concurrent_questions_have_a_connection_each_and_so_many_are_kept() -> None:
    cache, count = Cache(), MOST + 3
    together = threading.Barrier(count)

    def question() -> None:
        with cache.connections.kept("one"):
            together.wait(PATIENCE_S)

    with ThreadPoolExecutor(count) as pool:
        for asked in [pool.submit(question) for _ in range(count)]:
            asked.result()
    assert len(cache.made) == count
    assert sum(cache.closed) == 3


def test_those_that_nobody_asks_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache()
    cache.ask()
    later_s = time.monotonic() + IDLE_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    cache.ask("other")
    assert cache.closed == [True, False]
    cache.connections.close()
    assert cache.closed == [True, True]


def test_they_take_a_part_of_the_files_that_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (80, 80))
    cache = Cache()
    for number in range(12):
        cache.ask(str(number))
    assert cache.closed == [False] * 10 + [True] * 2
    cache.made[0].has_broken = True
    cache.ask("0")  # the broken one gives way
    assert cache.closed == [True] + [False] * 9 + [True] * 2 + [False]
