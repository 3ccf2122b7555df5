"""``[[tables]]``: the typed tables that a job makes from the messages that it replicates."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sinks.tables import TABLES
from sinks.typed.columns import PLACE, REST, VALID_TO, column_name
from sinks.typed.definition import CHANGES, Definition, Reading
from sinks.typed.formats.json_fields import UNKNOWN
from sinks.typed.hidden import Hidden, cuts
from sinks.typed.kinds import arrow_type, is_name, is_nested, normal_kind
from sinks.typed.patterns import check_topic
from sinks.typed.readers import kinds
from sinks.typed.source_tables import KEY, KINDS, SourceTable, exactly
from sinks.views.definition import VIEWS
from sources.access.security import Secret, place_of
from sources.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")
_PLACE: Final = re.compile(r"\{(database|schema|table)\}")
_TAKEN: Final = {*VIEWS, *(spec.name for spec in TABLES)}
_MOST_TABLES: Final = 100
_KAFKA: Final = "kafka/"
_KAFKA_SLASHES: Final = 2
_SCHEMATIC: Final = ("avro", "protobuf")
_ORDERS: Final = {"canal": "log", "debezium": "source", "maxwell": "log"}
"""What decides which of two changes is the later one: only Debezium's events always say where they stand."""
_URLS: Final = ("http://", "https://")
_REGISTRY: Final = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?")
_NO_PART: Final = "there is no such part, or it is one of a map whose values are no texts"
_SEPARATOR: Final = re.compile(r'[^"\r\n]')


class Computed(BaseModel):
    """A column that SQL computes from the others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(description="of the column")
    sql: str = Field(min_length=1, description="an expression over the table's other columns")


class TypedTableConfig(BaseModel):
    """One ``[[tables]]`` table: a typed table."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(
        description="names the table: in SQL, and its folder <warehouse>/tables/<name>; with {table} in it, and "
        "perhaps {database} and {schema}, the entry makes a table of each table that its change events are of"
    )
    from_: tuple[str, ...] = Field(
        alias="from",
        min_length=1,
        description="topics of RocketMQ, or Kafka's by their ids kafka/<cluster>/<topic>; "
        "a topic may be a regular expression for whole names",
    )
    logs: tuple[str, ...] = Field(
        (), description="of RocketMQ: the logs by their ids; by default all that have the topics"
    )
    tags: tuple[str, ...] = Field((), description="of RocketMQ: messages with one of these tags; by default all")
    where: str | None = Field(
        None, description="SQL condition over the columns of messages, or of kafka_records, that a message has to meet"
    )
    format: Literal["json", "text", "csv", "avro", "protobuf", "canal", "debezium", "maxwell"] = Field(
        "json",
        description="of the bodies: JSON objects, text in one column, a record of CSV, of Avro, of protobuf; or change "
        "events of a database: Canal's, Debezium's, Maxwell's",
    )
    database: str | None = Field(
        None, description="of change events: the database that the rows are of, or a regular expression for whole names"
    )
    table: str | None = Field(None, description="of change events: the rows' table; as above")
    exclude: tuple[str, ...] = Field(
        (), description="with {table} in name: not these, names or patterns of <database>.<table>"
    )
    max_tables: PositiveInt = Field(_MOST_TABLES, le=1000, description="as above: how many it makes")
    order: Literal["source", "log"] | None = Field(
        None,
        description="of change events: of two of a key the later one at its source wins, or the later one in the log; "
        "by default source with debezium, log with canal and maxwell",
    )
    time_zone: str = Field("UTC", description="of canal: the zone that Canal writes TIMESTAMP in")
    schema_: dict[str, str] | str = Field(
        "infer",
        alias="schema",
        description='fields and their types; "infer" makes columns of what the messages have; of Avro and protobuf the '
        "path of a schema file (.avsc, a descriptor set), or the URL of a schema registry; of debezium that, too",
    )
    nested: bool = Field(
        False,
        description="of a schema file or a registry: objects, lists and maps become struct, array and map instead of "
        "JSON text",
    )
    message: str | None = Field(None, description="of protobuf with a descriptor set: which message the bodies are")
    separator: str | None = Field(None, description="of CSV: what is between fields; by default a comma")
    registry_username: Secret | None = Field(None, description="for the registry: env:NAME or file:PATH")
    registry_password: Secret | None = Field(None, description="as above")
    mode: Literal["append", "upsert", "history"] = Field(
        "append",
        description="a row for each message; the newest of each key; or one for each change of a key, with the times "
        "from and until which it stood",
    )
    key: tuple[str, ...] = Field((), description="of upsert and history: the fields that name a row")
    deletes: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="of upsert and history: fields, each with the values by which a message deletes its row",
    )
    tombstones: bool = Field(
        False, description="of these from Kafka: a record without a value deletes the row that its key names"
    )
    keep_deleted: bool = Field(
        False, description="of upsert of change events: a deleted row stays, and has the time in _deleted_at"
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

    _mentioned: str = PrivateAttr("")
    """The name of the table that an entry of many has found; empty if what is no event has to be told here, too."""

    @field_validator("registry_username", "registry_password", mode="before")
    @classmethod
    def _place(cls, given: object, info: ValidationInfo) -> Secret | None:
        return None if given is None else place_of(given, str(info.field_name))

    @field_validator("schema_", mode="before")
    @classmethod
    def _without_keys(cls, given: object) -> object:
        if isinstance(given, str) and given.startswith(_URLS) and urlsplit(given).username is not None:
            raise ConfigurationError(  # without repeating it
                "schema is a URL with credentials",
                expected="http://HOST:PORT",
                hint="Name their places in registry_username and registry_password.",
            )
        return given

    @field_validator("schema_")
    @classmethod
    def _in_normal_words(cls, given: dict[str, str] | str) -> dict[str, str] | str:
        return given if isinstance(given, str) else {name: normal_kind(kind) for name, kind in given.items()}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._check()
        return self

    def _check(self) -> None:
        self._check_name()
        self._check_from()
        is_keyed = self.mode != "append"
        if is_keyed != bool(self.key) and not (self.is_of_many and is_keyed):
            raise ValueError('key with mode = "upsert" or "history", and only with these')
        if (self.deletes or self.tombstones) and not is_keyed:
            raise ValueError('deletes and tombstones with mode = "upsert" or "history", and only with these')
        if self.keep_deleted and self.mode == "history":
            raise ValueError('no keep_deleted with mode = "history", which keeps what was there before a deletion')
        if self.tombstones and not self.from_[0].startswith(_KAFKA):
            raise ValueError("tombstones only with topics of Kafka; messages of RocketMQ have a body")
        self._check_format()
        self._check_changes()
        self._check_fields()

    @property
    def is_of_many(self) -> bool:
        """Whether it makes a table of each table that its events are of."""
        return "{" in self.name

    @property
    def table_name(self) -> str:
        """The typed table of the entry; of an entry of many the one that says which tables were found."""
        return f"found_{_PLACE.sub(lambda one: one[1], self.name)}" if self.is_of_many else self.name

    def _check_name(self) -> None:
        if _NAME.fullmatch(_PLACE.sub("x", self.name)) is None or _NAME.fullmatch(self.table_name) is None:
            raise ValueError(f"name: small letters, digits and _, beginning with a letter, and not {self.name!r}")
        if self.table_name in _TAKEN:
            raise ValueError(f"name: one other than {self.name}, which every replica has")
        if self.is_of_many and (self.format not in CHANGES or "{table}" not in self.name):
            raise ValueError(f"name: with {{table}}, and perhaps {{database}} and {{schema}}, of {_listed(CHANGES)}")
        if self.is_of_many and self._has_registry:
            raise ValueError(
                'schema = "infer", or a table of fields, with {table} in name: registries have an entry each'
            )
        if not self.is_of_many and (self.exclude or self.max_tables != _MOST_TABLES):
            raise ValueError("exclude and max_tables only with {table} in name")

    def _check_from(self) -> None:
        of_kafka = {one.startswith(_KAFKA) for one in self.from_}
        if len(of_kafka) > 1:
            raise ValueError("from: topics of RocketMQ, or of Kafka, not both in one table")
        wrong = [one for one in self.from_ if one.startswith(_KAFKA) and one.count("/") != _KAFKA_SLASHES]
        if wrong:
            raise ValueError(f"from: kafka/<cluster>/<topic>, and not {wrong[0]!r}")
        for one in self.from_:
            try:
                check_topic(one)
            except ValueError as error:
                raise ValueError(f"from: {error}") from error
        if of_kafka == {True} and (self.logs or self.tags):
            raise ValueError("logs and tags only with topics of RocketMQ")

    def _check_format(self) -> None:
        fields = self.schema_ if isinstance(self.schema_, dict) else None
        is_found = self.schema_ == "infer"
        if self.format == "text" and not is_found:
            raise ValueError('no schema with format = "text", which has one column, text')
        if self.format == "json" and fields is None and not (is_found or self._has_registry):
            raise ValueError('schema = "infer", a table of fields, or a registry\'s URL, with format = "json"')
        if self.format == "csv" and (fields is None or any(one == "json" or is_nested(one) for one in fields.values())):
            raise ValueError(
                'schema with format = "csv": a table of all fields in their order, none of type json or nested'
            )
        if self.format in _SCHEMATIC and (fields is not None or is_found):
            raise ValueError(f'schema with format = "{self.format}": the path of a schema file, or a registry\'s URL')
        if (self.message is not None) != (self.format == "protobuf" and not self._has_registry):
            raise ValueError('message with format = "protobuf" and a descriptor set, and only with that')
        if self.separator is not None and (self.format != "csv" or _SEPARATOR.fullmatch(self.separator) is None):
            raise ValueError('separator with format = "csv": one character, no quote and no end of a line')
        if (self.registry_username is None) != (self.registry_password is None):
            raise ValueError("registry_username and registry_password: both, or none")
        if self.registry_username is not None and not self._has_registry:
            raise ValueError("registry_username with the URL of a registry as schema")
        url = str(self.schema_)
        if self._has_registry and (_REGISTRY.fullmatch(url) is None or urlsplit(url).port == 0):
            raise ValueError("schema: http://HOST:PORT, perhaps with a path")

    def _check_changes(self) -> None:
        if self.format not in CHANGES:
            if self.database or self.table or self.order or self.time_zone != "UTC" or self.keep_deleted:
                raise ValueError(f"database, table, order, time_zone and keep_deleted only with {_listed(CHANGES)}")
            return
        if self.mode == "append" or self.deletes or self.tombstones:
            raise ValueError(f'mode = "upsert" or "history", and no deletes or tombstones: format = "{self.format}"')
        has_registry = self.format == "debezium" and self._has_registry
        if isinstance(self.schema_, str) and self.schema_ != "infer" and not has_registry:
            registry = ", or a registry's URL" if self.format == "debezium" else ""
            raise ValueError(f'schema = "infer", or a table of fields{registry}, with format = "{self.format}"')
        if not self.is_of_many and (not self.database or not self.table):
            raise ValueError(f'database and table with format = "{self.format}": names of the source, or patterns')
        self._check_patterns()
        if self.time_zone != "UTC" and self.format != "canal":
            raise ValueError('time_zone with format = "canal"; the others say UTC')
        try:
            ZoneInfo(self.time_zone)
        except (ValueError, OSError, ZoneInfoNotFoundError) as error:
            raise ValueError(f"time_zone: a name such as Asia/Shanghai, and not {self.time_zone!r}") from error

    def _check_patterns(self) -> None:
        for key, several in {"database": [self.database], "table": [self.table], "exclude": self.exclude}.items():
            for one in several:
                try:
                    check_topic(one or "")
                except ValueError as error:
                    raise ValueError(f"{key}: a name, or a plain regular expression, and not {one!r}") from error

    @property
    def _has_registry(self) -> bool:
        return isinstance(self.schema_, str) and self.schema_.startswith(_URLS)

    def _check_fields(self) -> None:
        if self.nested and self.format not in (*_SCHEMATIC, *(["json"] if self._has_registry else [])):
            raise ValueError("nested with a schema file or a registry, of avro, protobuf or json")
        names = [*self.rename.values(), *(self.schema_ if isinstance(self.schema_, dict) else ())]
        nameless = [one for one in names if not is_name(self.rename.get(one, one))]
        if nameless:
            raise ValueError(f"a column cannot be called {nameless[0]!r}: rename it")
        self._check_computed()
        declared = ("text",) if self.format == "text" else self.schema_ if isinstance(self.schema_, dict) else ()
        twice = _taken(self._column_names(declared))
        if twice:
            raise ValueError(f"two columns cannot be called {twice[0]!r}, ignoring case: rename one")
        hidden = [one for one in self.key if one in self.drop or self.mask.get(one) == "null"]
        if hidden:
            raise ValueError(f"{hidden[0]} is a key, and cannot be left out")
        if isinstance(self.schema_, dict):
            self._check_declared(self.schema_)

    def _check_declared(self, kinds: Mapping[str, str]) -> None:
        missing = [one for one in self.key if one not in kinds]
        if missing:
            raise ValueError(f"{missing[0]} is a key, and needs a type in schema")
        nested = [one for one in self.key if is_nested(kinds[one])]
        if nested:
            raise ValueError(f"{nested[0]} is a key, which has no struct, array or map as its type")
        said = [one for one in kinds if is_nested(kinds[one])]
        lost = [one for one in self._hidden.unknown(kinds) if any(one.startswith(f"{head}.") for head in said)]
        if lost:
            raise ValueError(f"{lost[0]} cannot be hidden: {_NO_PART}")

    @property
    def _hidden(self) -> Hidden:
        return Hidden(dict(self.mask), self.drop)

    def _column_names(self, fields: Iterable[str]) -> list[str]:
        return [*(column_name(one, self.rename) or one for one in fields if one not in self.drop), *self.compute]

    def _check_computed(self) -> None:
        is_found = self._has_registry or (self.schema_ == "infer" and self.format != "text")
        if self.compute and is_found:
            raise ValueError("compute with a declared schema: inferred columns may be missing, or change")
        for name, one in self.compute.items():
            arrow_type(one.type)
            if one.type in ("json", "timestamp_ms") or is_nested(one.type):
                raise ValueError(f"{name} is computed: string or timestamp, and not {one.type}")
            if self.mode == "history" and VALID_TO.name in one.sql.lower():
                raise ValueError(f"{name} is computed when a row comes: {VALID_TO.name} is known only later")
            if column_name(name, {}) != name:
                raise ValueError(f"a computed column cannot be called {name!r}")

    def wants(self, source: SourceTable) -> bool:
        """Whether an entry of many makes a table of `source`."""
        return source.is_wanted(self.database or ".*", self.table or ".*", self.exclude)

    def of(self, source: SourceTable) -> TypedTableConfig:
        """The entry of one table, for an entry of many that has found it. Raises ConfigurationError."""
        found = {
            "name": source.named(self.name), "from_": source.topics, "database": exactly(source.database),
            "table": exactly(source.table), "key": self.key or source.key, "exclude": (), "max_tables": _MOST_TABLES,
        }  # fmt: skip
        made = self.model_copy(update=found)
        made._mentioned = source.bare if self.on_bad == "quarantine" else ""
        try:
            made._check()
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(
                f"no typed table can be made of {source}, by the entry {self.name}",
                expected="a name, and a key, which its events say or the entry",
                found=error if made.key else "no primary key in its newest event",
                hint=f"Leave it out with exclude, or give it an entry of its own; see {self.table_name}.",
            ) from error
        return made

    def definition(self) -> Definition:
        """The definition of the table. Reads its schema file, if it has one. Raises ConfigurationError."""
        if self.is_of_many:
            return self._of_found()
        reading = self._reading()
        schema = dict(self.schema_) if isinstance(self.schema_, dict) else None
        if reading.registry is None and self.format in _SCHEMATIC:
            schema = self._of_file(reading)
        is_kafka = self.from_[0].startswith(_KAFKA)
        return Definition(
            name=self.name,
            topics=() if is_kafka else self.from_,
            kafka_topics=self.from_ if is_kafka else (),
            logs=self.logs,
            tags=self.tags,
            where=self.where,
            reading=reading,
            schema=schema,
            key=self.key,
            keeps_history=self.mode == "history",
            deleted=self.deletes,
            tombstones=self.tombstones,
            keeps_deleted=self.keep_deleted,
            renamed=self.rename,
            masks=dict(self.mask),
            dropped=(*self.drop, *self._unknown()),
            computed={name: (one.type, one.sql) for name, one in self.compute.items()},
            max_columns=self.max_columns,
            stops_at_unfit=self.on_bad == "stop",
        )

    def _unknown(self) -> Iterator[str]:
        """A hidden field that another schema encodes differently must not turn up among the unknown fields."""
        if self.format == "protobuf" and (self.mask or self.drop):
            yield UNKNOWN
            yield from {f"{head}.{UNKNOWN}": None for path in (*self.mask, *self.drop) for head, _ in cuts(path)}

    def _of_found(self) -> Definition:
        is_kafka = self.from_[0].startswith(_KAFKA)
        return Definition(
            name=self.table_name,
            topics=() if is_kafka else self.from_,
            kafka_topics=self.from_ if is_kafka else (),
            logs=self.logs,
            tags=self.tags,
            where=self.where,
            reading=Reading(format=self.format, finds_tables=True),
            schema=KINDS,
            key=KEY,
        )

    def _reading(self) -> Reading:
        registry: dict[str, Any] = {}
        if self._has_registry:
            keys = self.registry_username, self.registry_password
            registry = dict(zip(("registry", "username", "password"), (str(self.schema_), *keys), strict=True))
        if self.format in CHANGES:
            is_by_source = (self.order or _ORDERS[self.format]) == "source"
            return Reading(
                format=self.format, database=self.database or "", table=self.table or "", row_key=self.key,
                declared=tuple(self.schema_.items()) if isinstance(self.schema_, dict) else (),
                time_zone=self.time_zone, needs_order=is_by_source, mentioned=self._mentioned, **registry,
            )  # fmt: skip
        text = None
        if self.format == "csv":
            text = json.dumps(self.schema_)
        elif self.format in _SCHEMATIC and not registry:
            text = _file_text(str(self.schema_), self.format)
        return Reading(
            format=self.format, schema_text=text, message=self.message, separator=self.separator, nested=self.nested,
            **registry,
        )  # fmt: skip

    def _of_file(self, reading: Reading) -> dict[str, str]:
        """The fields of a schema file with their kinds. Raises ConfigurationError if the table's keys do not fit."""
        where = f"{self.name}: {self.schema_}"
        try:
            found = dict(kinds(reading))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{where}: {error.problem}", expected=error.expected, found=error.found, hint=error.hint
            ) from error
        nested_key = [one for one in self.key if is_nested(found.get(one, ""))]
        if nested_key:
            raise ConfigurationError(f"{where}: a key has no parts", expected="a scalar field", found=nested_key[0])
        wanted = ({*self.key, *self.rename} - {*found}) | {*self._hidden.unknown(found)} - {UNKNOWN}
        if wanted:
            raise ConfigurationError(
                f"{where}: there is no such field",
                expected=f"some of {', '.join(found)}",
                found=", ".join(sorted(wanted)),
            )
        twice = _taken(self._column_names(found))
        if twice:
            raise ConfigurationError(
                f"{where}: two columns cannot have the same name",
                expected="names that differ in more than upper and lower case",
                found=", ".join(twice),
                hint="Give one of the fields another name with rename.",
            )
        return found


def _listed(formats: Sequence[str]) -> str:
    return f"{', '.join(formats[:-1])} and {formats[-1]}"


def _taken(names: Sequence[str]) -> list[str]:
    """The names that another column has, too, ignoring case."""
    folded = [one.casefold() for one in (*names, *(one.name for one in (*PLACE, REST)))]
    return sorted({one for one in folded if folded.count(one) > 1})


def _file_text(path: str, form: str) -> str:
    """The text of a schema file; a descriptor set, which is binary, in base64."""
    try:
        data = Path(path).read_bytes()
        return data.decode() if form == "avro" else base64.b64encode(data).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the schema {path}", found=error) from error


def check_names(tables: tuple[TypedTableConfig, ...], where: str) -> None:
    """Check that no two typed tables have the same name. Raises ConfigurationError."""
    names = [one.table_name for one in tables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"{where}: a typed table is listed twice", expected="each name once", found=", ".join(twice)
        )
