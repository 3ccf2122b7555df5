"""How the bodies of a typed table are read: their format, and where its schema is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sources.access.secrets import Secret

UNKNOWN: Final = "unknown fields"
"""The field with the parts of a message that its schema does not name. No column can have this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read bodies. Tasks make a reader from it.

    `schema_text` is the text of the schema file, for a descriptor set in base64, for CSV the fields and their kinds as
    JSON. Otherwise each body names its schema in the registry at the URL `registry`, for which `username` and
    `password` are. `message` is the type of a protobuf message.
    """

    format: str = "json"
    schema_text: str | None = None
    message: str | None = None
    separator: str | None = None
    registry: str | None = None
    username: Secret | None = None
    password: Secret | None = None
