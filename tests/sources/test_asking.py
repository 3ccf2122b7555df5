"""Questions asked side by side by as few threads as do."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count

import pytest

from sources.access import kept
from sources.access.kept import IDLE_S, MOST, KeptConnections, Remembered
from sources.access.spread import Spread
from sources.errors import MasterSilent, MasterUnreachable
from sources.group.asking import FEW, Asker, Key
from sources.steps import Awaited, Steps
from tests.patience import PATIENCE_S, wait_until


def answers(asker: Asker[Key], count: int) -> dict[Key, object]:
    found: dict[Key, object] = {}
    wait_until(lambda: found.update({one.key: one.value for one in asker.take(1.0)}) or len(found) >= count, "answers")
    return found


def test_a_key_is_asked_once_until_its_answer_is_taken() -> None:
    asker: Asker[int] = Asker()
    assert asker.take(0) == []
    assert asker.ask(1, lambda: "one")
    assert asker.wait(PATIENCE_S)
    assert not asker.ask(1, lambda: "again")
    assert asker.is_asking(1)
    assert answers(asker, 1) == {1: "one"}
    assert not asker.is_asking(1)
    assert asker.ask(1, lambda: "again")


def test_errors_are_answers() -> None:
    def fail(error: Exception) -> object:
        raise error

    asker: Asker[int] = Asker()
    errors = {0: MasterSilent("nothing"), 1: LookupError("defect")}
    for number, error in errors.items():
        asker.ask(number, partial(fail, error))
    assert answers(asker, 2) == errors


def test_a_question_that_waits_for_a_thread_has_not_been_asked() -> None:
    asker: Asker[int] = Asker()
    done = threading.Event()
    for number in range(FEW):
        asker.ask(number, lambda: done.wait(PATIENCE_S))
    asker.ask(FEW, lambda: asker.asked_s(FEW))
    wait_until(lambda: asker.asked_s(FEW - 1) is not None, "the threads")
    assert asker.asked_s(FEW) is None
    free_s = time.monotonic()
    done.set()
    asked_s = answers(asker, FEW + 1)[FEW]
    assert isinstance(asked_s, float)
    assert asked_s >= free_s
    assert asker.asked_s(FEW) is None


def test_those_that_get_no_answer_hold_up_nobody() -> None:
    """However many they are, and whoever was asked first."""
    asker: Asker[int] = Asker()
    done = threading.Event()
    silent, others = range(5 * FEW), range(100, 110)
    for number in silent:
        asker.ask(number, lambda: done.wait(PATIENCE_S))
    for number in others:
        asker.ask(number, lambda: "here")
    assert answers(asker, len(others)) == dict.fromkeys(others, "here")
    done.set()
    assert set(answers(asker, len(silent))) == set(silent)
    wait_until(lambda: asker._threads == FEW, "the end of the other threads")


def test_questions_in_steps_need_no_thread_and_hold_up_nobody() -> None:
    """Neither does one that is never answered, or that comes in pieces; one whose steps do not do gets a thread."""
    asker: Asker[str] = Asker()
    wanted = {"silent": 0.05, "slow": PATIENCE_S, "fast": PATIENCE_S, "more": PATIENCE_S}
    with ExitStack() as opened:
        ends = {key: [opened.enter_context(end) for end in socket.socketpair()] for key in wanted}

        def steps(key: str) -> Steps[object]:
            come = b""
            while len(come) < 2:
                yield Awaited(ends[key][0], time.monotonic() + wanted[key])
                come += ends[key][0].recv(2)
            return None if key == "more" else come

        def ask(key: str, come: bytes) -> None:
            asker.ask(key, threading.current_thread, steps(key))
            ends[key][1].sendall(come)

        for key, come in (("silent", b""), ("slow", b"1"), ("fast", b"12")):
            ask(key, come)
        found = answers(asker, 2)
        assert isinstance(found["silent"], TimeoutError)
        assert found["fast"] == b"12"
        assert asker._threads == 0
        ask("more", b"12")
        ends["slow"][1].sendall(b"2")
        found = answers(asker, 2)
        assert found["slow"] == b"12"
        assert found["more"] is not threading.current_thread()


# connections that are kept between questions


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


# an answer that many want is asked for once; no failure is remembered


def test_many_ask_once_and_believe_it_for_a_moment_unless_something_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer, numbers = threading.Event(), count()

    def ask(_key: str) -> int:
        assert may_answer.wait(PATIENCE_S)
        if not (number := next(numbers)):
            raise MasterUnreachable("away")
        return number

    monkeypatch.setattr(kept, "FRESH_S", PATIENCE_S)
    told = Remembered(ask)
    may_answer.set()
    with pytest.raises(MasterUnreachable):
        told.value("a")
    may_answer.clear()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(told.value, "a") for _ in range(8)]
        assert told.known("a") is None
        may_answer.set()
        assert {one.result() for one in waiting} == {1} == {told.known("a")}
    assert told.value("b") == 2
    told.forget()
    assert told.known("a") is None
    monkeypatch.setattr(kept, "FRESH_S", 0.0)
    assert [told.value("a"), told.value("a"), told.known("a")] == [3, 4, 4]
    monkeypatch.setattr(kept, "KNOWN_S", 0.0)
    assert told.known("a") is None


# moments of their own for many who would do something at once


def test_each_has_a_moment_of_its_own_and_one_alone_need_not_wait() -> None:
    spread = Spread(0.5)
    assert [spread.moment_s(10.0) for _ in range(3)] == [10.0, 10.5, 11.0]
    assert spread.moment_s(20.0) == 20.0
    assert spread.moment_s(15.0) == 20.5
    assert Spread(0.5).delay_s() == 0.0
