"""``[[tables]]``: the typed tables that a job makes of the messages that it replicates."""

from __future__ import annotations

import re
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from sinks.tables import TABLES
from sinks.typed.columns import arrow_type, column_name, is_name
from sinks.typed.definition import Definition
from sinks.views.definition import VIEWS
from sources.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
_TAKEN: Final = {*VIEWS, *(spec.name for spec in TABLES)}
_KAFKA: Final = "kafka/"
_KAFKA_SLASHES: Final = 2


class Computed(BaseModel):
    """A column that is computed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(description="of the column")
    sql: str = Field(min_length=1, description="an expression over the table's other columns")


class TypedTableConfig(BaseModel):
    """One typed table."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(description="names the table: in SQL, and its folder <warehouse>/tables/<name>")
    from_: tuple[str, ...] = Field(
        alias="from", min_length=1, description="topics of RocketMQ, or Kafka's by their ids kafka/<cluster>/<topic>"
    )
    logs: tuple[str, ...] = Field(
        (), description="of RocketMQ: the logs by their ids; by default all that have the topics"
    )
    tags: tuple[str, ...] = Field((), description="of RocketMQ: messages with one of these tags; by default all")
    where: str | None = Field(
        None, description="SQL condition over the columns of messages, or of kafka_records, that a message has to meet"
    )
    format: Literal["json", "text"] = Field("json", description="of the bodies: JSON objects, or text in one column")
    schema_: dict[str, str] | Literal["infer"] = Field(
        "infer", alias="schema", description='fields and their types; "infer" makes columns of what the messages have'
    )
    mode: Literal["append", "upsert"] = Field("append", description="a row for each message, or the newest of each key")
    key: tuple[str, ...] = Field((), description="of upsert: the fields that name a row")
    deletes: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="of upsert: fields, each with the values by which a message deletes its row"
    )
    tombstones: bool = Field(
        False, description="of upsert from Kafka: a record without a value deletes the row that its key names"
    )
    rename: dict[str, str] = Field(default_factory=dict, description="what the columns of these fields are called")
    mask: dict[str, Literal["hash", "null", "redact"]] = Field(
        default_factory=dict, description="fields whose values are hidden: SHA-256 of them, null, or three stars"
    )
    drop: tuple[str, ...] = Field((), description="fields that are left out")
    compute: dict[str, Computed] = Field(
        default_factory=dict, description="columns that SQL computes of the others, each with its type"
    )
    on_bad: Literal["quarantine", "stop"] = Field(
        "quarantine", description="what does not fit goes to the table unfit, or the table stops there"
    )
    max_columns: PositiveInt = Field(200, le=1000, description="fields beyond stay in the column _rest")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"name: small letters, digits and _, beginning with a letter, and not {self.name!r}")
        if self.name in _TAKEN:
            raise ValueError(f"name: another than {self.name}, which every replica has")
        of_kafka = {one.startswith(_KAFKA) for one in self.from_}
        if len(of_kafka) > 1:
            raise ValueError("from: topics of RocketMQ, or of Kafka, not both in one table")
        wrong = [one for one in self.from_ if one.startswith(_KAFKA) and one.count("/") != _KAFKA_SLASHES]
        if wrong:
            raise ValueError(f"from: kafka/<cluster>/<topic>, and not {wrong[0]!r}")
        if of_kafka == {True} and (self.logs or self.tags):
            raise ValueError("logs and tags are of RocketMQ")
        if (self.mode == "upsert") != bool(self.key):
            raise ValueError('key with mode = "upsert", and only with that')
        if (self.deletes or self.tombstones) and self.mode != "upsert":
            raise ValueError('deletes and tombstones with mode = "upsert", and only with that')
        if self.tombstones and of_kafka == {False}:
            raise ValueError("tombstones are of Kafka; messages of RocketMQ have a body")
        if self.format == "text" and self.schema_ != "infer":
            raise ValueError('schema with format = "json"; of text there is one column, text')
        self._check_fields()
        return self

    def _check_fields(self) -> None:
        names = [*self.rename.values(), *(self.schema_ if isinstance(self.schema_, dict) else ())]
        nameless = [one for one in names if not is_name(self.rename.get(one, one))]
        if nameless:
            raise ValueError(f"a column cannot be called {nameless[0]!r}: rename it")
        for kind in self.schema_.values() if isinstance(self.schema_, dict) else ():
            arrow_type(kind)
        self._check_computed()
        hidden = [one for one in self.key if one in self.drop or self.mask.get(one) == "null"]
        if hidden:
            raise ValueError(f"{hidden[0]} is a key, and cannot be left out")
        missing = [one for one in self.key if isinstance(self.schema_, dict) and one not in self.schema_]
        if missing:
            raise ValueError(f"{missing[0]} is a key, and needs a type in schema")

    def _check_computed(self) -> None:
        if self.compute and self.format != "text" and self.schema_ == "infer":
            raise ValueError("compute with a schema that is declared: what is found may be missing, or change")
        taken = {"text"} if self.format == "text" else {self.rename.get(one, one) for one in self.schema_}
        for name, one in self.compute.items():
            arrow_type(one.type)
            if one.type in ("json", "timestamp_ms"):
                raise ValueError(f"{name} is computed: string or timestamp, and not {one.type}")
            if column_name(name, {}) != name or name in taken:
                raise ValueError(f"a computed column cannot be called {name!r}")

    def definition(self) -> Definition:
        """What it comes to."""
        is_kafka = self.from_[0].startswith(_KAFKA)
        return Definition(
            name=self.name,
            topics=() if is_kafka else self.from_,
            kafka_topics=self.from_ if is_kafka else (),
            logs=self.logs,
            tags=self.tags,
            where=self.where,
            format=self.format,
            schema=None if self.schema_ == "infer" else dict(self.schema_),
            key=self.key,
            deleted=self.deletes,
            tombstones=self.tombstones,
            renamed=self.rename,
            masks=dict(self.mask),
            dropped=self.drop,
            computed={name: (one.type, one.sql) for name, one in self.compute.items()},
            max_columns=self.max_columns,
            stops_at_unfit=self.on_bad == "stop",
        )


def check_names(tables: tuple[TypedTableConfig, ...], where: str) -> None:
    """Raises ConfigurationError where two have one name."""
    names = [one.name for one in tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"{where}: a typed table is listed twice", expected="each name once", found=", ".join(twice)
        )
