"""Questions asked side by side by as few threads as do."""

import socket
import threading
import time
from contextlib import ExitStack
from functools import partial

from sources.errors import MasterSilent
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


def test_few_threads_answer_many_questions() -> None:
    asker: Asker[int] = Asker()
    names: set[str] = set()
    for number in range(1000):
        asker.ask(number, lambda: names.add(str(threading.get_ident())))
    assert len(answers(asker, 1000)) == 1000
    assert len(names) < 100  # a few, or somewhat more on a machine that lets them wait
