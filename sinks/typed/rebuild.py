"""A typed table made anew from its logs, beside the one that there is, which it replaces in one commit.

The old one is there, and goes on, until then. Killed anywhere, nothing has changed, and the next try begins with an
empty folder; killed after the commit, dead letters of the old one are left, which the next try takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from sinks.delta_log import StoredFile
from sinks.files import DataFile
from sinks.place import open_folder
from sinks.retries import until_it_takes
from sinks.storage_errors import failed_by
from sinks.typed.dead_letters import DeadLetters
from sinks.typed.definition import Definition
from sinks.typed.follower import TypedFollower
from sinks.typed.schema_changes import SchemaChanges
from sinks.typed.state import TypedState
from sinks.typed.table import ANEW, TypedTable, TypedView
from sources.errors import ReplicaError


def rebuild(spark: SparkSession, warehouse: str, wanted: Definition) -> TypedState | None:
    """Make it anew, and exchange it; where it stands then. Without a table or a log to make it of nothing is done.

    It ends with the step that comes to where the logs stand just then: what comes meanwhile is for the job.

    Columns that the same definition has found stay, in their order. Raises ReplicaError, ConfigurationError,
    UnfitMessage.
    """
    table, anew = TypedTable(spark, warehouse, wanted.name), TypedTable(spark, warehouse, wanted.name, anew=True)
    view = table.look()
    if view is None or view.state is None:
        return None
    generation = view.state.generation + 1
    _remove(anew.path)
    # what a rebuild has left that was killed
    DeadLetters(spark, warehouse, wanted.name, anew=True).clear(list(view.state.logs), since=generation)
    anew.make(view.columns if view.state.made == wanted.fingerprint else wanted.declared())
    TypedFollower(spark, warehouse, wanted, generation=generation).bring_to_end()
    made = anew.look()
    if made is None or made.state is None:
        return None
    files = [_data_file(one) for one in anew.files(made)]
    _move([one.name for one in files], anew.path, table.path)
    to = until_it_takes(lambda: _exchange(table, made, files))
    SchemaChanges(spark, warehouse, wanted.name).bring(view.snapshot.table_id(), to.changes)
    DeadLetters(spark, warehouse, wanted.name).clear([*view.state.logs, *to.logs], before=generation)
    _remove(anew.path)
    return to


def drop(spark: SparkSession, warehouse: str, name: str) -> bool:
    """Delete a typed table, its dead letters with it; whether there was one. Its log has all that it was made of."""
    table = TypedTable(spark, warehouse, name)
    view = table.look()
    if view is None:
        return False
    if view.state is None:
        raise ReplicaError(
            f"the table {table.path} is not one that logtwin made", hint="Look at it; nothing was deleted."
        )
    for is_anew in (False, True):
        DeadLetters(spark, warehouse, name, anew=is_anew).clear(list(view.state.logs))
    _remove(f"{table.path}{ANEW}")
    _remove(table.path)
    return True


def _exchange(table: TypedTable, made: TypedView, files: Sequence[DataFile]) -> TypedState:
    on = table.look()
    if on is None or on.state is None or made.state is None:
        raise ReplicaError(f"the table {table.path} is gone", hint="Nothing was exchanged; restore it, or drop it.")
    number = max(on.state.number, made.state.number) + 1
    to = replace(made.state, number=number, changes=(*on.state.changes, *made.state.changes))
    table.commit(on, to, added=files, removed=table.files(on), columns=made.columns)
    return to


def _data_file(one: StoredFile) -> DataFile:
    records = one.statistics()["numRecords"]
    return DataFile(one.path, one.size_bytes, one.modified_ms, records, one.action["stats"])


def _move(names: Sequence[str], from_path: str, to_path: str) -> None:
    """Files into another folder of the same storage. Raises ReplicaError."""
    try:
        filesystem, from_inner = open_folder(from_path)
        _, to_inner = open_folder(to_path)
        for name in names:
            filesystem.move(f"{from_inner.rstrip('/')}/{name}", f"{to_inner.rstrip('/')}/{name}")
    except OSError as error:
        raise failed_by(error)(
            f"files cannot be moved to {to_path}", found=error, hint="Nothing was exchanged; run it again."
        ) from error


def _remove(path: str) -> None:
    """A folder with all that is in it, if it is there. Raises ReplicaError."""
    try:
        filesystem, inner = open_folder(path)
        if filesystem.get_file_info(inner).type is pafs.FileType.Directory:
            filesystem.delete_dir(inner)
    except OSError as error:
        raise failed_by(error)(f"the folder {path} cannot be removed", found=error, hint="Run it again.") from error
