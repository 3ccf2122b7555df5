"""Rebuild a typed table from its logs, beside the existing one, which it replaces in one commit.

Until then the old table stays, and is still brought on. After a kill before the commit nothing has changed, and the
next try begins with an empty folder. After a kill behind the commit dead letters of the old table are left, which the
next try removes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from sinks.delta.commits import retrying
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.storage.errors import reported_as
from sinks.storage.place import open_folder
from sinks.typed.dead_letters import DeadLetters
from sinks.typed.definition import Definition
from sinks.typed.state import TypedState
from sinks.typed.step.follower import TypedFollower
from sinks.typed.table import ANEW, SchemaChanges, TypedTable, TypedView
from sources.errors import ReplicaError


class TypedRebuild:
    """A rebuild in progress: run steps of `follower` up to its last one, then `exchange`.

    Messages that come meanwhile are left to the job. Driver only; one thread. Raises ReplicaError, ConfigurationError,
    UnfitMessage.
    """

    def __init__(
        self, spark: SparkSession, warehouse: str, wanted: Definition, was: TypedView, state: TypedState
    ) -> None:
        self._spark, self._warehouse, self._wanted = spark, warehouse, wanted
        self._was, self._state, self._generation = was, state, state.generation + 1
        self._table = TypedTable(spark, warehouse, wanted.name)
        self._anew = TypedTable(spark, warehouse, wanted.name, anew=True)
        self._to: TypedState | None = None  # what the exchange has tried to commit
        _remove(self._anew.path)
        # what a killed rebuild has left
        DeadLetters(spark, warehouse, wanted.name, anew=True).clear(list(state.logs), since=self._generation)
        self._anew.make(was.columns if state.made == wanted.fingerprint else wanted.declared())
        self.follower = TypedFollower(spark, warehouse, wanted, generation=self._generation)

    @classmethod
    def begun(cls, spark: SparkSession, warehouse: str, wanted: Definition) -> Self | None:
        """Begin a rebuild, with an empty table; None if there is no table to rebuild.

        Columns that the same definition has found are kept, in their order.
        """
        view = TypedTable(spark, warehouse, wanted.name).look()
        return None if view is None or view.state is None else cls(spark, warehouse, wanted, view, view.state)

    def exchange(self) -> TypedState | None:
        """Put the new table in the place of the old one, in one commit, and return its state.

        If this fails, begin another rebuild instead of calling it again. If there was no log to make the table from, do
        nothing and return None.
        """
        self.follower.settle()
        made = self._anew.look()
        if made is None or made.state is None:
            return None
        files = [_data_file(one) for one in self._anew.files(made)]
        _move([one.name for one in files], self._anew.path, self._table.path)
        to = retrying(self.follower.refused)(self._exchanged, made, files)
        SchemaChanges(self._spark, self._warehouse, self._wanted.name).bring(self._was.snapshot.table_id(), to.changes)
        letters = DeadLetters(self._spark, self._warehouse, self._wanted.name)
        letters.clear([*self._state.logs, *to.logs], before=self._generation)
        _remove(self._anew.path)
        return to

    def _exchanged(self, made: TypedView, files: Sequence[DataFile]) -> TypedState:
        on = self._table.look()
        if on is None or on.state is None or made.state is None:
            raise ReplicaError(
                f"the table {self._table.path} is gone", hint="Nothing was exchanged; restore it, or drop it."
            )
        if on.state == self._to:  # it has landed unheard
            return on.state
        if on.state.generation != self._state.generation:
            raise ReplicaError(
                f"the typed table {self._wanted.name} was made anew meanwhile",
                expected=f"generation {self._state.generation}",
                found=on.state.generation,
                hint="Nothing was exchanged: somebody else has done it.",
            )
        number = max(on.state.number, made.state.number) + 1
        to = self._to = replace(made.state, number=number, changes=(*on.state.changes, *made.state.changes))
        self._table.commit(on, to, added=files, removed=self._table.files(on), columns=made.columns)
        return to


def rebuild(spark: SparkSession, warehouse: str, wanted: Definition) -> TypedState | None:
    """Rebuild the table of `wanted`, and return its state; None, and no change, if there is no table or no log for it.

    Raises as `TypedRebuild` does.
    """
    anew = TypedRebuild.begun(spark, warehouse, wanted)
    if anew is None:
        return None
    anew.follower.bring_to_end()
    return anew.exchange()


def drop(spark: SparkSession, warehouse: str, name: str) -> bool:
    """Delete a typed table and its dead letters. Its log still has all that it was made from.

    Returns whether there was a table. Raises ReplicaError.
    """
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


def _data_file(one: StoredFile) -> DataFile:
    records = one.statistics()["numRecords"]
    return DataFile(one.path, one.size_bytes, one.modified_ms, records, one.action["stats"])


def _move(names: Sequence[str], from_path: str, to_path: str) -> None:
    """Move files to another folder of the same storage. Raises ReplicaError."""
    with reported_as(f"files cannot be moved to {to_path}", hint="Nothing was exchanged; run it again."):
        filesystem, from_inner = open_folder(from_path)
        _, to_inner = open_folder(to_path)
        for name in names:
            filesystem.move(f"{from_inner.rstrip('/')}/{name}", f"{to_inner.rstrip('/')}/{name}")


def _remove(path: str) -> None:
    """Remove a folder with its contents, if it is there. Raises ReplicaError."""
    with reported_as(f"the folder {path} cannot be removed", hint="Run it again."):
        filesystem, inner = open_folder(path)
        if filesystem.get_file_info(inner).type is pafs.FileType.Directory:
            filesystem.delete_dir(inner)
