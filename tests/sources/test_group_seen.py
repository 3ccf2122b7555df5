"""What the planner's process tells the job of the masters, and when it looks for the job alone."""

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from sources.bounds import EARLIEST
from sources.errors import LogtwinError
from sources.group import standing
from sources.group.poller import FORGET_AFTER_S, POLL_AFTER_S, TELL_EVERY_S, Poller, PollRequest, Teller
from sources.group.standing import UNLISTED, ListedLog, Standing, path_beside, seen_file_at
from sources.master import Holding, LogQuery
from sources.offsets import LogId, Offset
from sources.steps import Awaited, Steps
from tests.patience import wait_until
from tests.sources.scripted_log import ScriptedLog
from tests.spans import span

A, B = "rocketmq/a", "rocketmq/b"


def say(folder: Path, *listed: str, turn: int = 1) -> dict[str, ListedLog]:
    places = {log_id: ListedLog(Offset(0), turn) for log_id in listed}
    standing.write(folder / "standing", Standing(places, 10**9))
    return places


def requests(places: Mapping[str, ListedLog]) -> dict[str, PollRequest]:
    return {log_id: PollRequest(place, None) for log_id, place in places.items()}


def teller_of(folder: Path, *logs: ScriptedLog) -> tuple[Teller, list[Poller]]:
    pollers = [Poller(log.master, EARLIEST) for log in logs]
    teller = Teller(folder / "standing")
    teller.add(pollers)
    return teller, pollers


def told(folder: Path) -> dict[str, tuple[int, int]]:
    """End and turn by log id."""
    seen = seen_file_at(path_beside(folder / "standing")).read()
    return {log_id: (one.bounds.end, one.turn) for log_id, one in seen.items()}


def test_what_the_planner_sees_is_told_once_a_second_if_it_is_new(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 10)
    teller, (poller,) = teller_of(tmp_path, log)
    places = say(tmp_path, A, turn=3)
    begin_s = time.monotonic()
    poller.poll(requests(places))
    teller.tick(begin_s)
    assert told(tmp_path) == {A: (10, 3)}
    log.grow(20)
    poller.poll(requests(places))
    teller.tick(begin_s + TELL_EVERY_S / 2)
    assert told(tmp_path) == {A: (10, 3)}
    teller.tick(begin_s + TELL_EVERY_S)
    assert told(tmp_path) == {A: (20, 3)}
    path_beside(tmp_path / "standing").unlink()
    poller.poll(requests(places))
    teller.tick(begin_s + 3 * TELL_EVERY_S)
    assert told(tmp_path) == {}  # as before: nothing was written


def test_while_nobody_plans_it_looks_by_itself_where_the_job_says(tmp_path: Path) -> None:
    a, b = ScriptedLog(A, 0, 10), ScriptedLog(B, 0, 10)
    teller, pollers = teller_of(tmp_path, a, b)
    for poller, log_id in zip(pollers, (A, B), strict=True):
        poller.poll(requests(say(tmp_path, log_id)))
    say(tmp_path, A, turn=2)  # b has left
    a.grow(30)
    begin_s = time.monotonic()
    teller.tick(begin_s)
    assert (a.looks, b.looks) == (1, 1)
    teller.tick(begin_s + POLL_AFTER_S)
    wait_until(lambda: a.looks == 2, "another look")

    def is_told() -> bool:
        teller.tick(begin_s + POLL_AFTER_S + TELL_EVERY_S)
        return told(tmp_path)[A] == (30, 2)

    wait_until(is_told, "its outcome")
    assert b.looks == 1


def test_a_log_that_does_not_answer_is_not_told_and_not_asked_twice(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 10)
    teller, (poller,) = teller_of(tmp_path, log)
    places = say(tmp_path, A)
    poller.poll(requests(places))
    begin_s = time.monotonic()
    teller.tick(begin_s)
    assert told(tmp_path) == {A: (10, 1)}
    log.answers.clear()
    planner = threading.Thread(target=poller.poll, args=(requests(places),))
    planner.start()
    wait_until(lambda: log.looks == 2, "the planner's look")
    teller.tick(begin_s + 2 * POLL_AFTER_S)
    teller.tick(begin_s + 2 * FORGET_AFTER_S)
    assert told(tmp_path) == {}
    assert log.looks == 2
    log.answers.set()
    planner.join()


class InSteps(ScriptedLog):
    """Answers at once what it holds when it is asked, whenever the answer is taken."""

    def poll_in_steps(self, asked: Mapping[LogId, LogQuery]) -> Steps[Mapping[LogId, Holding] | None]:
        with socket.socket() as awaited:
            held = Holding(self.holds)
            yield Awaited(awaited, 0.0)
            return {self.log_id: held}


def test_what_was_asked_long_ago_is_no_news_and_hides_none(tmp_path: Path) -> None:
    log = InSteps(A, 0, 10)
    poller = Poller(log.master, EARLIEST)
    wanted = requests(say(tmp_path, A))

    def asked() -> Steps[object]:
        steps = poller.poll_in_steps(wanted)
        assert steps is not None
        next(steps)
        return steps

    steps = asked()
    begin_s = time.monotonic()
    assert list(steps) == []
    assert poller.seen_since(0.0).keys() == {A}
    assert poller.seen_since(begin_s) == {}
    steps = asked()
    log.grow(20)
    poller.poll(wanted)
    assert list(steps) == []
    assert poller.seen_since(0.0)[A].bounds.end == 20


def test_a_job_that_stops_is_told_nothing(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 10)
    teller, (poller,) = teller_of(tmp_path, log)
    places = say(tmp_path, A)
    poller.poll(requests(places))
    standing.write(tmp_path / "standing", Standing(places, 10**9, is_stopping=True))
    teller.tick(time.monotonic() + 2 * POLL_AFTER_S)
    assert (told(tmp_path), log.looks) == ({}, 1)


class Several(ScriptedLog):
    """A master with two logs; nobody asks about the second."""

    def poll(self, asked: Mapping[LogId, LogQuery]) -> Mapping[LogId, Holding]:
        return {LogId.parse(B): Holding(span(0, 5)), LogId.parse("rocketmq/c"): Holding(span(0, 1))}


def test_an_error_is_not_told_and_a_log_that_the_job_does_not_know_is(tmp_path: Path) -> None:
    teller, (poller,) = teller_of(tmp_path, Several(A))
    found = poller.poll(requests(say(tmp_path, A, B)))
    assert isinstance(found[A], LogtwinError)  # there is no such log
    teller.tick(time.monotonic())
    assert told(tmp_path) == {B: (5, 1), "rocketmq/c": (1, UNLISTED)}


def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ScriptedLog(A, 0, 10)
    path = path_beside(tmp_path / "standing")
    path.mkdir()
    teller, (poller,) = teller_of(tmp_path, log)
    teller.start()
    try:
        poller.poll(requests(say(tmp_path, A)))
        wait_until(lambda: bool(caplog.messages), "a warning")
        path.rmdir()
        wait_until(lambda: told(tmp_path) == {A: (10, 1)}, "the sighting")
        assert len(caplog.messages) == 1
    finally:
        teller.stop()
