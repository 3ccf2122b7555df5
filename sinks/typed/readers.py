"""Choose the reader of a typed table's bodies by its format and schema.

The readers of Avro and protobuf are imported only if a table needs them: most need neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from sinks.typed.definition import Reading
from sinks.typed.formats.csv_record import csv_reader
from sinks.typed.formats.json_fields import AnyReader, Reader, fields_of, text_of
from sinks.typed.registry import framed
from sinks.typed.source_tables import OneOfMany, TableNames
from sinks.typed.source_tables import Reader as ChangesReader


@lru_cache(maxsize=64)
def reader(how: Reading) -> AnyReader:
    """The reader for `how`, one for each in a process. Raises ConfigurationError."""
    match how.format:
        case "text":
            return text_of
        case "csv":
            return csv_reader(json.loads(how.schema_text or "{}"), how.separator or ",")
        case "json" if how.registry is None:
            return fields_of
        case "canal" | "debezium" | "maxwell" if how.finds_tables:
            return TableNames(how.format, _of_changes(how))
        case "canal" | "debezium" | "maxwell" if how.mentioned:
            return OneOfMany(how.mentioned, _of_changes(how))
        case "canal" | "debezium" | "maxwell":
            return _of_changes(how)
    return _of_registry(how) if how.registry is not None else _of_file(how)[0]


def kinds(how: Reading) -> Mapping[str, str]:
    """The kinds of the fields in a schema file, of Avro or protobuf. Raises ConfigurationError."""
    return _of_file(how)[1]


def _of_file(how: Reading) -> tuple[Reader, Mapping[str, str]]:
    if how.format == "avro":
        from sinks.typed.formats.avro import Avro

        schema = Avro(how.schema_text or "")
        return schema.body_fields, schema.kinds
    from sinks.typed.formats.protobuf import of_descriptor_set

    message = of_descriptor_set(how.schema_text or "", how.message or "")
    return message.fields, message.kinds


def _of_changes(how: Reading) -> ChangesReader:
    from sinks.typed.formats.changes import WantedRows

    wanted = WantedRows(how.database, how.table, how.row_key, how.declared, how.time_zone, how.needs_order)
    if how.format == "canal":
        from sinks.typed.formats.canal import Canal

        return Canal(wanted)
    if how.format == "maxwell":
        from sinks.typed.formats.maxwell import Maxwell

        return Maxwell(wanted)
    from sinks.typed.formats.debezium import Debezium

    return Debezium(wanted)


def _of_registry(how: Reading) -> Reader:
    from sinks.typed.registry import SchemaRegistry

    registry = SchemaRegistry(how.registry or "", how.username, how.password)
    if how.format == "json":
        return framed("JSON", registry.schema, lambda _: fields_of)
    if how.format == "avro":
        from sinks.typed.formats.avro import Avro

        return framed("AVRO", registry.schema, lambda one: Avro(one.text, [text for _, text in one.others]).fields)
    from sinks.typed.formats.protobuf import of_registered

    return framed("PROTOBUF", registry.serialized, lambda one: of_registered(one.text, one.others))
