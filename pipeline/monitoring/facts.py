"""Describes the facts of a log: each once, where a dataclass declares it, with its meaning, its readers and its metric.

    writer: Annotated[str | None, Fact("of the table: which run owns the log")] = None

`as_json` makes the run file and ``logtwin status --json``, `told_by` reads the former, and
`pipeline/monitoring/metrics.py` makes the metrics; docs/json.md has a row for each. A field without a `Fact` stays
within the job. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from sources.offsets import UNITS, Unit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

UNIT: Final = "{unit}"
"""In a key: what the log's offsets count. JSON has a key for each unit; those of others are null."""

T = TypeVar("T", bound="DataclassInstance")


class Readers(enum.Flag):
    """Who reads a fact: the file of the run, which a job fills in, and ``logtwin status``."""

    RUN_FILE = enum.auto()
    STATUS = enum.auto()
    BOTH = RUN_FILE | STATUS


@dataclass(frozen=True, slots=True)
class Fact:
    """The meaning of a field. `key` is its name in JSON, if it is not the field's; `kind` its type there, in words."""

    meaning: str
    readers: Readers = Readers.BOTH
    key: str = ""
    kind: str = ""

    def keys(self, units: tuple[Unit, ...]) -> list[str]:
        """Its keys in JSON: one, or one for each of `units`."""
        return [self.key.replace(UNIT, unit) for unit in units] if UNIT in self.key else [self.key]


@dataclass(frozen=True, slots=True)
class Metric:
    """How Prometheus is told of a field. `name` has no ``logtwin_``; that of a counter ends in ``_total``.

    `meaning` is given if it is not the fact's. With `units` there is a metric for each of them, for the logs whose
    offsets count it; its name ends in the unit. The value is the field's, or what `value` makes of all of them; with a
    `label` it is a mapping from the label's values to numbers.
    """

    name: str
    meaning: str = ""
    units: tuple[Unit, ...] = ()
    label: str = ""
    value: Callable[[Any], Any] | None = None


def facts_of(declared: type) -> dict[str, Fact]:
    """The facts that a dataclass declares, by field, in order."""
    return {
        name: replace(one, key=one.key or name, kind=_kind(get_args(hint)[0]))
        for name, hint, one in _annotations(declared)
        if isinstance(one, Fact)
    }


def metrics_of(declared: type) -> Iterator[tuple[Metric, Callable[[Any], Any]]]:
    """The metrics that a dataclass declares, with their meanings, each with what takes its value from an instance."""
    facts = facts_of(declared)
    for name, _, one in _annotations(declared):
        if isinstance(one, Metric):
            meaning = one.meaning or facts[name].meaning
            yield replace(one, meaning=meaning), one.value or attrgetter(name)


def _annotations(declared: type) -> Iterator[tuple[str, Any, object]]:
    """Yield each annotation of a field: the field's name, its type hint, and the annotation."""
    for name, hint in get_type_hints(declared, include_extras=True).items():
        yield from ((name, hint, one) for one in getattr(hint, "__metadata__", ()))


def as_json(of: object, readers: Readers, unit: Unit, units: tuple[Unit, ...] = UNITS) -> dict[str, Any]:
    """The facts that one of `readers` reads, by key, for JSON. `unit` is what the log's offsets count, of `units`."""
    nulls, names = _told(type(of), readers, unit, units)  # type: ignore[arg-type]  # to mypy, classes are not hashable
    return nulls | {key: getattr(of, name) for key, name in names.items()}


@cache
def _told(
    declared: type, readers: Readers, unit: Unit, units: tuple[Unit, ...]
) -> tuple[dict[str, None], dict[str, str]]:
    """All keys in order, each with the name of its field."""
    told = {name: fact for name, fact in facts_of(declared).items() if fact.readers & readers}
    nulls = dict.fromkeys(key for fact in told.values() for key in fact.keys(units))
    return nulls, {fact.key.replace(UNIT, unit): name for name, fact in told.items()}


def told_by(said: Mapping[str, Any], facts: T) -> T:
    """Return `facts` updated by `said`, which comes from `as_json`; what it lacks stays."""
    keys = {name: fact.key for name, fact in facts_of(type(facts)).items() if fact.key in said}
    return replace(facts, **{name: said[key] for name, key in keys.items()})


_KINDS: Final[Mapping[object, str]] = {str: "text", int: "integer", float: "number", bool: "true or false"}


def _kind(hint: Any) -> str:
    """The name of a type in JSON. Any collection is a list: no fact is an object."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (getattr(one, "__supertype__", one) for one in kinds if one is not type(None))
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        kind = str
    return _KINDS.get(kind, "list") + (" or null" if type(None) in kinds else "")
