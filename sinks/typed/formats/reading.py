"""How the bodies of a typed table are read: their format, and where its schema is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sources.access.secrets import Secret

UNKNOWN: Final = "unknown fields"
"""What no schema names of a message, as a field that no column can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a format has to know. Tasks make the reader of it.

    `schema_text` is that of the schema file, of a descriptor set in base64, of CSV the fields and their kinds as JSON;
    or else each body names its schema in the registry at the URL `registry`, which `username` and `password` are for.
    `message` is the type of a protobuf message.
    """

    format: str = "json"
    schema_text: str | None = None
    message: str | None = None
    separator: str | None = None
    registry: str | None = None
    username: Secret | None = None
    password: Secret | None = None
