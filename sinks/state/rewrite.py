"""Take rows out of a table: remove files that hold nothing else, and rewrite the others without them.

The rows are described twice, and both have to agree: `RowSelection.files` finds by statistics every file that may hold
some of them, `RowSelection.condition` says of each row whether it is one. A file whose statistics prove that all its
rows are taken out is never opened. A file that cannot be read is removed if the states of the table's logs prove the
same.
No commit names files written here before the exchange is committed; VACUUM removes what a kill leaves of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc

from sinks.delta.data_file import DataFile, bounds, holds_only, may_hold
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import FileWriter, batches_of, in_columns, new_name, open_parquet
from sinks.delta.kernel import KernelTable, Overlap, Snapshot
from sinks.state.fence import holes_in, logs_in, state_in
from sinks.state.holes import TakenOut
from sinks.state.log_state import LogState
from sinks.storage.errors import failed_by
from sinks.tables import LOG_ID, TableSpec
from sources.errors import ReplicaError, StorageUnreachable
from sources.offsets import LogId, Offset, OffsetRange

_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """Rows of some logs in one table: which files may hold them, and which rows of a file they are.

    `condition` is on `columns`. `holds_all` says by a file's statistics whether it has no other rows. `owns` says the
    same by the logs' states at a version, which proves more and takes longer. `lost` are files that nobody can read.
    """

    places: tuple[tuple[LogId, Overlap], ...]
    columns: tuple[str, ...]
    condition: pc.Expression
    holds_all: Callable[[StoredFile], bool]
    owns: Callable[[StoredFile, Snapshot], bool]
    lost: tuple[StoredFile, ...] = ()

    @classmethod
    def of_log(cls, log_id: LogId, wanted: OffsetRange) -> RowSelection:
        """The records of table `log` that start in `wanted`."""
        return cls(
            places=((log_id, Overlap(wanted, "offset")),),
            columns=(LOG_ID.name, "offset"),
            condition=_start_in(log_id, wanted),
            holds_all=lambda file: is_of(file, log_id) and lies_in(file, wanted),
            owns=lambda file, on: lies_in(file, wanted) and not others_in(file, on, log_id),
        )

    @classmethod
    def taken_out(cls, taken: Sequence[TakenOut], lost: Sequence[StoredFile] = ()) -> RowSelection:
        """The records of table `log` that start in the ranges of `taken`, and `lost` files, which have no others."""
        places = [(one.log_id, wanted) for one in taken for wanted in one.ranges]
        paths = {file.path for file in lost}
        return cls(
            places=tuple((log_id, Overlap(wanted, "offset")) for log_id, wanted in places),
            columns=(LOG_ID.name, "offset"),
            condition=reduce(or_, (_start_in(log_id, wanted) for log_id, wanted in places), pc.scalar(False)),
            holds_all=lambda file: (
                file.path in paths or any(is_of(file, log_id) and lies_in(file, wanted) for log_id, wanted in places)
            ),
            owns=lambda file, on: False,
            lost=tuple(lost),
        )

    @property
    def name(self) -> LogId | None:
        return self.places[0][0] if self.places else None

    @property
    def start(self) -> Offset:
        return self.places[0][1].range.start if self.places else Offset(0)

    def files(self, table: KernelTable, on: Snapshot) -> list[StoredFile]:
        """The files of version `on` that may hold the rows, with those in `lost` that are still there."""
        of_logs = [table.files(on, {LOG_ID.name: str(log_id)}, overlap) for log_id, overlap in self.places]
        still = [_again(file, table, on) for file in self.lost]
        return list({file.path: file for files in (*of_logs, *still) for file in files}.values())


@dataclass(frozen=True, slots=True)
class Exchange:
    """Files to remove and add in one commit, which takes out `rows` rows."""

    removed: tuple[StoredFile, ...] = ()
    added: tuple[DataFile, ...] = ()
    rows: int = 0


class TakingOut:
    """Prepares the exchange that takes `rows` out of a table, again only if the files in question have changed.

    Files written for an exchange that was tried stay: a refused writer cannot always tell whether the commit was made.
    """

    def __init__(self, table: KernelTable, spec: TableSpec, rows: RowSelection) -> None:
        self._table = table
        self._spec = spec
        self._rows = rows
        self._looked_at: frozenset[str] = frozenset()
        self._exchange = Exchange()

    def on(self, snapshot: Snapshot) -> Exchange:
        """Prepare the exchange to commit on `snapshot`. Raises ReplicaError naming a file that cannot be read."""
        files = self._rows.files(self._table, snapshot)
        paths = frozenset(file.path for file in files)
        self._check_lost(paths)
        if paths != self._looked_at:
            self._exchange = _joined(self._without(file, snapshot) for file in files)
            self._looked_at = paths
        return self._exchange

    def _check_lost(self, paths: Collection[str]) -> None:
        gone = [file.path for file in self._rows.lost if file.path not in paths]
        if gone:
            raise ReplicaError(
                f"the damaged file {self._table.path}/{gone[0]} is not in the table any more",
                log=self._rows.name,
                offset=self._rows.start,
                expected="a file that this repair takes out",
                found="a table without it: another repair has removed it",
                hint="Nothing was committed. Run it again.",
            )

    def _without(self, file: StoredFile, on: Snapshot) -> Exchange:
        if self._rows.holds_all(file):
            return _all_of(file)
        try:
            return self._by_its_rows(file)
        except StorageUnreachable:  # the file may be whole, so it must not be removed
            raise
        except ReplicaError:
            if self._rows.owns(file, on):
                return _all_of(file)
            raise

    def _by_its_rows(self, file: StoredFile) -> Exchange:
        goes = self._rows.condition
        count = gone = 0
        for batch in self._read(file, self._rows.columns):
            count += batch.num_rows
            gone += batch.filter(goes).num_rows
        if not gone:
            return Exchange()
        return Exchange((file,), () if gone == count else (self._rest(file),), gone)

    def _rest(self, file: StoredFile) -> DataFile:
        try:
            with FileWriter(self._spec, self._table.path, new_name(self._rows.start)) as writer:
                for batch in self._read(file, self._spec.schema.names):
                    if (rest := batch.filter(~self._rows.condition)).num_rows:
                        writer.write(rest)
                return writer.finish()
        except OSError as error:
            raise failed_by(error)(
                f"a file of the table {self._table.path} cannot be written",
                log=self._rows.name,
                found=error,
                hint="Nothing was committed. Check that the table's storage can be written, then run it again.",
            ) from error

    def _read(self, file: StoredFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return rows_of(self._table.path, self._spec, file, self._rows.name, columns)


def _start_in(log_id: LogId, wanted: OffsetRange) -> pc.Expression:
    offset = pc.field("offset")
    return (pc.field(LOG_ID.name) == str(log_id)) & (offset >= wanted.start) & (offset < wanted.end)


def _again(file: StoredFile, table: KernelTable, on: Snapshot) -> list[StoredFile]:
    """Find the file in version `on` by its own statistics; empty if it is gone."""
    least, offsets = bounds(file.statistics(), LOG_ID.name)[0], offsets_of(file)
    overlap = None if offsets is None else Overlap(offsets, "offset")
    # a missing bound excludes nothing
    return [one for one in table.files(on, {LOG_ID.name: least or ""}, overlap) if one.path == file.path]


def _all_of(file: StoredFile) -> Exchange:
    return Exchange((file,), (), file.statistics()["numRecords"])


def _joined(exchanges: Iterator[Exchange]) -> Exchange:
    parts: Sequence[Exchange] = list(exchanges)
    removed = (file for part in parts for file in part.removed)
    added = (file for part in parts for file in part.added)
    return Exchange(tuple(removed), tuple(added), sum(part.rows for part in parts))


def rows_of(
    folder: str, spec: TableSpec, file: StoredFile, log_id: LogId | None, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a data file, of all logs, in the file's order. Raises ReplicaError if it cannot be read."""
    schema = pa.schema([spec.schema.field(name) for name in columns or spec.schema.names]).remove_metadata()
    with _naming(file, folder, log_id), open_parquet(folder, file.path) as parquet:
        batches = batches_of(parquet, _ROWS_AT_ONCE, schema.names)
        yield from (in_columns(batch, schema, spec.growing) for batch in batches)


@contextmanager
def _naming(file: StoredFile, folder: str, log_id: LogId | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise failed_by(error)(
            f"the data file {folder.rstrip('/')}/{file.path} cannot be read",
            log=log_id,
            found=error,
            hint="Restore it from a copy; or run logtwin verify, which finds what it held, then logtwin repair.",
        ) from error


# Whose rows a file may have, without opening it. Statistics of older versions, and of OPTIMIZE, may have ids cut at 32
# characters. The logs' states at the same version say more: a log has no row without a state, none at or above its
# position, and none in a hole.


def is_of(file: StoredFile, log_id: LogId) -> bool:
    """Whether the statistics of `file` prove that all its rows belong to `log_id`."""
    return holds_only(file.statistics(), LOG_ID.name, str(log_id))


def offsets_of(file: StoredFile) -> OffsetRange | None:
    """The range in which the rows of `file`, of all logs, start; None if the statistics do not say."""
    least, greatest = bounds(file.statistics(), "offset")
    return None if least is None or greatest is None else OffsetRange(least, greatest + 1)


def lies_in(file: StoredFile, wanted: OffsetRange) -> bool:
    """Whether all rows of `file`, of all logs, start in `wanted`."""
    offsets = offsets_of(file)
    return offsets is not None and wanted.holds(offsets)


def others_in(file: StoredFile, on: Snapshot, log_id: LogId) -> list[LogId]:
    """The logs other than `log_id` that may have rows in a file of the table log, according to version `on`."""
    if is_of(file, log_id):
        return []
    domains, statistics, offsets = on.domains(), file.statistics(), offsets_of(file)
    return [
        one
        for one in sorted(logs_in(domains))
        if one != log_id
        and may_hold(statistics, LOG_ID.name, str(one))
        and (state := state_in(domains.get, one)) is not None
        and _may_have_rows(one, state, domains, offsets)
    ]


def _may_have_rows(log_id: LogId, state: LogState, domains: Mapping[str, str], offsets: OffsetRange | None) -> bool:
    """Whether some of `offsets` (None: any offset) lie below the log's position and in no hole of it."""
    if state.repair is not None:  # its position is about to change
        return True
    if state.offset is None or offsets is None:
        return state.offset is not None
    below = OffsetRange(Offset(min(offsets.start, state.offset)), Offset(min(offsets.end, state.offset)))
    return not below.is_empty and not holes_in(domains.get, log_id, state).hold(below)
