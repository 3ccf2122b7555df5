"""Bodies that Kafka Connect's AvroConverter wrote, as the JSON that its JsonConverter would have written. Pure.

Avro knows no int16, and no meaning but a few logical types: the rest stands beside a type, as ``connect.type``,
``connect.name`` and ``connect.parameters`` (`AvroData`, of Confluent and of Apicurio). Where the converter was told to
leave that out (``connect.meta.data = false``), the logical types say what they can.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from sinks.typed.formats.avro import Avro, Read
from sinks.typed.formats.binary import number
from sinks.typed.formats.connect import Columns, ConnectColumn, column

_LOGICAL: Final[Mapping[tuple[str, object], str]] = {
    ("bytes", "decimal"): "org.apache.kafka.connect.data.Decimal",
    ("int", "date"): "org.apache.kafka.connect.data.Date",
    ("int", "time-millis"): "org.apache.kafka.connect.data.Time",
    ("long", "timestamp-millis"): "org.apache.kafka.connect.data.Timestamp",
}
_TYPES: Final = {"int": "int32", "long": "int64", "enum": "string"}
_FLOAT: Final = struct.Struct("<f")


class ConnectAvro(Avro):
    """A reader of AvroConverter's bodies: of JSON what JsonConverter would have written, and of what columns."""

    def text(self, data: bytes) -> bytes:
        """The JSON of a body. Raises NoObject."""
        return msgspec.json.encode(self.value(data))

    def columns(self) -> Columns:
        """As `of_json`."""
        row = next((self._of(one["type"]) for one in self.schema["fields"] if one["name"] == "after"), {})
        if row.get("type") != "record":
            raise ValueError("no record in after")
        return {one["name"]: _of_avro(self._of(one["type"])) for one in row["fields"]}

    def _of(self, schema: Any) -> dict[str, Any]:
        """A type that is not null, with all that is said of it."""
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            return self._of(others[0]) if len(others) == 1 else {"type": "union"}
        found: dict[str, Any] = self.named.get(schema, {"type": schema}) if isinstance(schema, str) else schema
        return found

    @staticmethod
    def logical(schema: dict[str, Any]) -> None:
        """None: the columns say what is meant, and JsonConverter writes what is stored."""

    @staticmethod
    def primitive(name: str) -> Read:
        return _float if name == "float" else Avro.primitive(name)


def _of_avro(said: dict[str, Any]) -> ConnectColumn:
    type_, name, parameters = said["type"], said.get("connect.name"), said.get("connect.parameters")
    if name is None and (name := _LOGICAL.get((type_, said.get("logicalType")))) is not None:
        parameters = {"scale": str(said.get("scale", 0)), "connect.decimal.precision": str(said.get("precision", ""))}
    return column(said.get("connect.type", _TYPES.get(type_, type_)), name, parameters)


def _float(data: bytes, at: int) -> tuple[float | str, int]:
    """With as few digits as tell it from others, as JSON has it."""
    (value,) = _FLOAT.unpack_from(data, at)
    return number(float(str(np.float32(value)))), at + _FLOAT.size
