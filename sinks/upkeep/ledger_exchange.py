"""Exchange rows of the ledger for the one that they were joined to: files anew, which one commit puts in place.

Each file of the ledger is written again without the rows that went, and with the joined row where the first of them
was. So a file of one log stays a file of one log. A file that has none of them is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, new_name, row_groups
from sinks.state.rewrite import Exchange, rows_of
from sinks.storage.errors import reported_as
from sinks.tables import LEDGER, LOG_ID, in_numbers
from sinks.values.ledger_row import LedgerRow
from sources.offsets import Offset

Key = tuple[str, int, int]
"""The key of a row: its log, the history of that, and where it starts."""

_SCHEMA = LEDGER.schema.remove_metadata()
_IN_NUMBERS = in_numbers(_SCHEMA)
_KEY: Final = (LOG_ID.name, "epoch", "start")


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows that go, by their keys, each with the joined row that stands in its place, if it is the first of these."""

    going: Mapping[Key, LedgerRow | None]

    def exchange(self, folder: str, files: Sequence[StoredFile]) -> Exchange | None:
        """The exchange of `files`, which the ledger in `folder` has; its `rows` are those that go.

        None if not each row is there exactly once. Raises ReplicaError naming a file that cannot be read.
        """
        counts = {file.path: sum(len(at) for _, at in self._found(folder, file, _KEY)) for file in files}
        if sum(counts.values()) != len(self.going):
            return None
        removed = [file for file in files if counts[file.path]]
        added = [made for file in removed if (made := self._anew(folder, file)) is not None]
        return Exchange(tuple(removed), tuple(added), len(self.going))

    def _anew(self, folder: str, file: StoredFile) -> DataFile | None:
        """The file with what is left of it; None if that is nothing."""
        batches = row_groups(self._left(folder, file))
        first = next(batches, None)
        if first is None:
            return None
        name = new_name(Offset(first.column("start")[0].as_py()))
        with _writing(folder), FileWriter(LEDGER, folder, name) as writer:
            writer.write(first)
            for batch in batches:
                writer.write(batch)
            return writer.finish()

    def _left(self, folder: str, file: StoredFile) -> Iterator[pa.RecordBatch]:
        for batch, at in self._found(folder, file, _SCHEMA.names):
            heads = [(place, one, row) for place, one in at.items() if (row := self.going[one]) is not None]
            values = [{LOG_ID.name: key[0], "epoch": key[1], **row.as_dict()} for _, key, row in heads]
            new = pa.RecordBatch.from_pylist(values, schema=_IN_NUMBERS).cast(_SCHEMA)
            stays = np.setdiff1d(np.arange(batch.num_rows), list(at), assume_unique=True)
            places = np.concatenate((stays, np.array([place for place, *_ in heads], dtype=np.int64)))
            left = pa.concat_batches([batch.take(pa.array(stays)), new]).take(
                pa.array(np.argsort(places, kind="stable"))
            )
            if left.num_rows:
                yield left

    def _found(
        self, folder: str, file: StoredFile, columns: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, dict[int, Key]]]:
        """The batches of a file, each with the keys of the rows in it that go, by their places."""
        logs = pa.array(sorted({key[0] for key in self.going}), LOG_ID.type)
        starts = pa.array(sorted({key[2] for key in self.going}), pa.int64())
        for batch in rows_of(folder, LEDGER, file, None, columns):
            may = pc.and_(pc.is_in(batch.column(LOG_ID.name), logs), pc.is_in(batch.column("start"), starts))
            places = np.flatnonzero(may.to_numpy(zero_copy_only=False))
            some = batch.select(list(_KEY)).take(pa.array(places)).to_pydict()
            keys = zip(places.tolist(), zip(*(some[name] for name in _KEY), strict=True), strict=True)
            yield batch, {place: key for place, key in keys if key in self.going}


def _writing(folder: str) -> AbstractContextManager[None]:
    problem = f"a file of the table {folder} cannot be written"
    return reported_as(problem, hint="Nothing was changed. Check that its storage can be written, then run it again.")
