"""An answer that many want is asked for once; no failure is remembered."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pytest

from sources.access import remembered
from sources.access.remembered import Remembered
from sources.errors import MasterUnreachable
from tests.patience import PATIENCE_S


def test_many_who_want_it_at_once_ask_once_and_share_what_comes() -> None:
    """Also a failure, which is asked for again; and after a failure of what was said, nothing is believed."""
    may_answer, asked = threading.Event(), list[str]()

    def ask(key: str) -> int:
        asked.append(key)
        assert may_answer.wait(PATIENCE_S)
        if len(asked) == 1:
            raise MasterUnreachable("away")
        return len(asked)

    told = Remembered(ask)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(told.value, "a") for _ in range(8)]
        assert told.known("a") is None
        may_answer.set()
        for one in waiting:
            with suppress(MasterUnreachable):  # or it came after that
                assert one.result() == 2
    assert len(asked) <= 2
    assert told.value("a") == told.value("a") == told.known("a") == 2
    assert told.value("b") == 3
    told.forget()
    assert told.known("a") is None
    assert told.value("a") == 4


def test_what_was_said_is_believed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    told = Remembered[str, int](lambda _: next(numbers))
    assert told.value("a") == 1
    monkeypatch.setattr(remembered, "FRESH_S", 0.0)
    assert told.known("a") == 1
    assert told.value("a") == 2
    monkeypatch.setattr(remembered, "KNOWN_S", 0.0)
    assert told.known("a") is None
