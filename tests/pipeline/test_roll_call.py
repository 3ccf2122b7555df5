"""What a running job does about logs that come and go, and what it says of them; and its end."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.config.found import Rosters
from pipeline.job import replicate
from pipeline.job.replicate import Job
from pipeline.job.roll_call import News, RollCall
from pipeline.monitoring.progress import Phase
from sinks.tables import KAFKA_LOG, TableSpec
from sources.discovery import Roster
from sources.errors import ConfigurationError, LogtwinError, MasterUnreachable, StorageUnreachable
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import ReadOptions
from sources.registry import FollowedOptions
from tests.patience import wait_until
from tests.sources.rocketmq.name_servers import ScriptedNameServer

NOBODY: Roster[ReplicatedTopicOptions] = Roster(options={}, unlisted=frozenset(), contested={}, unasked={})


def ids(*names: str) -> frozenset[LogId]:
    return frozenset(LogId("rocketmq", name) for name in names)


def roster(*listed: str, unlisted: Iterable[str] = (), contested: str = "", is_whole: bool = True) -> Rosters:
    options = {
        log_id: ReadOptions(id=str(log_id), name_server="h:1", starting_offset="latest")
        for log_id in sorted(ids(*listed, *unlisted))
    }
    unasked: dict[str, LogtwinError] = {} if is_whole else {"c2": MasterUnreachable("away")}
    disputed = {log_id: ConfigurationError("several") for log_id in ids(*contested)}
    return Rosters(Roster(options=options, unlisted=ids(*unlisted), contested=disputed, unasked=unasked), NOBODY)


@pytest.mark.parametrize(
    ("said", "before", "come", "unlisted"),
    [
        (roster("a", "b"), "", "", ""),
        (roster("a", "b", "c"), "", "c", ""),
        (roster("a", unlisted="b"), "", "", "b"),
        (roster("a", "c", unlisted="b"), "b", "c", "b"),
        (roster("a", "b"), "b", "", ""),  # it is back
        (roster("a", "c", unlisted="b", is_whole=False), "", "c", ""),  # those that did not answer may list it
        (roster("a", unlisted="b", is_whole=False), "b", "", "b"),
        (roster("b", "c", is_whole=False), "b", "c", ""),
        (roster("b", contested="ac"), "", "", ""),  # a goes on with its own log, and c does not come
    ],
)  # fmt: skip
def test_what_comes_is_followed_and_what_leaves_waits(said: Rosters, before: str, come: str, unlisted: str) -> None:
    news = News.of(said, ids("a", "b"), ids(*before))
    assert (frozenset(news.come), frozenset(news.unlisted)) == (ids(*come), ids(*unlisted))


def test_what_comes_begins_at_its_oldest_record() -> None:
    (options,) = News.of(roster("c"), (), frozenset()).come.values()
    assert options.starting_offset == "earliest"


def test_it_asks_for_what_the_job_has_and_says_once_what_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker whose name no log can have concerns nobody else, nor does a cluster without brokers."""
    with ScriptedNameServer({"c1": {"a": None}, "c2": {"a b": None}}) as server:
        entries = [{"cluster": name, "name_server": str(server.address)} for name in ("c1", "c2", "c3")]
        calls = RollCall(parse({"warehouse": str(tmp_path), "logs": entries}, where="job.toml"))
        calls.follow(ids("b"))
        said: list[list[str]] = []
        for _ in range(2):
            calls.ask()
            answer = calls.answer()
            assert answer is not None
            assert (frozenset(answer.logs.options), answer.logs.unlisted) == (ids("a", "b"), ids("b"))
            said.append([one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING])
            caplog.clear()
        assert calls.answer() is None
        server.clusters["c2"] = {"a": None}
        calls.ask()
    assert [len(one) for one in said] == [2, 0]
    assert "no broker of cluster c3" in said[0][0]
    assert "a name that no log can have" in said[0][1]
    assert ["several entries" in one.getMessage() for one in caplog.records] == [True]


def test_a_failure_of_its_own_is_said_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rosters, "of", Mock(side_effect=KeyError("defect")))
    calls = RollCall(parse({"warehouse": str(tmp_path)}, where="job.toml"))
    calls.ask()
    assert calls.answer() is None
    assert [one.levelname for one in caplog.records] == ["ERROR"]


ended: list[str] = []
failing: set[str] = set()
"""What has been told to end, and what fails at it."""


def end(name: str) -> None:
    ended.append(name)
    if name in failing:
        raise ConnectionRefusedError(name)


class Part:
    """A `Replication` that has not begun yet."""

    def __init__(self, _spark: object, _config: object, options: FollowedOptions, **ways: Any) -> None:
        if options.id.endswith("wrong"):
            raise ConfigurationError("it is wrong")
        self.id, self.options, self.ways = options.id, options, ways
        self.is_unlisted = False
        self.phase = Phase.RUNNING
        self.error: LogtwinError | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def is_due(self, _now_s: float) -> bool:
        return False

    def stop(self, _by_s: float) -> None:
        end(self.id)


class Members:
    """A `LogGroup`, which takes nothing while it `is_full`."""

    is_full: ClassVar[bool] = False

    def __init__(self, _spark: object, _config: object, table: TableSpec, members: Sequence[Part], **_: object) -> None:
        self.table, self.begun = table, 0
        self.ids = [one.id for one in members]

    def begin(self) -> None:
        self.begun += 1

    def add(self, added: Sequence[Part]) -> None:
        if self.is_full:
            raise StorageUnreachable("a full disk")
        self.ids += [one.id for one in added]

    def poll(self, _now_s: float) -> None:
        pass

    def stop(self) -> None:
        end("group")


@dataclass
class Calls:
    """A `RollCall` that answers what a test says."""

    said: Rosters | None = None
    followed: Collection[LogId] = ()

    def answer(self) -> Rosters | None:
        said, self.said = self.said, None
        return said

    def follow(self, followed: Collection[LogId]) -> None:
        self.followed = frozenset(followed)

    def stop(self) -> None:
        pass


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job that has found a, and is told to take it over; its roll call is `Calls`."""
    for name, part in (("Replication", Part), ("LogGroup", Members)):
        monkeypatch.setattr(replicate, name, part)
    ended.clear()
    for name in ("TypedTables", "Catalogued"):
        monkeypatch.setattr(replicate, name, lambda *_, name=name: SimpleNamespace(stop=lambda: end(name)))
    monkeypatch.setattr(replicate, "prepare_for_many_files", lambda _: None)
    with ScriptedNameServer({"c1": {"a": None}}) as server:
        entry = {"cluster": "c1", "name_server": str(server.address)}
        config = parse({"warehouse": str(tmp_path), "logs": [entry]}, where="job.toml")
        told = {"rocketmq/a": "away"}
        job = Job(cast(SparkSession, None), config, available_now=False, take_over=True, told=told)
    job._roll_call = cast(RollCall, Calls())
    yield job
    failing.clear()
    job.close()


def told(job: Job, said: Rosters) -> dict[str, list[str]]:
    """The logs of each group after `said`."""
    cast(Calls, job._roll_call).said = said
    job.poll()
    return {table.name: cast(Members, group).ids for table, group in job._groups.items()}


def test_what_comes_joins_the_group_of_its_table_or_begins_one(job: Job) -> None:
    topic = ReplicatedTopicOptions(id="kafka/c/t", servers="h:1")
    both = Rosters(roster("a", "b").logs, replace(NOBODY, options={topic.log_id: topic}))
    assert told(job, both) == {"log": ["rocketmq/a", "rocketmq/b"], "kafka_log": ["kafka/c/t"]}
    assert told(job, both) == {"log": ["rocketmq/a", "rocketmq/b"], "kafka_log": ["kafka/c/t"]}
    assert cast(Members, job._groups[KAFKA_LOG]).begun == 1
    assert cast(Calls, job._roll_call).followed == {one.options.log_id for one in job.logs}
    parts = [cast(Part, one) for one in job.logs]
    wait_until(lambda: [one.starts for one in parts] == [0, 1, 1], "the starts of what came")
    assert [one.ways["take_over"] for one in parts] == [True, False, False]
    assert [one.ways["told"] for one in parts] == ["away", "", ""]  # what was said of it before the start
    assert all(one.ways["may_leave"] for one in parts)


def test_what_cannot_be_added_is_added_when_it_can(
    job: Job, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(Members, "is_full", True)
        assert told(job, roster("a", "b", "c")) == {"log": ["rocketmq/a"]}
        assert "rocketmq/b, rocketmq/c cannot be followed yet: a full disk" in caplog.text
    assert told(job, roster("a", "b", "c")) == {"log": ["rocketmq/a", "rocketmq/b", "rocketmq/c"]}


def test_what_is_wrong_with_one_that_comes_is_its_own(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    said = roster("a", "b")
    wrong = ReplicatedTopicOptions(id="kafka/c/wrong", servers="h:1")
    assert told(job, Rosters(said.logs, replace(NOBODY, options={wrong.log_id: wrong}))) == {
        "log": ["rocketmq/a", "rocketmq/b"]
    }
    assert "kafka/c/wrong: it is wrong" in caplog.text


def test_what_no_server_lists_fails_no_job_by_waiting(job: Job) -> None:
    """One that has failed for good does, listed or not."""
    (a,) = [cast(Part, one) for one in job.logs]
    a.error = MasterUnreachable("away")
    for unlisted in ("", "a"):
        told(job, roster("a", unlisted=unlisted))
        assert a.is_unlisted is bool(unlisted)
    job._raise_first()
    a.phase = Phase.FAILED
    with pytest.raises(MasterUnreachable):
        job._raise_first()


EVERYTHING = ["TypedTables", "Catalogued", "group", "rocketmq/a", "rocketmq/b"]


@pytest.mark.parametrize("fails", [[], *([part] for part in EVERYTHING), EVERYTHING], ids=", ".join)
def test_every_part_is_ended_whatever_one_of_them_raises(job: Job, fails: list[str]) -> None:
    told(job, roster("a", "b"))
    failing.update(fails)
    with pytest.raises(ConnectionRefusedError) if fails else nullcontext():
        job.close()
    assert sorted(ended) == sorted(EVERYTHING)
    assert ended[:3] == EVERYTHING[:3]
    assert job._pool._shutdown


def test_showing_progress_takes_a_tenth_of_the_time_and_the_end_is_shown(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll takes 0.25 s here, and showing 0.125 s; after one that takes 10 s it is shown again in 5 s."""
    now_s, shown_s, costs_s = [0.0], list[float](), [0.125, 0.125, 10.0, 0.125, 0.125]
    monkeypatch.setattr(replicate, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def poll() -> bool:
        now_s[0] += 0.25
        return now_s[0] >= 18.5

    def show(_: object) -> bool:
        shown_s.append(now_s[0])
        now_s[0] += costs_s.pop(0)
        return True

    monkeypatch.setattr(job, "poll", poll)
    monkeypatch.setattr(job, "progress", list)
    job.run(show, poll_interval_s=0)
    assert shown_s == [0.25, 1.625, 3.0, 18.0, 18.625]
