"""Describes the facts of a log: each once, where a dataclass declares it, with its meaning, its readers and its metric.

    writer: Annotated[str | None, Fact("of the table: which run owns the log")] = None

`as_json` makes the run file and ``logtwin status --json``, `told_by` reads the former, `documented` makes the table of
docs/json.md, and `pipeline/monitoring/metrics.py` the metrics. A field without a `Fact` stays within the job. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from sources.offsets import UNITS, Unit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNIT: Final = "{unit}"
"""In a key: what the log's offsets count. JSON has a key for each unit; those of others are null."""

T = TypeVar("T", bound="DataclassInstance")


class Readers(enum.Flag):
    """Who reads a fact beside metrics: the file of the run, which a job fills in, and ``logtwin status``."""

    RUN_FILE = enum.auto()
    STATUS = enum.auto()
    BOTH = RUN_FILE | STATUS
    NOBODY = 0


@dataclass(frozen=True, slots=True)
class Metric:
    """How Prometheus is told of a fact. `name` has no ``logtwin_``; that of a counter ends in ``_total``.

    With `units` there is a metric for each of them, for the logs whose offsets count it; its name ends in the unit.
    `meaning` is given if it differs from the fact's. The value is the field's, or what `value` makes of all facts. With
    a `label` it is a mapping from the label's values to numbers.
    """

    name: str
    units: tuple[Unit, ...] = ()
    meaning: str = ""
    label: str = ""
    value: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What a field says. `key` is its name in JSON, if that is not the field's."""

    meaning: str
    readers: Readers = Readers.BOTH
    key: str = ""
    metric: Metric | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """A field and its description. `kind`: the type of its value in JSON, in words."""

    name: str
    fact: Fact
    kind: str

    def keys(self, units: tuple[Unit, ...]) -> list[str]:
        """Its keys in JSON: one, or one for each of `units`."""
        key = self.fact.key or self.name
        return [key.replace(UNIT, unit) for unit in units] if UNIT in key else [key]


@cache
def described(facts: type) -> tuple[Described, ...]:
    """The facts that a dataclass declares, in order."""
    return tuple(
        Described(name, fact, _kind(get_args(hint)[0]))
        for name, hint in get_type_hints(facts, include_extras=True).items()
        for fact in getattr(hint, "__metadata__", ())
    )


def as_json(of: object, readers: Readers, unit: Unit, units: tuple[Unit, ...] = UNITS) -> dict[str, Any]:
    """The facts that one of `readers` reads, by key, for JSON. `unit` is what the log's offsets count, of `units`."""
    found: dict[str, Any] = {}
    for one in described(type(of)):  # type: ignore[arg-type]  # to mypy, not every class is hashable
        if one.fact.readers & readers:
            value, (key, *others) = getattr(of, one.name), one.keys((unit, *units))
            found |= dict.fromkeys(others) | {key: value}
    return found


def told_by(said: Mapping[str, Any], facts: T) -> T:
    """`facts` with what `said`, from `as_json`, says of them; what it does not say stays."""
    named = {one.name: one.fact.key or one.name for one in described(type(facts))}
    return replace(facts, **{name: said[key] for name, key in named.items() if key in said})


def documented(facts: type, units: tuple[Unit, ...] = UNITS) -> Iterator[str]:
    """The rows that document the facts in ``logtwin status --json``: keys, type, meaning; in Markdown."""
    for one in described(facts):
        if one.fact.readers & Readers.STATUS:
            keys = ", ".join(f"`{key}`" for key in one.keys(units))
            yield f"| {keys} | {one.kind} | {one.fact.meaning} |"


_KINDS: Final[Mapping[object, str]] = {str: "text", int: "integer", float: "number", bool: "true or false"}


def _kind(hint: Any) -> str:
    """The name of a type in JSON. Any collection is a list: no fact is an object."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (getattr(one, "__supertype__", one) for one in kinds if one is not type(None))
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        kind = str
    return _KINDS.get(kind, "list") + (" or null" if type(None) in kinds else "")
