"""What a running job does about logs that come and go, and what it says of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.config.configuration import parse
from pipeline.config.found import Rosters
from pipeline.job.roll_call import News, RollCall
from sources.discovery import Roster
from sources.errors import ConfigurationError, LogtwinError, MasterUnreachable
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import ReadOptions
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
    def fail(*_: object) -> None:
        raise KeyError("defect")

    monkeypatch.setattr(Rosters, "of", fail)
    calls = RollCall(parse({"warehouse": str(tmp_path)}, where="job.toml"))
    calls.ask()
    assert calls.answer() is None
    assert [one.levelname for one in caplog.records] == ["ERROR"]
