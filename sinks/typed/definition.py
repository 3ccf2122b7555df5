"""What a typed table is to be: which messages, which columns, and how. Pure; made of ``[[tables]]``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sinks.tables import KAFKA_LOG, LOG, TableSpec
from sinks.typed.columns import Column, column_name
from sinks.typed.formats.reading import Reading
from sources.offsets import LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One table.

    Its messages are those of `topics` in logs of RocketMQ, all of them or `logs`, or those of `kafka_topics`
    (``kafka/<cluster>/<topic>``); with some of `tags`, and for which the SQL condition `where` holds.
    `reading` says how bodies are read. `schema` are the columns by field, each with its kind; None where they are
    found.
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
    renamed: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    max_columns: int = 200
    stops_at_unfit: bool = False

    @property
    def is_upsert(self) -> bool:
        """Whether it has one row a key: the newest."""
        return bool(self.key)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """What the columns of its key are called."""
        return tuple(column_name(one, self.renamed) or one for one in self.key)

    @property
    def source(self) -> TableSpec:
        """The table of records that its messages come from."""
        return KAFKA_LOG if self.kafka_topics else LOG

    def follows(self, log_id: LogId) -> bool:
        """Whether its messages may be in that log, or partition of a topic."""
        if self.kafka_topics:
            return str(log_id).rpartition("/")[0] in self.kafka_topics
        return log_id.kind == "rocketmq" and (not self.logs or str(log_id) in self.logs)

    def declared(self) -> tuple[Column, ...]:
        """The columns that it begins with: none where they are found."""
        if self.reading.format == "text":
            return (Column("text", "", "string", self.masks.get("text")),)
        return tuple(
            Column(column_name(name, self.renamed) or name, name, kind, self.masks.get(name))
            for name, kind in (self.schema or {}).items()
            if name not in self.dropped
        )

    @property
    def fingerprint(self) -> str:
        """Changes with what would make other rows of the same messages."""
        said = asdict(self)
        said |= {name: value for name, value in said.pop("reading").items() if value is not None}
        for name in ("stops_at_unfit", "max_columns", "username", "password"):
            said.pop(name, None)
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
