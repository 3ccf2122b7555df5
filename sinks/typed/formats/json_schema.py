"""What a JSON Schema says of objects and lists in a body: the kinds of the fields that have parts. Pure.

    schema                                       kind
    object with properties                       struct
    object with additionalProperties alone       map
    array with items                             array
    integer, number, string, boolean inside      bigint, double, string, boolean
    anything else, and types of several          json

What may be null, by its types, oneOf or anyOf, is of its other type. A ``$ref`` leads to another place of the text; one
that leads out of it says nothing.
Fields without parts are not here: JSON itself tells their kinds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sinks.typed.kinds import JSON, Array, Map, Opened, Struct, is_nested, kind_of_schema
from sources.errors import ConfigurationError

_SCALARS: Final = {"integer": "bigint", "number": "double", "string": "string", "boolean": "boolean"}
_MOST_HOPS: Final = 100
"""A reference may lead to itself."""


def nested_kinds(text: str) -> Mapping[str, str]:
    """The kinds of the fields that have parts. Raises ConfigurationError."""
    try:
        root = json.loads(text)
        said = _found(root, root)[1].get("properties", {})
        kinds = {name: kind_of_schema(one, lambda type_: _opened(root, type_)) for name, one in said.items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigurationError("not a JSON Schema", found=f"{type(error).__name__}: {error}") from error
    return {name: kind for name, kind in kinds.items() if is_nested(kind)}


def _opened(root: Any, schema: Any) -> Opened[Any]:
    type_, schema = _found(root, schema)
    if type_ in _SCALARS:
        return _SCALARS[type_]
    if type_ == "array" and isinstance(schema.get("items"), dict):
        return id(schema), Array(schema["items"])
    if type_ == "object" and schema.get("properties"):
        return id(schema), Struct(tuple(schema["properties"].items()))
    if type_ == "object" and isinstance(schema.get("additionalProperties"), dict):
        return id(schema), Map(schema["additionalProperties"])
    return JSON


def _found(root: Any, schema: Any) -> tuple[str, Any]:
    """The type that is not null, empty if there are several; and the schema that says it."""
    for _ in range(_MOST_HOPS):
        if not isinstance(schema, dict):
            break
        if "$ref" in schema:
            schema = _at(root, schema["$ref"])
            continue
        several = [one for one in schema.get("oneOf") or schema.get("anyOf") or () if one.get("type") != "null"]
        if len(several) == 1:
            schema = several[0]
            continue
        types = schema.get("type", [])
        named = [one for one in ([types] if isinstance(types, str) else types) if one != "null"]
        return (named[0] if len(named) == 1 and not several and "allOf" not in schema else ""), schema
    return "", {}


def _at(root: Any, ref: str) -> Any:
    """The schema at another place of the text; anything if it is not there."""
    found = root if ref.startswith("#") else {}
    for name in ref.split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~"), {})
    return found
