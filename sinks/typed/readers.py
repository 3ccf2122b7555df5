"""Choose the reader of a typed table's bodies by its format and schema.

The readers of Avro and protobuf are imported only if a table needs them: most need neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from sinks.typed.definition import Reading
from sinks.typed.formats.changes import Change, WantedRows
from sinks.typed.formats.connect import of_json_schema
from sinks.typed.formats.csv_record import csv_reader
from sinks.typed.formats.json_fields import AnyReader, DescribedFields, Fields, Reader, fields_of, text_of
from sinks.typed.registry import MAGIC, Registered, SchemaRegistry, framed
from sinks.typed.source_tables import OneOfMany, TableNames
from sinks.typed.source_tables import Reader as ChangesReader

_ANY: Final = ".*"


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
            return TableNames(how.format, _of_changes(replace(how, database=_ANY, table=_ANY)))
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

        schema = Avro(how.schema_text or "", nested=how.nested)
        return schema.body_fields, schema.kinds
    from sinks.typed.formats.protobuf import of_descriptor_set

    message = of_descriptor_set(how.schema_text or "", how.message or "", nested=how.nested)
    return message.fields, message.kinds


def _of_changes(how: Reading) -> ChangesReader:
    wanted = WantedRows(how.database, how.table, how.row_key, how.declared, how.time_zone, how.needs_order)
    if how.format == "canal":
        return of_canal(wanted)
    if how.format == "maxwell":
        from sinks.typed.formats.maxwell import Maxwell

        return Maxwell(wanted)
    return of_debezium(wanted, None if how.registry is None else _registry(how).schema)


def of_canal(wanted: WantedRows) -> ChangesReader:
    """The reader of Canal's messages, in either of its forms: JSON does not begin with a field of a packet."""
    from sinks.typed.formats.canal import PACKET, Canal

    canal = Canal(wanted)

    def read(body: bytes | None) -> list[Change]:
        if body is None or body[:1] not in PACKET:
            return canal(body)
        from sinks.typed.formats.canal_packet import rows_of

        return rows_of(body, canal)

    return read


def of_debezium(wanted: WantedRows, registered: Callable[[int], Registered] | None = None) -> ChangesReader:
    """The reader of Debezium's events. If they have their schemas in a registry, older ones may have none there."""
    from sinks.typed.formats.debezium import Debezium

    debezium = Debezium(wanted)
    if registered is None:
        return debezium

    def of_avro(one: Registered) -> Callable[[bytes], list[Change]]:
        from sinks.typed.formats.connect_avro import ConnectAvro

        avro = ConnectAvro(one.text, [text for _, text in one.others])
        read = debezium.described(avro.columns)
        return lambda data: read(avro.text(data))

    def of_described_json(one: Registered) -> Callable[[bytes], list[Change]]:
        return debezium.described(partial(of_json_schema, one.text))

    in_frames = framed(registered, {"AVRO": of_avro, "JSON": of_described_json})
    return lambda body: in_frames(body) if body is not None and body[:1] == MAGIC else debezium(body)


def _of_registry(how: Reading) -> Reader:
    registry = _registry(how)
    if how.format == "json":
        return framed(registry.schema, {"JSON": _of_json_schema if how.nested else lambda _: fields_of})
    if how.format == "avro":
        from sinks.typed.formats.avro import Avro

        def of_avro(one: Registered) -> Callable[[bytes], Fields]:
            return Avro(one.text, [text for _, text in one.others], nested=how.nested).fields

        return framed(registry.schema, {"AVRO": of_avro})
    from sinks.typed.formats.protobuf import of_registered

    return framed(registry.serialized, {"PROTOBUF": lambda one: of_registered(one.text, one.others, nested=how.nested)})


def _of_json_schema(one: Registered) -> Reader:
    from sinks.typed.formats.json_schema import nested_kinds

    kinds = nested_kinds(one.text)
    return lambda body: DescribedFields(fields_of(body), kinds)


def _registry(how: Reading) -> SchemaRegistry:
    return SchemaRegistry(how.registry or "", how.username, how.password)
