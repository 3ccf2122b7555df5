"""Canal's packets (``canal.mq.flatMessage = false``): a batch of what its flat messages say, in protobuf. Pure.

    CanalProtocol.proto   Packet, of type MESSAGES; its body is Messages, each of which is an Entry
    EntryProtocol.proto   Entry: a Header, which says of what table, and where; and a RowChange, what a flat message has

Fields that nobody reads here are left out, and enums are numbers. A value is the same text as in a flat message. What
is wrong with one entry leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from sinks.typed.formats.canal import NOT_CANAL, Canal, FlatMessage, Position, has_rows
from sinks.typed.formats.changes import Change, file_number
from sinks.typed.formats.json_fields import Fields, NoObject
from sinks.typed.source_tables import SourceTable, row_of

_T = TypeVar("_T", bound=Fields)

_FIELDS: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Packet": {"type": (3, "int32"), "compression": (4, "int32"), "body": (5, "bytes")},
    "Messages": {"messages": (2, "bytes*")},
    "Header": {
        "logfileName": (2, "string"), "logfileOffset": (3, "int64"), "serverId": (4, "int64"),
        "executeTime": (6, "int64"), "schemaName": (8, "string"), "tableName": (9, "string"), "gtid": (13, "string"),
    },
    "Entry": {"header": (1, "Header"), "entryType": (2, "int32"), "storeValue": (3, "bytes")},
    "Column": {
        "name": (3, "string"), "isKey": (4, "bool"), "updated": (5, "bool"), "isNull": (6, "bool"),
        "value": (8, "string"), "mysqlType": (10, "string"),
    },
    "RowData": {"beforeColumns": (1, "Column*"), "afterColumns": (2, "Column*")},
    "RowChange": {
        "eventType": (2, "int32"), "isDdl": (10, "bool"), "sql": (11, "string"), "rowDatas": (12, "RowData*"),
    },
}  # fmt: skip
_PACKAGE: Final = "canal"
_MESSAGES: Final = 7
_UNCOMPRESSED: Final = (0, 1)
_WITHOUT_CHANGES: Final = (1, 3, 4, 5)
"""Entries of a transaction's begin and end, of heartbeats, of GTIDs."""
_TYPES: Final = (
    "", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX",
    "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT",
)  # fmt: skip
_RAW: Final = msgspec.json.Decoder(Fields)


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="canal.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _FIELDS.items():
        made = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            type_, is_list = kind.rstrip("*"), kind.endswith("*")
            field = made.field.add(name=name, number=number)
            field.label = FieldDescriptorProto.LABEL_REPEATED if is_list else FieldDescriptorProto.LABEL_OPTIONAL
            if type_ in _FIELDS:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{type_}"
            else:
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{type_.upper()}")
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS}


_CLASS: Final = _classes()


def rows_of(body: bytes, canal: Canal) -> list[Change]:
    """The rows of a packet that `canal` wants. Raises NoObject, with those of all other entries beside it."""

    def rows(header: Any, store_value: bytes) -> list[Change]:
        if not canal.wanted.has(header.schemaName, header.tableName):
            return []
        return canal.rows(_message(header, _parsed("RowChange", store_value)), _position(header))

    return _of_entries(body, rows)


def tables_of(body: bytes) -> list[Fields]:
    """The tables of a packet's rows, as rows. Raises NoObject, too."""
    seen: set[SourceTable] = set()

    def tables(header: Any, store_value: bytes) -> list[Fields]:
        change = _parsed("RowChange", store_value)
        if (type_ := _type(change)) == "TRUNCATE" or not has_rows(type_, change.isDdl):
            return []
        columns = next((one.afterColumns or one.beforeColumns for one in change.rowDatas), ())
        table = SourceTable(header.schemaName, header.tableName, key=tuple(one.name for one in columns if one.isKey))
        is_new = table not in seen
        seen.add(table)
        return [row_of(table)] if is_new else []

    return _of_entries(body, tables)


def _of_entries(body: bytes, made: Callable[[Any, bytes], list[_T]]) -> list[_T]:
    """What all entries with changes make, of their header and value. Raises NoObject, with that of others beside it."""
    found: list[_T] = []
    wrong: NoObject | None = None
    for entry in _entries(body):
        if entry.entryType in _WITHOUT_CHANGES:
            continue
        try:
            found += made(entry.header, entry.storeValue)
        except NoObject as error:
            where = f"{entry.header.logfileName}:{entry.header.logfileOffset}"
            wrong = wrong or NoObject(error.reason, f"the entry of {where}: {error}")
    if wrong is not None:
        raise NoObject(wrong.reason, str(wrong), beside=found)
    return found


def _parsed(name: str, data: bytes) -> Any:
    try:
        return _CLASS[name].FromString(data)
    except DecodeError as error:
        raise NoObject(NOT_CANAL, f"no {name}: {error}") from None


def _entries(body: bytes) -> Iterator[Any]:
    packet = _parsed("Packet", body)
    if packet.type != _MESSAGES or packet.compression not in _UNCOMPRESSED:
        raise NoObject(NOT_CANAL, f"a packet of type {packet.type}, compression {packet.compression}")
    return (_parsed("Entry", one) for one in _parsed("Messages", packet.body).messages)


def _message(header: Any, change: Any) -> FlatMessage:
    type_ = _type(change)
    rows = [one.beforeColumns if type_ == "DELETE" else one.afterColumns for one in change.rowDatas]
    old: list[Fields | None] | None = [_old(one) for one in change.rowDatas] if type_ == "UPDATE" else None
    types = {one.name: one.mysqlType for one in rows[0]} if rows else {}
    return FlatMessage(
        type_, header.schemaName, header.tableName, change.isDdl, [_fields(one) for one in rows], old,
        msgspec.Raw(msgspec.json.encode(types)), header.gtid, header.executeTime, change.sql,
    )  # fmt: skip


def _type(change: Any) -> str:
    return _TYPES[change.eventType] if 0 <= change.eventType < len(_TYPES) else str(change.eventType)


def _fields(columns: Any) -> Fields:
    texts = {one.name: None if one.isNull else one.value for one in columns}
    return _RAW.decode(msgspec.json.encode(texts))


def _old(row: Any) -> Fields:
    """What an update has changed, as it was before."""
    updated = {one.name for one in row.afterColumns if one.updated}
    return _fields(one for one in row.beforeColumns if one.name in updated)


def _position(header: Any) -> Position | None:
    number = file_number(header.logfileName)
    return None if number is None else (number, header.logfileOffset, header.serverId)
