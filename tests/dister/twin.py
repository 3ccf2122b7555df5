"""A leader's folder and its replica in a warehouse, brought together by the real job, and compared from outside.

The truth is the leader's files, read by the embedded leader's own plain reader; the replica is what delta-rs finds in
the tables.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from sinks.batch.proof import BatchStep, no_step
from sinks.healing.repair import Repair, Repaired
from sinks.healing.repair_steps import RepairStep
from sinks.state.log_state import LogState
from sinks.state.log_table import LogTable
from sources.dister.embedded.leader_log import entries_of
from sources.dister.entries import Entry
from sources.dister.log import DisterLog
from sources.offsets import LogId, Offset
from sources.records import RECORD_SCHEMA
from tests.dister.odd_leader import OddLeader, replay
from tests.pipeline.group_world import Killed as Killed  # one of that name: errors come back by it
from tests.pipeline.group_world import dying_after as dying_after
from tests.pipeline.running import job_config, replicate_now
from tests.sinks.batches import opened, ranges


@dataclass
class Twin:
    """The leader that keeps its data in `folder`, and the log ``dister/<group>`` in the warehouse `lake`."""

    spark: SparkSession
    folder: Path
    lake: Path
    group: str

    @property
    def log_id(self) -> LogId:
        return LogId("dister", self.group)

    @property
    def log(self) -> DisterLog:
        return DisterLog(log_id=self.log_id, path=str(self.folder))

    def leader(self) -> OddLeader:
        """To write with, in `with`."""
        return OddLeader(self.folder, group=self.group, seed=7)

    def config(self, **options: Any) -> Config:
        return job_config(self.lake, **{"id": str(self.log_id), "path": str(self.folder), **options})

    def replicate(self, on_step: Callable[[BatchStep], None] = no_step, **options: Any) -> None:
        """What there is, by a job. Raises what ended it."""
        replicate_now(self.spark, self.config(**options), on_step)

    def take(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_step: Callable[[BatchStep], None] = no_step,
    ) -> None:
        """One batch, given to the sink by hand: [start, end) of the log, by default all that is not there yet."""
        replica = opened(self.spark, self.lake, self.log, on_step=on_step)
        begin = (replica.position() or self.log.bounds().start) if start is None else start
        stop = self.log.bounds().end if end is None else end
        replica(ranges(begin, stop, split=10**18, log_id=str(self.log_id)))

    def open(self) -> None:
        """What a job does before its first batch."""
        opened(self.spark, self.lake, self.log)

    def repair(self, on_step: Callable[[RepairStep], None], *, accept_master: bool = False) -> Repaired:
        return Repair(self.spark, str(self.lake), self.log, on_step=on_step).run(accept_master=accept_master)

    @property
    def state(self) -> LogState | None:
        return LogTable(self.spark, f"{self.lake}/log", self.log_id).read().state

    @property
    def position(self) -> Offset | None:
        return None if self.state is None else self.state.offset

    @property
    def epoch(self) -> int:
        return 0 if self.state is None else self.state.epoch

    @property
    def went_back_to(self) -> int | None:
        """The id of the last entry that the last fix kept, 0 for none; None where there was no fix."""
        at = None if self.state is None else self.state.branched_at
        return None if at is None else max(at - 1, 0)

    def rows(self) -> pa.Table:
        """The replica's entries, in order."""
        names = list(dict.fromkeys(("offset", "size", *self.log.traits.restored_from)))
        return self._table("log", names).sort_by("offset")

    def ids(self) -> list[int]:
        return ids_of(self.rows())

    def lines(self, rows: pa.Table | None = None) -> bytes:
        """The log, rebuilt from the table."""
        rows = (self.rows() if rows is None else rows).combine_chunks()
        schema = pa.schema([RECORD_SCHEMA.field(name) for name in rows.column_names]).remove_metadata()
        return b"".join(self.log.restore(batch) for batch in rows.cast(schema).to_batches())

    def kv(self) -> dict[str, str]:
        rows = self._table("dister_kv", ["key", "value", "deleted"])
        assert len(rows["key"].unique()) == len(rows)
        if not rows.num_rows:  # of a table without a file nobody knows the types
            return {}
        live = rows.filter(pc.invert(rows["deleted"]))
        return dict(zip(live["key"].to_pylist(), live["value"].to_pylist(), strict=True))

    def batches(self) -> list[int]:
        """How many entries each batch had."""
        ids = self.ids()
        rows = self._table("ledger", ["start", "end", "deleted_at"]).sort_by("start").to_pylist()
        kept = (row for row in rows if row["deleted_at"] is None)
        return [bisect_left(ids, row["end"]) - bisect_left(ids, row["start"]) for row in kept]

    def incidents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._table("incidents", ["condition", "start", "end", "state"]).to_pylist()
        return found

    def assert_equal(self, entries: Sequence[Entry] | None = None) -> None:
        """The replica is the leader's log, or of it these `entries`: log, map and position."""
        entries = list(entries_of(self.folder)) if entries is None else entries
        rows = self.rows()
        assert ids_of(rows) == [entry.id for entry in entries]
        assert self.lines(rows) == b"".join(entry.line + b"\n" for entry in entries)
        assert self.kv() == replay(entries)
        assert self.position == (entries[-1].id + 1 if entries else None)

    def _table(self, name: str, columns: Sequence[str]) -> pa.Table:
        path = self.lake / name
        if not path.exists():
            return pa.table({column: [] for column in columns})
        return DeltaTable(str(path)).to_pyarrow_table(
            columns=list(columns), filters=[("log_id", "=", str(self.log_id))]
        )


def ids_of(rows: pa.Table) -> list[int]:
    found: list[int] = pc.subtract(pc.add(rows["offset"], rows["size"]), 1).to_pylist()
    return found
