"""What is hidden by its path: in the text of a field, and in the kind of its column."""

import hashlib
import json
from typing import Any

import msgspec
import pytest

from sinks.typed.columns import Column
from sinks.typed.formats.json_fields import Misfit
from sinks.typed.hidden import Hidden, hidden_kind

MASKS = {"customer.card": "hash", "lines.cards": "redact", "a.b.c": "null", "plain": "redact"}
DROPPED = ["customer.note", "by_name.x.y"]
HASH = hashlib.sha256(b"4711").hexdigest()


def concealed(value: dict[str, Any]) -> dict[str, Any]:
    fields = {name: msgspec.Raw(json.dumps(one).encode()) for name, one in value.items()}
    Hidden(MASKS, DROPPED).conceal([fields], {"shown"})
    return {name: json.loads(bytes(one)) for name, one in fields.items()}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"customer": {"card": "4711", "note": "n", "id": 1.50}}, {"customer": {"card": HASH, "id": 1.5}}),
        ({"customer": {"card": 4711}}, {"customer": {"card": HASH}}),
        ({"customer": {"card": None, "note": None}}, {"customer": {"card": None}}),
        ({"customer": "4711"}, {"customer": "4711"}),
        ({"lines": [{"cards": [1]}, None, [{"cards": "x"}]]}, {"lines": [{"cards": "***"}, None, [{"cards": "***"}]]}),
        ({"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"c": None, "d": 2}}}),
        ({"a": {"b.c": 1}}, {"a": {"b.c": None}}),
        ({"a.b": [{"c": 1}]}, {"a.b": [{"c": None}]}),
        ({"a.b.c": 1, "plain": 2}, {"a.b.c": None, "plain": "***"}),
        ({"by_name": {"x": {"y": 1, "z": 2}, "w": {"y": 3}}}, {"by_name": {"x": {"z": 2}, "w": {"y": 3}}}),
    ],
)  # fmt: skip
def test_wherever_the_names_give_the_path(value: dict[str, Any], expected: dict[str, Any]) -> None:
    assert concealed(value) == expected


def test_an_escaped_name_hides_nothing_from_a_mask() -> None:
    fields = {"customer": msgspec.Raw(rb'{"c\u0061rd":"4711","card":"4712"}')}
    Hidden(MASKS, ()).conceal([fields], ())
    assert b"471" not in bytes(fields["customer"])


@pytest.mark.parametrize(
    ("kind", "path", "how", "expected"),
    [
        ("struct<a:int,b:int>", "a", "hash", "struct<a:string,b:int>"),
        ("struct<a:int,b:int>", "a", "drop", "struct<b:int>"),
        ("struct<a:int>", "a", "drop", "json"),
        ("array<array<struct<a:struct<b:int>>>>", "a.b", "null", "array<array<struct<a:struct<b:string>>>>"),
        ("struct<`a.b`:int,a:struct<b:int>>", "a.b", "hash", "struct<`a.b`:string,a:struct<b:string>>"),
        ("struct<a:json>", "a.b.c", "hash", "struct<a:json>"),
        ("map<string,string>", "k", "hash", "map<string,string>"),
        ("map<string,int>", "k", "hash", None),
        ("map<string,int>", "k", "drop", "map<string,int>"),
        ("map<string,struct<a:string>>", "k.a", "hash", "map<string,struct<a:string>>"),
        ("map<string,struct<a:int>>", "k.a", "hash", None),
        ("struct<a:int>", "b", "hash", None),
        ("struct<a:int>", "a.b", "drop", None),
        ("int", "a", "hash", None),
    ],
)
def test_kinds(kind: str, path: str, how: str, expected: str | None) -> None:
    assert hidden_kind(kind, path, how) == expected


def test_a_misfit_of_a_whole_does_not_show_its_parts() -> None:
    hidden = Hidden({"customer.card": "hash"}, ())
    whole, part = (Misfit(0, "c", reason, '"{card:4711}"') for reason in ("not_struct", "not_int"))
    assert [one.found for one in hidden.of_misfits(Column("c", "customer", "json"), [whole, part])] == [
        "***",
        part.found,
    ]
    assert hidden.of_misfits(Column("other", "other", "json"), [whole]) == [whole]
