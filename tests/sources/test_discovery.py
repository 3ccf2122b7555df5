"""What entries of a configuration name: patterns, overlaps, servers that are away, and what only the replica has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pytest

from sources.discovery import Discovery, Named, NamePattern, Roster, chosen, matched, rostered
from sources.errors import ConfigurationError, MasterUnreachable
from sources.offsets import LogId


def log(name: str) -> LogId:
    return LogId("rocketmq", name)


@dataclass(frozen=True)
class Listing:
    """A pattern; its server lists `listed`, or is away (None). Options are its label."""

    label: str
    pattern: NamePattern
    listed: tuple[str, ...] | None = ()
    is_pattern: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{self.label}: {self.pattern}",)

    def find(self, _warn: object = None, /) -> Mapping[LogId, str]:
        if self.listed is None:
            raise MasterUnreachable(f"{self.label} is away")
        return {log(name): self.label for name in self.listed if self.pattern.matches(name)}

    def options_of(self, log_id: LogId) -> str | None:
        return self.label if log_id.kind == "rocketmq" and self.pattern.matches(log_id.name) else None

    def only(self, log_id: LogId) -> Self:
        return replace(self, pattern=self.pattern.only(log_id.name))


def every(label: str, *listed: str) -> Listing:
    return Listing(label, NamePattern(), listed)


def away(label: str, *include: str) -> Listing:
    return Listing(label, NamePattern(include or (".*",)), None)


def told(roster: Roster[str]) -> dict[str, str]:
    return {log_id.name: label for log_id, label in roster.options.items()}


NAMED = Named({log("a"): "named"})


@pytest.mark.parametrize(
    ("include", "exclude", "matching"),
    [
        ([".*"], [], ["orders", "orders-eu", "old-orders"]),
        (["orders"], [], ["orders"]),
        (["orders", "old-.*"], [], ["orders", "old-orders"]),
        (["orders.*"], [".*-eu"], ["orders"]),
        (["orders|old"], [], ["orders"]),
        ([".*"], ["orders", "o"], ["orders-eu", "old-orders"]),
        ([], [], []),
    ],
)
def test_a_pattern_is_for_whole_names(include: list[str], exclude: list[str], matching: list[str]) -> None:
    pattern = NamePattern(tuple(include), tuple(exclude))
    assert [name for name in ("orders", "orders-eu", "old-orders") if pattern.matches(name)] == matching


def test_a_pattern_of_one_name_takes_it_by_its_letters() -> None:
    pattern = NamePattern().only("a.b|c")
    assert pattern.matches("a.b|c")
    assert not any(map(pattern.matches, ["axb|c", "a.b", "c"]))


@pytest.mark.parametrize("given", [{"include": ("(",)}, {"exclude": ("a", "*")}])
def test_what_is_no_regular_expression_is_refused(given: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="a regular expression, and not '"):
        NamePattern(**given)


def test_what_is_named_wins_over_patterns() -> None:
    one: list[Discovery[str]] = [NAMED, every("c1", "a", "b"), every("c2", "a")]
    for entries in (one, one[::-1]):
        roster = rostered(entries)
        assert told(roster) == {"a": "named", "b": "c1"}
        assert roster.contested == {}


def test_two_patterns_that_list_the_same_leave_it_to_nobody() -> None:
    roster = rostered([every("c1", "a", "b"), every("c2", "b", "c")], held=[log("b")])
    assert told(roster) == {"a": "c1", "c": "c2"}
    assert set(roster.contested) == {log("b")}
    assert roster.unlisted == frozenset()
    for word in ("rocketmq/b", "several entries", "match it", "c1: .*", "c2: .*", "exclude"):
        assert word in str(roster.contested[log("b")])


def test_a_pattern_that_matches_but_does_not_list_contests_nothing() -> None:
    """Two clusters with the same names by default: what a server lists is its own."""
    roster = rostered([every("c1", "a"), every("c2", "b"), away("c3")])
    assert told(roster) == {"a": "c1", "b": "c2"}
    assert roster.contested == {}


def test_what_the_replica_has_and_nobody_lists_waits() -> None:
    entries: list[Discovery[str]] = [NAMED, Listing("c1", NamePattern(("b.*",)), ("b1",))]
    roster = rostered(entries, held=map(log, ["a", "b1", "b2", "z"]))
    assert told(roster) == {"a": "named", "b1": "c1", "b2": "c1"}
    assert roster.unlisted == {log("b2")}
    assert told(rostered([every("c1")], held=[LogId("dister", "shop")])) == {}
    moved: list[Discovery[str]] = [every("c1", "b"), every("c2", "a")]
    assert told(rostered(moved, held=[log("a")])) == {"a": "c2", "b": "c1"}  # an id that moves is its new cluster's


def test_without_its_server_a_pattern_means_what_the_replica_has() -> None:
    roster = rostered([every("c1", "a"), away("c2"), away("c3", "x")], held=map(log, ["a", "b"]))
    assert told(roster) == {"a": "c1", "b": "c2"}  # not of c1, whose server was asked
    assert list(roster.unasked) == ["c2: .*", "c3: x"]
    assert "c2 is away" in str(roster.unasked["c2: .*"])


def test_the_servers_can_be_asked_side_by_side() -> None:
    """In whichever order they answer: what belongs together stays together."""
    asked: list[object] = []

    def backwards(ask: Callable[[Any], Any], of: Sequence[Any], /) -> Iterable[Any]:
        asked.extend(of)
        return [ask(one) for one in of[::-1]][::-1]

    entries: list[Discovery[str]] = [NAMED, every("c1", "b"), away("c2"), every("c3", "c")]
    assert told(rostered(entries, each=backwards)) == {"a": "named", "b": "c1", "c": "c3"}
    assert asked == entries[1:]


def test_an_error_that_waiting_does_not_mend_is_of_its_pattern() -> None:
    @dataclass(frozen=True)
    class Wrong(Listing):
        def find(self, _warn: object = None, /) -> Mapping[LogId, str]:
            raise ConfigurationError("it is no name server")

    entries: list[Discovery[str]] = [every("c1", "a"), Wrong("c2", NamePattern())]
    roster = rostered(entries)
    assert told(roster) == {"a": "c1"}
    assert {text: str(error) for text, error in roster.unasked.items()} == {"c2: .*": "it is no name server"}


def test_each_log_is_of_the_pattern_that_lists_it_or_the_first_that_matches() -> None:
    entries: list[Discovery[str]] = [NAMED, every("c1", "a", "b"), every("c2", "c"), away("c3", "d.*")]
    roster = rostered(entries, map(log, ["d", "e"]))
    assert {log_id.name: text for log_id, text in roster.found_by.items()} == {
        "b": "c1: .*", "c": "c2: .*", "d": "c3: d.*", "e": "c1: .*",
    }  # fmt: skip


def test_one_log_of_several_entries() -> None:
    entries: list[Discovery[str]] = [away("c1", "b.*"), away("c2", "bb|a"), NAMED]
    assert chosen(entries, log("a")) == (Named({log("a"): "named"}),)
    assert chosen(entries, log("b")) == (Named({log("b"): "c1"}),)
    assert chosen(entries, log("z")) == ()
    assert matched(entries, map(log, ["b", "a"])) == {log("a"): "named", log("b"): "c1"}
    both = chosen(entries, log("bb"))
    assert [one.is_pattern for one in both] == [True, True]
    assert matched(both, map(log, ["bb", "b", "a"])) == {log("bb"): "c1"}
    assert chosen([Named({log("a"): "x", log("b"): "y"})], log("b"))[0].only(log("b")).find() == {log("b"): "y"}
