"""``logtwin tables all`` and ``show``: the tables and views of a replica, their columns, and what each means.

Every replica has the same ones, and a configuration adds its typed tables. The schemas of tables are known in advance,
those of typed tables are in their Delta logs. The types of a view's columns come from Spark, which analyses the view's
query over empty tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from pyspark.sql.types import StructType
from rich.table import Table
from rich.text import Text

from pipeline.config.configuration import Config
from pipeline.config.found import found_tables
from pipeline.spark.session import session_for
from sinks.delta.delta_log import newest
from sinks.tables import TABLES
from sinks.typed.table import path_of
from sinks.views.definition import VIEWS, named_in, view
from sinks.views.registration import register_views
from sinks.warehouse import empty_table, spark_schema
from sources.errors import QueryError


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a table or view; `type` is written as in Spark SQL."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view; `columns` is None if only the relations are listed."""

    name: str
    kind: Literal["view", "table"]
    comment: str
    columns: tuple[ColumnInfo, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def listed(config: Config | None = None) -> list[Relation]:
    """All tables and views, without their columns: the views first, and the typed tables of `config` last.

    Raises ReplicaError if it cannot be read which ones an entry of many has found.
    """
    views = [Relation(name, "view", view(name).comment) for name in VIEWS]
    typed = [
        Relation(one.table_name, "table", f"typed table, {one.mode}, from {', '.join(one.from_)}")
        for one in (() if config is None else found_tables(config).tables)
    ]
    return [*views, *(Relation(spec.name, "table", spec.comment) for spec in TABLES), *typed]


def described(name: str, config: Config | None = None) -> Relation:
    """The table or view `name` with its columns. Raises QueryError if there is none; ReplicaError if a typed table
    cannot be read."""
    relations = {one.name: one for one in listed(config)}
    found = relations.get(name)
    if found is None:
        near = get_close_matches(name, relations, n=2)
        hint = f"Did you mean {' or '.join(near)}?" if near else "logtwin tables all names all."
        raise QueryError(f"there is no table or view {name}", hint=hint)
    if config is not None and found not in listed():
        return replace(found, columns=_typed_columns(name, config))
    columns = _view_columns(name) if found.kind == "view" else _table_columns(name)
    return replace(found, columns=columns)


def _table_columns(name: str) -> tuple[ColumnInfo, ...]:
    (spec,) = (spec for spec in TABLES if spec.name == name)
    return _columns_of(spark_schema(spec.schema))


def _typed_columns(name: str, config: Config) -> tuple[ColumnInfo, ...]:
    version = newest(path_of(config.warehouse, name))
    if version is None:
        raise QueryError(f"the typed table {name} is not there yet", hint="A job makes it: logtwin replicate.")
    return _columns_of(StructType.fromJson(json.loads(version.schema_json())))


def _columns_of(schema: StructType) -> tuple[ColumnInfo, ...]:
    return tuple(
        ColumnInfo(field.name, field.dataType.simpleString(), field.metadata.get("comment", "")) for field in schema
    )


def _view_columns(name: str) -> tuple[ColumnInfo, ...]:
    spark = session_for(Config()).newSession()
    for spec in TABLES:
        spark.sql(empty_table(spec)).createOrReplaceTempView(spec.name)
    register_views(spark, named_in(name))
    comments = view(name).columns
    return tuple(
        ColumnInfo(one.name, one.dataType.simpleString(), comments[one.name]) for one in spark.table(name).schema
    )


def relation_lines(found: list[Relation]) -> Iterator[str]:
    """The tables and views as lines of text for a person."""
    margin = max(len(one.name) for one in found) + 2
    for kind in ("view", "table"):
        yield f"{kind}s"
        yield from (f"  {one.name:<{margin}}{one.comment}" for one in found if one.kind == kind)


def relation_table(found: list[Relation], known: Iterable[str]) -> Table:
    """The tables and views as a table of text. Names in `known` that are not in `found` are typed tables."""
    table = Table("name", "kind", "what it is", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.name, one.kind, Text(one.comment))
    names = {one.name for one in found}
    for name in sorted(set(known) - names):
        table.add_row(name, "table", "typed table of this replica")
    return table


def column_lines(one: Relation) -> Iterator[str]:
    """The columns of a table or view as lines of text for a person."""
    yield f"{one.name}: {one.comment}"
    columns = one.columns or ()
    names, types = (max(map(len, words)) + 2 for words in zip(*((c.name, c.type) for c in columns), strict=True))
    for column in columns:
        yield f"  {column.name:<{names}}{column.type:<{types}}{column.comment}"
