"""The typed tables of a configuration as they are now: also those that its entries of many have found in their events.

An entry of many has a typed table of its own with a row for each table that its events are of. What that says makes the
entries of the others, and nothing else does: so a restart knows the same ones, and a kill loses none. What cannot
become a table is told, and the others go on: it becomes one from the beginning of its log as soon as it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from pipeline.config.configuration import Config
from pipeline.config.typed_tables import TypedTableConfig
from sinks.typed.found import folders, made_by, source_tables
from sinks.typed.source_tables import SourceTable
from sources.errors import ConfigurationError

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class FoundTables:
    """`tables` are the entries of all typed tables. `flaws` say, by entry of many, what was found and has no table."""

    tables: tuple[TypedTableConfig, ...]
    flaws: Mapping[str, tuple[ConfigurationError, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    by: TypedTableConfig
    source: SourceTable
    entry: TypedTableConfig


def found_tables(config: Config) -> FoundTables:
    """The tables of `config`, without a JVM. Prepare the storage first. Raises ReplicaError, ConfigurationError."""
    if not any(one.is_of_many for one in config.tables):
        return FoundTables(config.tables)
    flaws: dict[str, list[ConfigurationError]] = {}
    alone: dict[str, list[TypedTableConfig]] = {}
    own = {one.table_name for one in config.tables}
    candidates = sorted(_candidates(config, flaws), key=lambda one: one.entry.name)
    for name, several in groupby(candidates, lambda one: one.entry.name):
        rivals = [*several]
        owner = None if name in own else _owner(config.warehouse, rivals)
        for one in rivals:
            if one is owner:
                alone.setdefault(one.by.name, []).append(one.entry)
            else:
                flaws.setdefault(one.by.name, []).append(_contested(one, rivals))
    found: list[TypedTableConfig] = []
    for entry in config.tables:
        made, left = _within_bound(config.warehouse, entry, alone.get(entry.name, []))
        found += [entry, *made]
        if left:
            flaws.setdefault(entry.name, []).append(_beyond(entry, left))
    return FoundTables(tuple(found), {name: tuple(several) for name, several in flaws.items()})


def _candidates(config: Config, flaws: dict[str, list[ConfigurationError]]) -> Iterator[_Candidate]:
    """What the entries of `config` would make, and in `flaws` what cannot be made."""
    for by in config.tables:
        for source in source_tables(config.warehouse, by.table_name) if by.is_of_many else ():
            if by.wants(source):
                try:
                    yield _Candidate(by, source, by.of(source))
                except ConfigurationError as flaw:
                    flaws.setdefault(by.name, []).append(flaw)


def _owner(warehouse: str, rivals: Sequence[_Candidate]) -> _Candidate | None:
    """Whose the name is: if several claim it, the one by which the table was made."""
    if len(rivals) == 1:
        return rivals[0]
    made = made_by(warehouse, rivals[0].entry.name)
    return next((one for one in rivals if one.entry.definition().fingerprint == made), None)


def _contested(one: _Candidate, rivals: Sequence[_Candidate]) -> ConfigurationError:
    others = [f"{other.source} by {other.by.name}" for other in rivals if other is not one]
    return ConfigurationError(
        f"two typed tables cannot be called {one.entry.name}",
        expected=f"a name for {one.source} alone, by {one.by.name}",
        found=f"that of {', '.join(others) or 'another entry'}, too",
        hint="Give one an entry of its own, and leave it out here with exclude.",
    )


def _within_bound(
    warehouse: str, entry: TypedTableConfig, found: Sequence[TypedTableConfig]
) -> tuple[list[TypedTableConfig], list[TypedTableConfig]]:
    """The tables that `entry` makes: those that exist, and of the others the first ones; and those that are left."""
    if len(found) <= entry.max_tables:
        return [*found], []
    made = folders(warehouse)
    there = [one for one in found if one.name in made]
    others = [one for one in found if one.name not in made]
    room = max(0, entry.max_tables - len(there))
    return [*there, *others[:room]], others[room:]


def _beyond(entry: TypedTableConfig, left: Sequence[TypedTableConfig]) -> ConfigurationError:
    shown = ", ".join(one.name for one in left[:_SHOWN]) + (", …" if len(left) > _SHOWN else "")
    return ConfigurationError(
        f"the entry {entry.name} has found more tables than it may make",
        expected=f"max_tables = {entry.max_tables}",
        found=f"{len(left):,} more: {shown}",
        hint="Raise it, or leave some out with exclude. Nothing is lost: a table begins where its log does.",
    )
