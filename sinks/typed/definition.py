"""The definition of a typed table: its messages, its columns, and how they are read. Pure; made from ``[[tables]]``.

A deleted key keeps a row that has only `_deleted` and its key. Otherwise an older message that comes later, out of a
filled hole or from another log, would bring the row back. Queries have to leave these rows out; the table's name in SQL
does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from typing import Any, Final

import msgspec

from sinks.tables import KAFKA_LOG, LOG, TableSpec
from sinks.typed.columns import DELETED, DELETED_AT, SOURCE_ORDER, VALID_FROM, VALID_TO, Column, column_name
from sinks.typed.formats.changes import Change
from sinks.typed.formats.json_fields import Fields, Reader, not_too_deep
from sinks.typed.hidden import Hidden
from sinks.typed.kinds import JSON, is_nested, roomy_kind
from sinks.typed.patterns import is_meant
from sources.access.security import Secret
from sources.offsets import LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read bodies. Tasks make a reader from it.

    `schema_text` is the text of the schema file, for a descriptor set in base64, for CSV the fields and their kinds as
    JSON. Otherwise each body names its schema in the registry at the URL `registry`, for which `username` and
    `password` are. `message` is the type of a protobuf message.

    Of change events (`CHANGES`) it reads those of `database` and `table`, names or patterns, for rows by `row_key`; see
    `WantedRows` in `sinks/typed/formats/changes.py`. `declared` are fields with their kinds. If it `finds_tables`, a
    row is not what has changed, but the table that it is of (`sinks/typed/source_tables.py`). Where another definition
    does so for the same messages, those in which the name `mentioned` does not occur need not be read. If `nested`,
    objects and lists of a schema become columns with parts.
    """

    format: str = "json"
    schema_text: str | None = None
    message: str | None = None
    separator: str | None = None
    registry: str | None = None
    username: Secret | None = None
    password: Secret | None = None
    database: str = ""
    table: str = ""
    row_key: tuple[str, ...] = ()
    declared: tuple[tuple[str, str], ...] = ()
    time_zone: str = "UTC"
    needs_order: bool = False
    finds_tables: bool = False
    mentioned: str = ""
    nested: bool = False


CHANGES: Final = ("canal", "debezium", "maxwell")
"""The formats of change events: a message has any number of rows, each there or gone."""

_OF_NO_ROW: Final = ("stops_at_unfit", "max_columns", "username", "password", "mentioned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of one typed table.

    Its messages are those of `topics` in logs of RocketMQ, in `logs` or in all of them, or those of `kafka_topics`
    (``kafka/<cluster>/<topic>``); with one of `tags`, and for which the SQL condition `where` holds. Topics are names
    or patterns.
    `reading` says how bodies are read. `schema` has the kinds of the columns by field; None if they are found.
    With a `key` there is one row for each, the newest; if it `keeps_history`, one for each change.
    `deleted` has fields with the values by which a message deletes the row of its key; with `tombstones` a message
    without a body does so, too. If it `keeps_deleted`, rows that change events delete stay. `computed` has columns by
    name: their kind, and the SQL expression over the others.
    """

    name: str
    topics: tuple[str, ...] = ()
    kafka_topics: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    where: str | None = None
    reading: Reading = field(default_factory=Reading)
    schema: Mapping[str, str] | None = None
    key: tuple[str, ...] = ()
    keeps_history: bool = False
    deleted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_deleted: bool = False
    tombstones: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    computed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    max_columns: int = 200
    stops_at_unfit: bool = False

    @property
    def is_keyed(self) -> bool:
        """Whether what stands in the table depends on other rows of the same key."""
        return bool(self.key)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(column_name(one, self.renamed) or one for one in self.key)

    @property
    def source(self) -> TableSpec:
        """The table of records that the messages come from."""
        return KAFKA_LOG if self.kafka_topics else LOG

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that its messages come from, as its configuration names them."""
        return self.topics or self.kafka_topics

    def unmatched(self, found: Collection[str] | None) -> tuple[str, ...]:
        """The topics of which no message has come, if messages of `found` have; none if that is not known (None)."""
        return (
            ()
            if found is None
            else tuple(one for one in self.sources if not any(is_meant(topic, (one,)) for topic in found))
        )

    def follows(self, log_id: LogId) -> bool:
        """Whether messages of the table may be in `log_id`, a log or a partition of a topic."""
        if self.kafka_topics:
            return is_meant(str(log_id).rpartition("/")[0], self.kafka_topics)
        return log_id.kind == "rocketmq" and (not self.logs or str(log_id) in self.logs)

    def declared(self) -> tuple[Column, ...]:
        """The columns that the table begins with: those of fields only if they are declared."""
        computed = tuple(Column(name, "", kind, None, text) for name, (kind, text) in self.computed.items())
        if self.reading.format == "text":
            return (Column("text", "", "string", self.masks.get("text")), *computed)
        named = (
            Column(column_name(name, self.renamed) or name, name, self.hidden.kind(name, kind), self.masks.get(name))
            for name, kind in (self.schema or {}).items()
            if name not in self.dropped
        )
        is_of_changes = self.reading.format in CHANGES and not self.reading.finds_tables
        has_deletes = self.deleted or self.tombstones or is_of_changes
        deletes = (DELETED_AT if self.keeps_deleted else DELETED,) if has_deletes else ()
        history = (VALID_FROM, VALID_TO) if self.keeps_history else ()
        return (*deletes, *history, *([SOURCE_ORDER] if self.reading.needs_order else ()), *named, *computed)

    @property
    def hidden(self) -> Hidden:
        return Hidden(self.masks, self.dropped)

    def found_kind(self, field: str, kind: str) -> str:
        """The kind of the column of a field whose value, or schema, says `kind`. A key has no parts."""
        if not is_nested(kind):
            return roomy_kind(kind)
        return JSON if field in self.key else self.hidden.kind(field, roomy_kind(kind))

    @property
    def passes_tombstones(self) -> bool:
        """Whether a message without a body says nothing: Debezium sends it to Kafka behind each deletion."""
        return self.reading.format == "debezium" and bool(self.kafka_topics)

    def deletes(self, objects: Sequence[Fields]) -> list[bool]:
        """Whether each of `objects` deletes the row of its key.

        Removes all other fields from those that do, unless such rows are kept.
        """
        found = [
            one.deletes
            if isinstance(one, Change)
            else any(name in one and _plain(one[name]) in values for name, values in self.deleted.items())
            for one in objects
        ]
        for one in () if self.keeps_deleted else compress(objects, found):
            for name in [name for name in one if name not in self.key]:
                del one[name]
        return found

    def tombstone(self, record_key: bytes, kinds: Mapping[str, str], framed: Reader | None = None) -> Fields | None:
        """The key fields of a message without a body, from its record's key; None if they are not in it.

        A key that is a JSON object has them by name, and so has one in a registry's frame, which `framed` reads; any
        other key is the value of the table's only key field. `kinds` are those of the fields that have a column.
        Raises NoObject for a key that is nested too deep, or that `framed` cannot read.
        """
        if framed is not None and record_key[:1] == b"\0":
            found: Fields | None = framed(record_key)
        else:
            found = self._of_key(record_key, kinds)
        if found is None or not all(name in found for name in self.key):
            return None
        for name in [name for name in found if name not in self.key]:
            del found[name]
        return found

    def _of_key(self, record_key: bytes, kinds: Mapping[str, str]) -> Fields | None:
        try:
            text = record_key.decode()
        except UnicodeDecodeError:
            return None
        try:
            raw = bytes(msgspec.json.decode(not_too_deep(record_key), type=msgspec.Raw))
        except msgspec.DecodeError:
            raw = msgspec.json.encode(text)
        if raw[:1] == b"{":
            return msgspec.json.decode(raw, type=Fields)
        if len(self.key) != 1:
            return None
        if kinds.get(self.key[0]) == "string" and raw[:1] != b'"':
            raw = msgspec.json.encode(text)  # 42 and true can be strings, too
        return {self.key[0]: msgspec.Raw(raw)}

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides which rows the same messages make."""
        plain, said = _values(Definition(name="")), _values(self)
        told = {name: value for name, value in said.items() if value != plain[name] and name not in _OF_NO_ROW}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _values(one: Definition) -> dict[str, Any]:
    """All values of the definition, with those of its `reading`."""
    said: dict[str, Any] = asdict(one)
    of_reading = said.pop("reading")
    return {**said, **of_reading}


def _plain(raw: msgspec.Raw) -> str:
    """A string without its quotes, any other value as its text."""
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()
