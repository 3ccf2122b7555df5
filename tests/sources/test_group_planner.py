"""When a batch of a group begins, and what is in it. Where nothing is to happen for a time, that is longer here
than a test may take."""

import threading
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from sources.bounds import EARLIEST, LATEST, StartingOffset
from sources.errors import CorruptRecord, LogtwinError, MasterSilent, MasterUnreachable
from sources.group import standing
from sources.group.planner import GroupPlanner, Pace, PlannedBatch
from sources.group.poller import Poller, PollRequest, PollResult, PollResults
from sources.group.standing import ListedLog, Standing
from sources.group.watched import WatchedLog
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange
from tests.patience import wait_until
from tests.sources.scripted_log import ScriptedLog
from tests.spans import span

A, B, C = "rocketmq/a", "rocketmq/b", "rocketmq/c"
LONG_S = 600.0
SHORT_S = 0.02
AWAY = MasterUnreachable("away")
Where = int | None | tuple[int | None, int]
"""A position, or that and a turn."""


class Group:
    """A watch over logs, and the job's side of it."""

    def __init__(
        self,
        folder: Path,
        *logs: ScriptedLog,
        starting: StartingOffset = EARLIEST,
        pollers: Sequence[Poller] = (),
        later: Sequence[ScriptedLog] = (),
        **pace: float,
    ) -> None:
        self._path = folder / "standing"
        times = {"interval_s": LONG_S, "poll_deadline_s": LONG_S, "last_poll_deadline_s": LONG_S} | pace
        each = [Poller(log.master, starting) for log in logs]
        self.later = [Poller(log.master, starting) for log in later]
        self.watch = GroupPlanner([*each, *pollers], self._path, Pace(**times), self._added)

    def _added(self) -> list[Poller]:
        added, self.later = self.later, []
        return added

    def say(self, places: Mapping[str, Where], *, budget: int = 10**9, is_stopping: bool = False) -> None:
        """`places` by the last part of a log's id."""
        said = {f"rocketmq/{name}": _place(where) for name, where in places.items()}
        standing.write(self._path, Standing(said, budget, is_stopping))

    def next(self) -> PlannedBatch:
        batch = self.watch.next()
        assert batch is not None
        return batch

    def ranges(self) -> dict[str, tuple[int, int]]:
        """What the next batch reads, where nothing is wrong."""
        batch = self.next()
        assert not batch.errors
        return {log_id[-1]: (one.start, one.end) for log_id, one in batch.batches.items()}


def _place(where: Where) -> ListedLog:
    position, turn = where if isinstance(where, tuple) else (where, 0)
    return ListedLog(None if position is None else Offset(position), turn)


def test_the_rest_is_read_at_once_from_the_position_the_job_says(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 250)
    group = Group(tmp_path, log)
    for position, end in ((0, 100), (100, 200), (150, 250), (150, 250)):  # the third batch ended early, one failed
        group.say({"a": position}, budget=100)
        assert group.ranges() == {"a": (position, end)}
    assert log.looks == 1


def test_a_log_that_counts_ids_takes_a_share(tmp_path: Path) -> None:
    group = Group(tmp_path, ScriptedLog("dister/a", 0, 10), ScriptedLog(B, 0, 1000))
    standing.write(
        tmp_path / "standing",
        Standing({"dister/a": ListedLog(Offset(0)), B: ListedLog(Offset(0))}, budget_bytes=100),
    )
    assert group.ranges() == {"a": (0, 10), "b": (0, 50)}


def test_a_log_leaves_and_comes_back_at_another_position(tmp_path: Path) -> None:
    group = Group(tmp_path, ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100))
    group.say({"a": 0, "b": 0}, budget=20)
    assert group.ranges() == {"a": (0, 10), "b": (0, 10)}
    group.say({"b": 10}, budget=20)
    assert group.ranges() == {"b": (10, 30)}
    group.say({"a": (5, 1), "b": 30}, budget=20)
    assert group.ranges() == {"a": (5, 15), "b": (30, 40)}


@pytest.mark.parametrize(("starting", "start"), [(EARLIEST, 20), (LATEST, 100), (60, 60)])
def test_without_a_position_reading_begins_where_the_options_say(
    tmp_path: Path, starting: StartingOffset, start: int
) -> None:
    log = ScriptedLog(A, 20, 100)
    group = Group(tmp_path, log, starting=starting, interval_s=SHORT_S)
    group.say({"a": None})
    if starting == LATEST:
        assert group.watch.next() is None
        log.grow(110)
    assert group.ranges() == {"a": (start, log.holds.end)}


def test_where_latest_was_is_remembered(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 100)
    group = Group(tmp_path, log, starting=LATEST, interval_s=SHORT_S)
    group.say({"a": None})
    assert group.watch.next() is None
    for turn, end in enumerate((150, 200)):
        log.grow(end)
        group.say({"a": (None, turn)})  # what was read of it was not committed
        while (batch := group.watch.next()) is None or batch.batches[A].end < end:
            pass
        assert batch.batches[A] == span(100, end)


def test_the_earliest_record_may_go_before_it_was_read(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 100)
    group = Group(tmp_path, log)
    group.say({"a": None})
    assert group.ranges() == {"a": (0, 100)}
    log.holds = span(40, 120)
    group.say({"a": (None, 1)})
    assert group.ranges() == {"a": (40, 120)}


def test_a_stop_is_heard_while_nothing_happens(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 0)
    group = Group(tmp_path, log)
    group.say({"a": 0})

    def stop() -> None:
        wait_until(lambda: log.looks > 0, "a look")
        group.say({}, is_stopping=True)

    stopper = threading.Thread(target=stop)
    stopper.start()
    assert group.watch.next() is None
    stopper.join()


@pytest.mark.parametrize("exists", [False, True])
def test_where_nothing_is_to_be_read_nothing_begins(tmp_path: Path, exists: bool) -> None:
    log = ScriptedLog(A, 0, 100)
    group = Group(tmp_path, log, interval_s=SHORT_S)
    if exists:
        group.say({})
    began_s = time.monotonic()
    assert group.watch.next() is None
    assert time.monotonic() - began_s >= SHORT_S
    assert log.looks == 0


def test_a_quiet_log_is_looked_at_once_an_interval(tmp_path: Path) -> None:
    log = ScriptedLog(A, 0, 100)
    interval_s = 0.1
    group = Group(tmp_path, log, interval_s=interval_s)
    group.say({"a": 100})
    began_s = time.monotonic()
    for _ in range(3):
        assert group.watch.next() is None
    assert 3 <= log.looks <= 1 + (time.monotonic() - began_s) / interval_s
    log.grow(110)
    assert group.ranges() == {"a": (100, 110)}


def test_bytes_that_producers_wait_for_begin_a_batch_at_once(tmp_path: Path) -> None:
    quiet, waited = ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100, is_waited_for=True)
    group = Group(tmp_path, quiet, waited)
    group.say({"a": 100, "b": 100})
    found: list[PlannedBatch | None] = []
    planner = threading.Thread(target=lambda: found.append(group.watch.next()))
    planner.start()
    wait_until(lambda: waited.looks >= 5, "looks between the beats")
    quiet.grow(130)
    waited.grow(120)
    planner.join(LONG_S)
    assert found == [PlannedBatch({B: span(100, 120)}, {})]
    assert quiet.looks == 1


def test_waiting_producers_wait_for_no_other_master(tmp_path: Path) -> None:
    silent, waited = ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100, is_waited_for=True)
    silent.answers.clear()
    group = Group(tmp_path, silent, waited)
    group.say({"a": 0, "b": 0})
    assert group.ranges() == {"b": (0, 100)}
    silent.answers.set()


def test_a_silent_master_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.group.planner.TELL_LATE_S", 0.0)
    silent, other = ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100)
    silent.answers.clear()
    group = Group(tmp_path, silent, other, interval_s=0.05, poll_deadline_s=0.05)
    group.say({"a": 0, "b": 0})
    for position in (0, 100, 200):
        other.grow(position + 100)
        group.say({"a": 0, "b": position})
        while (batch := group.watch.next()) is None:
            pass
        assert set(batch.batches) == {B}
    assert silent.looks == 1  # it is asked once until it has answered
    group.say({"a": 0, "b": 300})
    silent.answers.set()
    while (batch := group.watch.next()) is None:
        pass
    assert batch == PlannedBatch({A: span(0, 100)}, {})
    group.say({"a": 100, "b": 300})
    wait_until(lambda: group.watch.next() is None and "in time again" in caplog.text, "it is in time again")
    assert [message.split(":")[0] for message in caplog.messages if "does not answer" in message].count(A) == 1


def test_a_master_that_was_late_is_not_waited_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it was in time once: asked anew after each late answer, it is silent again."""
    answers = threading.Semaphore(0)

    class Slow(ScriptedLog):
        def bounds(self, known: Offset | None = None) -> OffsetRange:
            self.looks += 1
            assert answers.acquire(timeout=LONG_S)
            return self.holds

    slow, ahead_s = Slow(A, 0, 0), [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0])
    monkeypatch.setattr("sources.group.planner.time", clock)
    monkeypatch.setattr("sources.group.asking.time", clock)
    group = Group(tmp_path, slow, ScriptedLog(B, 0, 10), interval_s=SHORT_S)
    group.say({"a": 0, "b": 10})
    planner = threading.Thread(target=group.watch.next)
    planner.start()
    for rounds in range(1, 6):
        wait_until(lambda: slow.looks == rounds, "it is asked")  # noqa: B023
        ahead_s[0] += 2 * LONG_S
        planner.join()  # the first look was waited for until its deadline
        answers.release()
        wait_until(lambda: group.watch.next() is None and slow.looks > rounds, "it is asked anew")  # noqa: B023
    answers.release()


@pytest.mark.parametrize(("error", "kind"), [(AWAY, MasterUnreachable), (RuntimeError("a defect"), LogtwinError)])
def test_an_error_is_told_once_and_at_once_with_what_the_others_have(
    tmp_path: Path, error: Exception, kind: type[LogtwinError]
) -> None:
    broken, other = ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100)
    broken.error = error
    group = Group(tmp_path, broken, other, interval_s=SHORT_S)
    group.say({"a": 0, "b": 0})
    first = group.next()
    errors = dict(first.errors)
    if not first.batches:  # it may have come before the other's answer
        assert group.ranges() == {"b": (0, 100)}
    assert {log_id: (type(told), told.log) for log_id, told in errors.items()} == {A: (kind, A)}
    assert str(error) in str(errors[A])
    group.say({"a": 0, "b": 100})  # the job does not know of it yet
    assert group.watch.next() is None
    assert broken.looks == 1


@pytest.mark.parametrize("is_seen", [True, False], ids=["away between", "in one stroke"])
def test_a_log_that_is_listed_again_is_looked_at_again(tmp_path: Path, is_seen: bool) -> None:
    log = ScriptedLog(A, 0, 100)
    log.error = AWAY
    group = Group(tmp_path, log, interval_s=SHORT_S)
    for turn in range(3):
        group.say({"a": (0, turn)})
        assert set(group.next().errors) == {A}
        if is_seen:
            group.say({})
            assert group.watch.next() is None
    log.error = None
    group.say({"a": (0, 3)})
    assert group.ranges() == {"a": (0, 100)}


@pytest.mark.parametrize(
    ("error", "kind"), [(CorruptRecord("no record"), CorruptRecord), (FileNotFoundError("no record"), LogtwinError)]
)
def test_a_log_that_cannot_be_cut_costs_the_others_nothing(
    tmp_path: Path, error: Exception, kind: type[LogtwinError]
) -> None:
    broken = ScriptedLog(A, 0, 100)
    broken.cut_error = error
    group = Group(tmp_path, broken, ScriptedLog(B, 0, 100))
    group.say({"a": 0, "b": 0})
    batch = group.next()
    assert batch.batches == {B: span(0, 100)}
    assert (type(batch.errors[A]), batch.errors[A].log, batch.errors[A].is_transient) == (kind, A, False)
    assert "no record" in str(batch.errors[A])


def test_an_error_about_an_older_position_is_ignored(tmp_path: Path) -> None:
    """Retention passes the position while a batch that leads beyond it is committed."""
    log = ScriptedLog(A, 0, 100, is_waited_for=True)
    group = Group(tmp_path, log, interval_s=SHORT_S)
    group.say({"a": 0}, budget=50)
    assert group.ranges() == {"a": (0, 50)}
    log.knows_its_role.wait(LONG_S)
    log.answers.clear()
    looks = log.looks
    wait_until(lambda: group.watch.next() is not None and log.looks > looks, "a look from 0 is under way")
    log.holds = span(50, 120)
    group.say({"a": 50})
    assert group.ranges() == {"a": (50, 100)}  # of what is known
    log.answers.set()
    group.say({"a": 100})
    while (batch := group.watch.next()) is None:
        pass
    assert batch == PlannedBatch({A: span(100, 120)}, {})


class Master(Poller):
    """A poller of `logs`, all of which it answers for at once; raises `error` instead, if there is one."""

    master_id = "rocketmq"
    may_begin_later = True
    _in_steps = None

    def __init__(self, *logs: ScriptedLog) -> None:
        self.logs = {str(log.log_id): log for log in logs}
        self.asked: list[set[str]] = []
        self.answers = threading.Event()
        self.answers.set()
        self.error: LogtwinError | None = None

    def log(self, log_id: str) -> MasterLog | None:
        return self.logs[log_id].master if log_id in self.logs else None

    def poll(self, wanted: Mapping[str, PollRequest]) -> PollResults:
        self.asked.append(set(wanted))
        assert self.answers.wait(LONG_S)
        if self.error is not None:
            raise self.error
        return {log_id: self._answer(log_id, one) for log_id, one in wanted.items()}

    def is_waited_for(self) -> bool:
        return False

    def _answer(self, log_id: str, one: PollRequest) -> PollResult | LogtwinError:
        error = self.logs[log_id].error
        if isinstance(error, LogtwinError):
            return error
        return PollResult(self.logs[log_id].holds, one.listed.position or Offset(0))


def test_a_master_that_comes_is_asked_at_once_whether_producers_wait(tmp_path: Path) -> None:
    """And nobody looks for further masters while all listed logs are of known ones."""
    waited = ScriptedLog(B, 0, 30, is_waited_for=True)
    group = Group(tmp_path, ScriptedLog(A, 0, 100), later=[waited])
    group.say({"a": 0})
    assert group.ranges() == {"a": (0, 100)}
    assert len(group.later) == 1
    group.say({"a": 100, "b": 0})
    assert group.ranges() == {"b": (0, 30)}
    group.say({"a": 100, "b": 30})
    planner = threading.Thread(target=group.watch.next)
    planner.start()
    wait_until(lambda: waited.looks >= 5, "looks between the beats")
    waited.grow(40)
    planner.join(LONG_S)


def test_masters_are_asked_for_their_roles_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand at once would hold up the looks: each is asked at first, some at once, and then every half minute."""
    monkeypatch.setattr("sources.group.planner.ROLES_AT_ONCE", 3)
    watch = Group(tmp_path, *(ScriptedLog(f"rocketmq/{name}", 0, 1) for name in "abcd")).watch
    asked = {second: due for second in range(23) if (due := watch._roles_due(100.0 + second))}
    assert asked == {0: [0, 1, 2], 1: [3], 8: [0], 15: [1]}  # 107.5 and 115
    assert watch._roles_due(200.0) == [2, 3, 0, 1]


def test_a_master_is_asked_once_for_all_logs_that_it_has(tmp_path: Path) -> None:
    master = Master(ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100))
    group = Group(tmp_path, ScriptedLog(C, 0, 30), pollers=[master])
    group.say({"a": 10, "b": 20, "c": 0})
    assert group.ranges() == {"a": (10, 100), "b": (20, 100), "c": (0, 30)}
    assert master.asked == [{A, B}]


def test_an_error_of_one_log_is_its_own_and_one_raised_is_of_all_that_were_asked(tmp_path: Path) -> None:
    master = Master(ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100), ScriptedLog(C, 0, 100))
    master.logs[A].error = CorruptRecord("bad", offset=7)
    group = Group(tmp_path, pollers=[master])
    group.say({"a": 0, "b": 0})
    batch = group.next()
    assert (set(batch.errors), batch.batches) == ({A}, {B: span(0, 100)})
    master.error = AWAY
    group.say({"a": (0, 1), "b": (0, 1)})  # both are listed anew, and c is not
    errors = group.next().errors
    assert {log_id: (type(error), error.log) for log_id, error in errors.items()} == {
        A: (MasterUnreachable, A),
        B: (MasterUnreachable, B),
    }


def test_a_log_that_is_listed_while_its_master_is_being_asked_is_looked_at_next(tmp_path: Path) -> None:
    master = Master(ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100))
    master.answers.clear()
    group = Group(tmp_path, pollers=[master], interval_s=SHORT_S, poll_deadline_s=SHORT_S)
    group.say({"a": 0})
    assert group.watch.next() is None
    group.say({"a": 0, "b": 0})
    assert group.watch.next() is None
    assert master.asked == [{A}]
    master.answers.set()
    found: dict[str, OffsetRange] = {}
    while len(found) < 2:
        batch = group.watch.next()
        found |= dict(batch.batches) if batch is not None else {}
    assert found == {A: span(0, 100), B: span(0, 100)}
    assert master.asked[1] in ({B}, {A, B})


def test_a_run_that_ends_reads_what_was_there_when_it_began(tmp_path: Path) -> None:
    log, other = ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 30)
    group = Group(tmp_path, log, other)
    group.say({"a": 0, "b": 0}, budget=60)
    group.watch.prepare_to_end()
    for each in (log, other):
        each.grow(500)
    assert group.ranges() == {"a": (0, 30), "b": (0, 30)}
    group.say({"a": 30, "b": 30}, is_stopping=True)
    assert group.watch.next() is None
    group.say({"a": 30, "b": 30}, budget=60)
    assert group.ranges() == {"a": (30, 90)}
    group.say({"a": (90, 1), "b": 30})  # looked at again
    assert group.ranges() == {"a": (90, 100)}
    group.say({"a": 100, "b": 30})
    assert group.watch.next() is None


def test_a_run_that_ends_tells_what_it_could_not_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away, silent, other = ScriptedLog(A, 0, 100), ScriptedLog(B, 0, 100), ScriptedLog(C, 0, 100)
    away.error = AWAY
    silent.answers.clear()
    heard: list[WatchedLog] = []
    hear = WatchedLog.hear

    def counted(log: WatchedLog, outcome: object, at_s: float, deadline_s: float) -> None:
        heard.append(log)
        hear(log, outcome, at_s, deadline_s)

    monkeypatch.setattr(WatchedLog, "hear", counted)
    ticks, answering = count(), 2  # the clock stands still until all have answered that do
    clock = SimpleNamespace(monotonic=lambda: 1.0 + (next(ticks) if len(heard) >= answering else 0))
    monkeypatch.setattr("sources.group.planner.time", clock)
    group = Group(tmp_path, away, silent, other, last_poll_deadline_s=SHORT_S)
    group.say({"a": 0, "b": 0, "c": 0})
    group.watch.prepare_to_end()
    batch = group.next()
    assert {log_id: type(error) for log_id, error in batch.errors.items()} == {A: MasterUnreachable, B: MasterSilent}
    assert batch.batches == {C: span(0, 100)}
    group.say({"a": 0, "b": 0, "c": 100})
    assert group.watch.next() is None
    away.error = None
    answering += 1
    group.say({"a": (0, 1), "c": 100})
    assert group.ranges() == {"a": (0, 100)}
    silent.answers.set()
