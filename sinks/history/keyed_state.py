"""Keep the map that a log makes in step with the log's position: at each start, and after each commit of the log.

This depends only on the two tables: it brings the map from its own position to the log's, by the records in between,
which it reads from the table log. So it ends the same if it is killed anywhere, run twice, or run by two processes:

    the log moved on            apply the records in between
    a backfill brought records  apply all records to the existing map: older ones change nothing
    another epoch, or no map    apply all records to an empty map, in one commit: nothing that a repair took out is left

The records are read batch by batch. The newest change of each key is kept in memory: at most the whole map, as in
dister itself.
"""

from __future__ import annotations

import logging
from functools import cached_property

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.delta.commits import retrying
from sinks.delta.kernel import KernelTable
from sinks.history.key_values import KeyValues, MapPosition
from sinks.proof.stored import parts, read
from sinks.proof.whole_ledger import read_ledger
from sinks.state.holes import joined
from sinks.state.log_table import Held, LogTable
from sinks.storage.errors import failed_by
from sinks.tables import KEY_VALUES, log_table
from sinks.warehouse import absolute
from sources.errors import LogError, ReplicaError
from sources.keyed_state import Changes, KeyedState
from sources.master import MasterLog
from sources.offsets import Offset, OffsetRange

_log = logging.getLogger(__name__)


class KeyedStateFollower:
    """Keeps the map of one log in step. Does nothing if the log makes no map. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, warehouse: str, master: MasterLog) -> None:
        self._spark = spark
        self._warehouse = absolute(warehouse)
        self._log_id = master.log_id
        self._keyed = master.traits.keyed_state
        self._is_ensured = False

    # These are made on first use: most logs make no map, and a job may have many logs.

    @cached_property
    def _files(self) -> KernelTable:
        return KernelTable(self._spark, log_table(self._log_id).path(self._warehouse))

    @cached_property
    def _log(self) -> LogTable:
        return LogTable(self._spark, self._files.path, self._log_id)

    @cached_property
    def _map(self) -> KeyValues:
        return KeyValues(self._spark, self._warehouse, self._log_id)

    def follow(self) -> bool:
        """Bring the map to the log's position. Returns whether it was elsewhere. Creates the table if need be.

        Raises ReplicaError, ConfigurationError (a table that is not ours). The log is not affected by a failure: the
        next call goes on.
        """
        keyed = self._keyed
        if keyed is None:
            return False
        try:
            if not self._is_ensured:
                self._map.ensure()
                self._is_ensured = True
            return retrying(self._failure)(self._follow, keyed)
        except (OSError, pa.ArrowException, LogError) as error:  # LogError: a row that the master never sent
            raise self._failure(error) from error

    def _follow(self, keyed: KeyedState) -> bool:
        view = self._map.look()
        if view is None:
            raise self._failure("the table is gone")
        held = self._log.read()  # after the map, so that it cannot be older than the map
        was, to = view.position, _position(held)
        if to is None or to == was:
            return False
        self._check_order(was, to)
        base = was if was is not None and was.epoch == to.epoch else None
        known = Offset(0) if base is None else base.offset
        self._check_whole(held, OffsetRange(known, to.offset))
        start = known if base is None or base.fills == to.fills else Offset(0)
        changes = self._changes(held, OffsetRange(start, to.offset), keyed)
        self._map.exchange(view, changes, to, anew=base is None)
        if base is None:
            _log.info("%s: %s was rebuilt from the log up to %s", self._log_id, KEY_VALUES.name, to.offset)
        return True

    def _changes(self, held: Held, wanted: OffsetRange, keyed: KeyedState) -> Changes:
        """The changes that the records that start in `wanted` make to the map."""
        files = parts(self._files, held.snapshot, self._log_id, wanted)
        columns = tuple(dict.fromkeys(("offset", *keyed.made_from)))
        found: Changes = {}
        for records in read(self._files.path, files, self._log_id, wanted, columns):
            found |= keyed.changes(records)
        return found

    def _check_order(self, was: MapPosition | None, to: MapPosition) -> None:
        if was is not None and (was.epoch, was.offset) > (to.epoch, to.offset):
            raise ReplicaError(
                f"the table {KEY_VALUES.name} is ahead of the table log",
                log=self._log_id,
                offset=to.offset,
                expected=f"at most epoch {to.epoch}, offset {to.offset}",
                found=f"epoch {was.epoch}, offset {was.offset}",
                hint=f"The table log was restored from an older copy: move {KEY_VALUES.name} away, and the next start "
                "makes it anew.",
            )

    def _check_whole(self, held: Held, needed: OffsetRange) -> None:
        """Raises ReplicaError if the replica's own retention has deleted records that are needed. Records that were
        lost before were never in the map."""
        first = Offset(0) if held.state is None or held.state.first is None else held.state.first
        if held.holes.front <= max(first, needed.start):
            return
        ledger = read_ledger(self._warehouse, self._log_id, ())
        ranges = zip(ledger["start"].to_pylist(), ledger["end"].to_pylist(), strict=True)
        gone = [part for start, end in ranges for part in held.holes.within(OffsetRange(start, end))]
        if gone:
            raise ReplicaError(
                "the map lacks what the replica's retention has deleted from the log",
                log=self._log_id,
                offset=gone[0].start,
                expected=f"every record in {needed}",
                found=f"none in {', '.join(map(str, joined(gone)))}",
                hint="logtwin backfill --from 0 brings them from the master; do not use keep_gb for this log.",
            )

    def _failure(self, found: object) -> ReplicaError:
        return failed_by(found)(
            f"the map of the log cannot be brought to {KEY_VALUES.path(self._warehouse)}",
            log=self._log_id,
            found=found,
            hint="The log is not affected: the next start brings the map up to date.",
        )


def _position(held: Held) -> MapPosition | None:
    """The map position that the log is at; None before its first record."""
    if held.state is None or held.state.offset is None:
        return None
    return MapPosition(held.state.epoch, held.state.offset, held.holes.fills)
