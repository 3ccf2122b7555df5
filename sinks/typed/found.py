"""What a table of found tables says (`sinks/typed/source_tables.py`), and which definition made a typed table.

Read from the Delta log and data files, without a JVM.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow.fs as pafs

from sinks.delta.delta_log import newest
from sinks.delta.files import open_parquet
from sinks.storage.errors import reported_as
from sinks.storage.place import open_folder
from sinks.typed.columns import FOLDER
from sinks.typed.source_tables import KINDS, SourceTable
from sinks.typed.table import path_of, standing_at
from sinks.warehouse import absolute
from sources.errors import ReplicaError

_UNREADABLE: Final = ""


def source_tables(warehouse: str, name: str) -> list[SourceTable]:
    """The tables in the typed table `name`, in order; none if it is not made yet. Raises ReplicaError.

    Their key is that of the newest message, sorted: Canal tells it in the order of the columns, which a DDL may change.
    """
    folder = path_of(warehouse, name)
    version = newest(folder)
    rows: list[dict[str, Any]] = []
    for file in () if version is None else version.files.values():
        with (
            reported_as(f"the typed table in {folder} cannot be read", hint="Restore the file from a copy."),
            open_parquet(folder, file.path) as opened,
        ):
            rows += opened.read(columns=[*KINDS, "stored_at", "log_id", "offset"]).to_pylist()
    rows.sort(key=lambda row: (row["stored_at"] is not None, row["stored_at"], row["log_id"], row["offset"]))
    topics: dict[tuple[str, str], set[str]] = {}
    found: dict[tuple[str, str], SourceTable] = {}
    for row in rows:
        of = row["database"], row["table"]
        topics.setdefault(of, set()).add(row["topic"])
        key = tuple(sorted(json.loads(row["primary_key"] or "[]")))
        found[of] = SourceTable(*of, row["schema"] or "", tuple(sorted(topics[of])), key)
    return sorted(found.values())


def folders(warehouse: str) -> set[str]:
    """The names of the folders of typed tables, by one request. Raises ReplicaError."""
    place = f"{absolute(warehouse).rstrip('/')}/{FOLDER}"
    with reported_as(f"{place} cannot be listed", hint="Check that its storage can be reached and read."):
        filesystem, folder = open_folder(place)
        listed = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    return {one.base_name for one in listed if not one.is_file}


def made_by(warehouse: str, name: str) -> str | None:
    """The fingerprint of the definition that made the typed table `name`; None if there is no such table.

    It is the empty text if the table cannot say.
    """
    version = newest(path_of(warehouse, name))
    if version is None:
        return None
    try:
        _, state = standing_at(version, name)
    except ReplicaError:
        return _UNREADABLE
    return _UNREADABLE if state is None else state.made
