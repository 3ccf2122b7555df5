"""The state of typed tables, as ``logtwin tables list``, ``status``, ``coverage`` and the report show it.

It reads the tables' own state, the positions of their logs, and the ledger for the master's times, without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.configuration import Config
from pipeline.config.found import found_tables
from pipeline.config.typed_tables import TypedTableConfig
from pipeline.monitoring.display import count, number
from sinks.delta.delta_log import LoggedVersion, newest
from sinks.delta.files import open_parquet
from sinks.proof.whole_ledger import read_ledgers, stored_through_us
from sinks.storage.errors import reported_as
from sinks.typed.columns import DELETED, Column
from sinks.typed.dead_letters import UnfitCount, unfit_count
from sinks.typed.definition import Definition
from sinks.typed.state import Followed, TypedState
from sinks.typed.step.plan import positions_at
from sinks.typed.table import path_of, standing_at
from sinks.warehouse import absolute
from sources.offsets import LogId, Offset
from sources.readable import iso, moment


@dataclass(frozen=True, slots=True)
class LogPlace:
    """How far a typed table has come in one log. `behind` is in the log's own unit.

    Nothing that the log holds is missing from its first record up to `complete_to`. `complete_through_us` is the newest
    time at which the master stored any of it, according to the ledger: microseconds since 1970, UTC.
    """

    log: str
    position: int
    log_position: int
    complete_to: int
    complete_through_us: int | None

    @property
    def behind(self) -> int:
        return max(0, self.log_position - self.position)

    def as_json(self) -> dict[str, Any]:
        said = asdict(self)
        through_us = said.pop("complete_through_us")
        through = None if through_us is None else iso(through_us, "milliseconds")
        return {**said, "complete_through": through, "behind": self.behind}


@dataclass(frozen=True, slots=True)
class TypedStatus:
    """The state of a typed table; docs/json.md documents every key.

    `counts` are None if the table does not exist yet. `unmatched` are topics of `source` of which no message
    has come; if that is all of them, nothing is said to be complete. `flaws` say of an entry of many which tables that
    it has found are not made, and why.
    """

    name: str
    source: tuple[str, ...]
    mode: str
    counts: TypedCounts | None
    columns: tuple[Column, ...]
    logs: tuple[LogPlace, ...]
    unmatched: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()

    @property
    def logs_behind(self) -> int:
        return sum(one.behind > 0 for one in self.logs)

    @property
    def complete_through_us(self) -> int | None:
        """The earliest `complete_through_us` of its logs; None if it is unknown for one of them."""
        times = [one.complete_through_us for one in self.logs]
        known = [one for one in times if one is not None]
        return min(known) if known and len(known) == len(times) else None

    @property
    def figures(self) -> dict[str, int | None]:
        """The counts by their keys."""
        return NO_COUNTS if self.counts is None else self.counts.as_json()

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "from": list(self.source),
            "mode": self.mode,
            **self.figures,
            "unmatched": list(self.unmatched),
            "flaws": list(self.flaws),
            "columns": [
                {"name": one.name, "field": one.field or None, "sql": one.sql, "type": one.kind} for one in self.columns
            ],
            "logs": [one.as_json() for one in self.logs],
        }


def typed_statuses(config: Config) -> list[TypedStatus]:
    """The state of every typed table of the configuration. Raises ReplicaError."""
    # Read before their logs, so that no table seems to be ahead of its log
    now = found_tables(config)
    found = [_Standing.of(config, one) for one in now.tables]
    sources = {one.wanted.source.name: one.wanted.source.path(absolute(config.warehouse)) for one in found}
    logs = {name: newest(path) for name, path in sources.items()}
    begun = {log_id for one in found for log_id, followed in one.logs.items() if not followed.whole.is_empty}
    # Rows that a killed commit still owes to the ledger lack only their time, until the next start writes them
    ledgers = read_ledgers(config.warehouse, dict.fromkeys(begun, ())) if begun else {}
    told = (one.status(config, logs[one.wanted.source.name], ledgers) for one in found)
    return [
        replace(status, flaws=tuple(map(str, now.flaws.get(one.name, ()))))
        for one, status in zip(now.tables, told, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Standing:
    """A typed table of the configuration, and its newest version if it exists."""

    of_config: TypedTableConfig
    wanted: Definition
    version: LoggedVersion | None
    columns: tuple[Column, ...]
    state: TypedState | None

    @classmethod
    def of(cls, config: Config, one: TypedTableConfig) -> _Standing:
        wanted = one.definition()
        version = newest(path_of(config.warehouse, wanted.name))
        return cls(one, wanted, version, *(((), None) if version is None else standing_at(version, wanted.name)))

    @property
    def logs(self) -> Mapping[LogId, Followed]:
        return {} if self.state is None else self.state.logs

    def status(self, config: Config, on: LoggedVersion | None, ledgers: Mapping[LogId, pa.Table]) -> TypedStatus:
        """The state of the table; `on` is the table of records that it is made from."""
        held = {} if on is None else positions_at(on, self.wanted)
        unmatched = () if self.state is None else self.wanted.unmatched(self.state.sources)
        if unmatched == self.wanted.sources:
            ledgers = {}
        places = tuple(self._place(log_id, at, ledgers.get(log_id)) for log_id, at in sorted(held.items()))
        name, source, mode = self.wanted.name, self.of_config.from_, self.of_config.mode
        if self.version is None or self.state is None:
            return TypedStatus(name, source, mode, None, self.wanted.declared(), places)
        deleted = self._deleted(path_of(config.warehouse, name), self.version)
        rows = sum(file.statistics()["numRecords"] for file in self.version.files.values()) - deleted
        counts = TypedCounts(rows, deleted, unfit_count(config.warehouse, name, self.state.generation))
        return TypedStatus(name, source, mode, counts, self.columns, places, unmatched)

    def _deleted(self, folder: str, version: LoggedVersion) -> int:
        """How many keys are deleted: statistics do not say."""
        if DELETED not in self.columns:
            return 0
        with reported_as(f"the typed table in {folder} cannot be read", hint="Restore the file from a copy."):
            return sum(_true(folder, file.path) for file in version.files.values())

    def _place(self, log_id: LogId, log_position: Offset, ledger: pa.Table | None) -> LogPlace:
        followed = self.logs.get(log_id, Followed(0, Offset(0)))
        through_us = None if ledger is None else stored_through_us(ledger, followed.whole)
        return LogPlace(str(log_id), followed.offset, log_position, followed.whole.end, through_us)


def _true(folder: str, file: str) -> int:
    with open_parquet(folder, file) as opened:
        return int(pc.sum(opened.read(columns=[DELETED.name])[DELETED.name]).as_py() or 0)


def status_lines(found: Sequence[TypedStatus]) -> Iterator[str]:
    """The state of typed tables as lines of text for a person."""
    if not found:
        yield "no [[tables]] in the configuration; logtwin tables add --from TOPIC writes one"
    for one in found:
        yield f"{one.name}: {one.mode}, from {', '.join(one.source)}"
        if one.counts is None:
            yield "  not created yet: a job makes it"
            continue
        yield f"  {one.counts}; {count(len(one.columns), 'column')}"
        if one.unmatched:
            yield f"  no message of {', '.join(one.unmatched)} so far: logtwin tables check {one.name} says why"
        yield from (f"  {flaw}" for flaw in one.flaws)
        for place in one.logs:
            yield f"  {place.log}: {_place_words(place)}"


def _place_words(one: LogPlace) -> str:
    words = [f"at {number(one.position)}"]
    words.append("up to date" if not one.behind else f"{number(one.behind)} behind {number(one.log_position)}")
    if one.complete_to < one.position:
        words.append(f"with gaps from {number(one.complete_to)} on")
    if one.complete_through_us is not None:
        words.append(f"complete through {moment(one.complete_through_us)}")
    return ", ".join(words)


_NOTHING: Final = UnfitCount()


@dataclass(frozen=True, slots=True)
class TypedCounts:
    """The counts of a typed table; docs/json.md documents every key.

    `rows` are those that queries see. `deleted` keys have a row each, too, in the Delta table itself.
    """

    rows: int
    deleted: int = 0
    unfit: UnfitCount = _NOTHING

    def as_json(self) -> dict[str, int | None]:
        unfit = self.unfit
        figures = (self.rows, self.deleted, unfit.values, unfit.messages, unfit.without_row)
        return dict(zip(NO_COUNTS, figures, strict=True))

    def __str__(self) -> str:
        deleted = f" ({self.deleted:,} deleted since)" if self.deleted else ""
        return f"{count(self.rows, 'row')}{deleted}, {unfit_words(self.unfit)}"


NO_COUNTS: Final[dict[str, int | None]] = dict.fromkeys(
    ("rows", "deleted", "unfit_values", "unfit_messages", "without_row")
)
"""The counts of a table that is not made yet."""


def unfit_words(unfit: UnfitCount) -> str:
    if not unfit.values:
        return "no value unfit"
    without_row = f", {unfit.without_row:,} of these without a row" if unfit.without_row else ""
    return f"{count(unfit.values, 'value')} unfit in {count(unfit.messages, 'message')}{without_row}"
