"""Turns to read that are taken side by side, and given up in time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from sinks.batch.reading_turns import Turn, entered, leave
from sources.errors import MasterSilent, MasterUnreachable
from tests.patience import PATIENCE_S, eventually

SOON_S = 0.2


class Asked:
    """A turn that comes once it `may_come`; `seen` tells what became of it."""

    def __init__(self, *, comes: bool = True, error: Exception | None = None) -> None:
        self.may_come = threading.Event()
        self.error = error
        self.seen: list[object] = []
        if comes:
            self.may_come.set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        assert self.may_come.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.seen.append("entered")
        try:
            yield
        except BaseException as error:
            self.seen.append(type(error))
            raise
        self.seen.append("left")


def test_where_nobody_is_to_be_asked_no_thread_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    assert entered([nullcontext(), nullcontext()], 0.0) == [None, None]


def test_they_are_asked_side_by_side() -> None:
    together = threading.Barrier(5)

    @contextmanager
    def meeting() -> Iterator[None]:
        together.wait(PATIENCE_S)
        yield

    assert entered([meeting() for _ in range(5)], None) == [None] * 5


def test_a_late_turn_is_given_up_and_given_back() -> None:
    late, quick = Asked(comes=False), Asked()
    turns = [late.turn(), quick.turn()]
    failures = entered(turns, SOON_S)
    assert [type(failure) for failure in failures] == [MasterSilent, type(None)]
    assert isinstance(failures[0], MasterSilent)
    assert failures[0].is_transient
    late.may_come.set()
    assert eventually(lambda: late.seen == ["entered", "left"])
    assert quick.seen == ["entered"]


def test_late_failure_is_ignored() -> None:
    late = Asked(comes=False, error=MasterUnreachable("closed"))
    (failure,) = entered([late.turn()], SOON_S)
    assert isinstance(failure, MasterSilent)
    late.may_come.set()
    assert eventually(lambda: not any(thread.name == "turn to read" for thread in threading.enumerate()))
    assert late.seen == []


@pytest.mark.parametrize("error", [None, MasterSilent("nothing came"), KeyboardInterrupt()])
def test_leaving_passes_the_error_in_and_raises_nothing(error: BaseException | None) -> None:
    asked = Asked()
    turn: Turn = asked.turn()
    assert entered([turn], None) == [None]
    leave(turn, error)
    assert asked.seen == ["entered", "left" if error is None else type(error)]
