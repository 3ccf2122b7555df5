"""Which logs and topics there are: what the entries of a configuration name, found when somebody asks.

An entry names them one by one (`Named`), or by a pattern: the broker names of a RocketMQ cluster, the topics of a Kafka
cluster. A pattern's servers say what there is now; `rostered` adds what the replica holds already, so that a broker
that left is still a log, which waits. It can be asked again at any time, and keeps nothing.

An id belongs to one entry: to the one that names it, or else to the only pattern whose servers list it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

from sources.errors import ConfigurationError, LogtwinError, MasterError
from sources.offsets import LogId

log = logging.getLogger(__name__)

Options = TypeVar("Options")
A = TypeVar("A")
B = TypeVar("B")
Options_co = TypeVar("Options_co", covariant=True)


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Names by regular expressions, each of which is for a whole name: one of `include`, and none of `exclude`.

    Raises ValueError for what is no regular expression.
    """

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for one in (*self.include, *self.exclude):
            try:
                re.compile(one)
            except re.error as error:
                raise ValueError(f"a regular expression, and not {one!r}: {error}") from error

    def matches(self, name: str) -> bool:
        return _any_matches(self.include, name) and not _any_matches(self.exclude, name)

    def only(self, name: str) -> NamePattern:
        return NamePattern((re.escape(name),))

    def __str__(self) -> str:
        return "|".join(self.include) + (f" except {'|'.join(self.exclude)}" if self.exclude else "")


def _any_matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(one, name) for one in patterns)


class Warn(Protocol):
    """Says something, as `logging.Logger.warning`."""

    def __call__(self, text: str, /, *values: object) -> None: ...


class Discovery(Protocol[Options_co]):
    """One entry of a configuration; a frozen value that can be pickled. `Options` are those of one log or topic."""

    @property
    def is_pattern(self) -> bool:
        """Whether what it names may change, and `find` asks servers."""

    @property
    def names(self) -> tuple[str, ...]:
        """The ids that it names; with a pattern, one text that has the pattern in place of a name."""

    def find(self, warn: Warn = ..., /) -> Mapping[LogId, Options_co]:
        """Return what there is now; `warn` of what is odd, as a cluster without brokers.

        Raises MasterError if no server can be asked, ConfigurationError for a name that cannot be a log's.
        """

    def options_of(self, log_id: LogId) -> Options_co | None:
        """Return the options that `log_id` would have; None if it is not named or matched. Asks nobody."""

    def only(self, log_id: LogId) -> Self:
        """Return the same entry for `log_id` alone, which it names or matches."""


@dataclass(frozen=True, slots=True)
class Named(Generic[Options]):
    """An entry that names its logs or topics."""

    options: Mapping[LogId, Options]

    @property
    def is_pattern(self) -> bool:
        return False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.options))

    def find(self, _warn: Warn | None = None, /) -> Mapping[LogId, Options]:
        return self.options

    def options_of(self, log_id: LogId) -> Options | None:
        return self.options.get(log_id)

    def only(self, log_id: LogId) -> Named[Options]:
        return Named({log_id: self.options[log_id]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster(Generic[Options]):
    """The logs and topics that some entries name, at one moment, each with its options.

    `unlisted` are those that only the replica has: no server lists them now. `contested` are left out: the servers of
    several patterns list them. `unasked` has the error of each pattern of which nobody knows what there is, by its
    text: a MasterError if its servers could not be asked, or a ConfigurationError. `found_by` has the text of the
    pattern that each log is of, unless an entry names it.
    """

    options: Mapping[LogId, Options]
    unlisted: frozenset[LogId]
    contested: Mapping[LogId, ConfigurationError]
    unasked: Mapping[str, LogtwinError]
    found_by: Mapping[LogId, str] = field(default_factory=dict)


class Each(Protocol):
    """Calls `ask` for each of some values, perhaps side by side, and returns what it returned, in their order."""

    def __call__(self, ask: Callable[[A], B], of: Sequence[A], /) -> Iterable[B]: ...


def _one_by_one(ask: Callable[[A], B], of: Sequence[A], /) -> Iterable[B]:
    return map(ask, of)


def rostered(
    entries: Sequence[Discovery[Options]],
    held: Iterable[LogId] = (),
    each: Each = _one_by_one,
    warn: Warn = log.warning,
) -> Roster[Options]:
    """Return what `entries` name now, and those of `held`, the ids in the replica, that they match.

    `each` asks the servers of all patterns.
    """

    def listed_by(pattern: Discovery[Options]) -> Mapping[LogId, Options] | LogtwinError:
        try:
            return pattern.find(warn)
        except (MasterError, ConfigurationError) as error:
            return error

    named = matched([one for one in entries if not one.is_pattern], ())
    finders: dict[LogId, list[Discovery[Options]]] = {}
    found: dict[LogId, Options] = {}
    unasked: dict[str, LogtwinError] = {}
    silent: list[Discovery[Options]] = []
    patterns = [one for one in entries if one.is_pattern]
    for one, listed in zip(patterns, each(listed_by, patterns), strict=True):
        if isinstance(listed, LogtwinError):
            unasked[_text(one)] = listed
            silent.append(one)
            continue
        for log_id, options in listed.items():
            finders.setdefault(log_id, []).append(one)
            found[log_id] = options
    contested = {
        log_id: _contested(log_id, several)
        for log_id, several in finders.items()
        if len(several) > 1 and log_id not in named
    }
    # A log that nobody lists may be one of the servers that could not be asked.
    waiting = [*silent, *patterns]
    unlisted = matched(waiting, (log_id for log_id in held if log_id not in found and log_id not in named))
    of_each = {log_id: several[0] for log_id, several in finders.items()} | {
        log_id: next(one for one in waiting if one.options_of(log_id) is not None) for log_id in unlisted
    }
    every = {**found, **unlisted, **named}
    return Roster(
        options={log_id: options for log_id, options in sorted(every.items()) if log_id not in contested},
        unlisted=frozenset(unlisted),
        contested=contested,
        unasked=unasked,
        found_by={log_id: _text(one) for log_id, one in of_each.items() if log_id not in named},
    )


def matched(entries: Sequence[Discovery[Options]], ids: Iterable[LogId]) -> dict[LogId, Options]:
    """Return what `entries` name, and those of `ids` that one of them matches: the first that does. Asks nobody."""
    found: dict[LogId, Options] = {}
    for one in entries:
        found |= {} if one.is_pattern else one.find()
    for log_id in sorted(ids):
        options = (one.options_of(log_id) for one in entries)
        first = next((one for one in options if one is not None), None)
        if first is not None:
            found.setdefault(log_id, first)
    return found


def chosen(entries: Sequence[Discovery[Options]], log_id: LogId) -> tuple[Discovery[Options], ...]:
    """Return the entries for `log_id` alone: the one that names it, or the patterns that match it. Asks nobody.

    If only one matches, nobody needs to be asked later, either.
    """
    ours = [(one, options) for one in entries if (options := one.options_of(log_id)) is not None]
    named = [pair for pair in ours if not pair[0].is_pattern]
    if named or len(ours) == 1:
        return tuple(Named({log_id: options}) for _, options in (named or ours)[:1])
    return tuple(one.only(log_id) for one, _ in ours)


def _text(entry: Discovery[object]) -> str:
    return ", ".join(entry.names)


def _contested(log_id: LogId, entries: Iterable[Discovery[object]]) -> ConfigurationError:
    return ConfigurationError(
        "several entries of the configuration match it",
        log=log_id,
        expected="one",
        found="; ".join(map(_text, entries)),
        hint="Leave it out of the others with exclude, or give it an entry of its own, with id. Two masters of the "
        "same name need two warehouses.",
    )
