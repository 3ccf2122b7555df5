"""What Kafka Connect's converters say of the columns of a row. Pure.

A type of Connect's may have a name that says what is meant, and parameters. So each converter writes an int16 that has
them; what may be null is a union, or oneOf, of null and this:

    JsonConverter         {"type": "int16", "name": …, "parameters": {…}}                     beside the payload
    JsonSchemaConverter   {"type": "integer", "connect.type": "int16", "title": …, "connect.parameters": {…}}   a
                          JSON Schema in a registry (Confluent's `JsonSchemaData`)
    AvroConverter         see `sinks/typed/formats/connect_avro.py`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_JSON_TYPES: Final = {"integer": "int64", "number": "float64", "object": "struct"}


class ConnectColumn(msgspec.Struct):
    """What Connect says of a column."""

    type: str
    name: str | None = None
    parameters: dict[str, str] | None = None


Columns = Mapping[str, ConnectColumn]
"""The columns of a row, by field."""


class _Schema(ConnectColumn):
    field: str = ""
    fields: list[msgspec.Raw] = []


def of_json(schema: bytes) -> Columns:
    """The columns of an envelope's row, of what JsonConverter writes beside it.

    Raises ValueError if that describes none, as all that find columns here.
    """
    parts = (_schema(one) for one in _schema(schema).fields)
    row = next((one for one in parts if one.field in ("after", "before")), None)
    if row is None:
        raise ValueError("neither after nor before")
    return {one.field: one for one in map(_schema, row.fields)}


def _schema(raw: bytes | msgspec.Raw) -> _Schema:
    return msgspec.json.decode(raw, type=_Schema)  # its errors are ValueErrors


def of_json_schema(text: str) -> Columns:
    """The same of a JSON Schema."""
    try:
        row = _not_null(json.loads(text)["properties"]["after"])["properties"]
        return {name: _of_json_schema(one) for name, one in row.items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _of_json_schema(schema: Any) -> ConnectColumn:
    one = _not_null(schema)
    type_ = one.get("connect.type") or _JSON_TYPES.get(one.get("type"), one.get("type", "string"))
    return column(type_, one.get("title"), one.get("connect.parameters"))


def _not_null(schema: Any) -> Any:
    return next((one for one in schema.get("oneOf", ()) if one.get("type") != "null"), schema)


def column(type_: object, name: object, parameters: object) -> ConnectColumn:
    return msgspec.convert({"type": type_, "name": name, "parameters": parameters}, ConnectColumn)
