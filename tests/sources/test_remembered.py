"""An answer that many want is asked for once; no failure is remembered."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from sources.access import kept
from sources.access.kept import Remembered
from sources.errors import MasterUnreachable
from tests.patience import PATIENCE_S


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
