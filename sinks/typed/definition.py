"""The definition of a typed table: its messages, its columns, and how they are read. Pure; made from ``[[tables]]``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sinks.tables import KAFKA_LOG, LOG, TableSpec
from sinks.typed.columns import DELETED, Column, column_name
from sinks.typed.deletes import Deletes
from sinks.typed.formats.reading import Reading
from sinks.typed.topics import is_meant
from sources.offsets import LogId

_OF_NO_ROW: Final = ("stops_at_unfit", "max_columns", "username", "password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of one typed table.

    Its messages are those of `topics` in logs of RocketMQ, in `logs` or in all of them, or those of `kafka_topics`
    (``kafka/<cluster>/<topic>``); with one of `tags`, and for which the SQL condition `where` holds. Topics are names
    or patterns (`sinks.typed.topics`).
    `reading` says how bodies are read. `schema` has the kinds of the columns by field; None if they are found.
    `deleted` has fields with the values by which a message deletes the row of its key; with `tombstones` a message
    without a body does so, too. `computed` has columns by name: their kind, and the SQL expression over the others.
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
    deleted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tombstones: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    computed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    max_columns: int = 200
    stops_at_unfit: bool = False

    @property
    def is_upsert(self) -> bool:
        """Whether the table has one row for each key, the newest."""
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
            Column(column_name(name, self.renamed) or name, name, kind, self.masks.get(name))
            for name, kind in (self.schema or {}).items()
            if name not in self.dropped
        )
        return (*([DELETED] if self.deletes.are_any else ()), *named, *computed)

    @property
    def deletes(self) -> Deletes:
        return Deletes(key=self.key, said=self.deleted, tombstones=self.tombstones)

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
