"""Connections that are kept between questions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sources.errors import MasterSilent
from sources.kafka.cluster import connection_cache as module
from sources.kafka.cluster.connection_cache import IDLE_S, MOST, has_answered, kept
from sources.kafka.cluster.settings import KafkaSettings
from tests.patience import PATIENCE_S

ONE, OTHER = KafkaSettings(servers=("one:9092",)), KafkaSettings(servers=("other:9092",))


class Connected:
    """For a cluster: one of which is known that it is connected, or has broken, or was closed."""

    def __init__(self) -> None:
        self.has_broken = self.is_closed = False

    def is_whole(self) -> bool:
        return not self.has_broken


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Connected]:
    """All that were made, in order."""
    found: list[Connected] = []

    @contextmanager
    def connected(settings: KafkaSettings) -> Iterator[Connected]:
        found.append(Connected())
        mine = found[-1]
        try:
            yield mine
        finally:
            mine.is_closed = True

    monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(module, "_waiting", {})
    return found


def ask(settings: KafkaSettings = ONE) -> object:
    with kept(settings) as cluster:
        return cluster


def test_questions_share_a_connection(made: list[Connected]) -> None:
    assert ask() is ask() is made[0]
    assert ask(OTHER) is made[1]
    assert [one.is_closed for one in made] == [False, False]


def test_what_broke_meanwhile_is_made_anew(made: list[Connected]) -> None:
    ask()
    made[0].has_broken = True
    assert ask() is made[1]
    assert [one.is_closed for one in made] == [True, False]


def test_none_is_kept_over_which_a_question_has_failed(made: list[Connected]) -> None:
    with pytest.raises(MasterSilent), kept(ONE):
        raise MasterSilent("no answer")
    assert made[0].is_closed
    assert ask() is made[1]


def test_concurrent_questions_have_a_connection_each_and_so_many_are_kept(made: list[Connected]) -> None:
    count = MOST + 3
    together = threading.Barrier(count)

    def question() -> None:
        with kept(ONE):
            together.wait(PATIENCE_S)

    with ThreadPoolExecutor(count) as pool:
        for asked in [pool.submit(question) for _ in range(count)]:
            asked.result()
    assert len(made) == count
    assert sum(one.is_closed for one in made) == 3


def test_one_that_nobody_asks_any_more_is_closed(made: list[Connected], monkeypatch: pytest.MonkeyPatch) -> None:
    ask()
    later_s = time.monotonic() + IDLE_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    ask(OTHER)
    assert [one.is_closed for one in made] == [True, False]


def test_who_has_answered_once_is_known(made: list[Connected], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then that nobody listens may be a restart, which is waited out."""
    monkeypatch.setattr(module, "_answered", set())
    ask(ONE)
    assert (has_answered(ONE), has_answered(OTHER)) == (True, False)
