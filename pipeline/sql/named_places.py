"""Which places a statement may name: files of the local disk, and the store that the warehouse is in. Pure.

A place is judged by its text, before anything connects to it. Its scheme and its authority (bucket, container, name
node) have to be those of the warehouse, and no name of a host or a bucket can be made up to carry something away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sinks.storage.place import Place, placed
from sinks.storage.settings import S3
from sources.errors import LogtwinError

FORMATS: Final = ("binaryfile", "csv", "delta", "json", "orc", "parquet", "text", "xml")
"""The formats in which files may be read, by path or USING."""
_PATH: Final = "path"
_NAMES_PLACES: Final = ("paths", "rowvalidationxsdpath", "avroschemaurl")
"""Other options of these formats that name a place."""
_OPTION: Final = re.compile(r"\w+")
"""Hadoop's own settings, which say where a store answers and what code reads it, have dots."""


def is_reachable(text: str, warehouse: Place) -> bool:
    """Whether a statement may name the path or URI `text`, as Hadoop reads it."""
    if text.startswith("//"):
        return False  # a host of the default file system
    try:
        place = placed(text)
    except LogtwinError:
        return False
    same_kind = place.scheme == warehouse.scheme or (place.scheme in S3 and warehouse.scheme in S3)
    return place.local is not None or (same_kind and place.authority == warehouse.authority)


def unreachable_option(options: Mapping[str, str], warehouse: Place) -> str | None:
    """The first of the options of a file's reader that a statement must not give; None if there is none."""
    for name, value in options.items():
        if name.lower() == _PATH:
            if not is_reachable(value, warehouse):
                return f"{name} {value}"
        elif _OPTION.fullmatch(name) is None or name.lower() in _NAMES_PLACES:
            return name
    return None
