"""Several logs that advance together, and what is left of each in the tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.batch.group import Group, Outcome
from sinks.batch.proof import BatchResult, BatchStep, no_step
from sinks.batch.replica import Opening, Replica
from sinks.state.log_table import Held, LogTable
from sinks.tables import LEDGER, LOG
from sources.errors import LogtwinError
from sources.master import Chunk, Damage, Planned, TimeIsUp
from sources.offsets import LogId, Offset, OffsetRange, Position
from tests.sinks.batches import ranges
from tests.sinks.memory_master import MemoryMaster, RecordingSession, raw_bytes


def named(name: str) -> LogId:
    return LogId("rocketmq", name)


def sound(*names: str, sizes: Sequence[int]) -> dict[str, MemoryMaster]:
    """Masters of these names, of the same records."""
    return {name: MemoryMaster(tuple(sizes), log_id=named(name)) for name in names}


def splits(name: str, start: int, end: int, split: int = 10**9) -> list[Planned]:
    """The batch [start, end) of one log, in splits of so many offsets."""
    return ranges(start, end, split, str(named(name)))


class Members:
    """Replicas that have claimed their logs, by name, as one group. `errors` and `results` are of the last batch."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Path | str,
        masters: Mapping[str, MemoryMaster],
        *,
        on_step: Callable[[BatchStep], None] = no_step,
        patience_s: float | None = None,
        sessions: Mapping[str, RecordingSession] | None = None,
    ) -> None:
        self._spark = spark
        self.sessions = {name: RecordingSession() for name in masters} | dict(sessions or {})
        opening = Opening()
        self.replicas = {
            name: Replica(spark, str(warehouse), master, self.sessions[name], opening.writer)
            for name, master in masters.items()
        }
        self.group = Group(spark, str(warehouse), on_step, patience_s=patience_s)
        self._outcomes: dict[str, Outcome] = {}
        opening.open(*self.replicas.values())

    def apply(self, *planned: Planned) -> None:
        members = {str(replica.log_id): replica for replica in self.replicas.values()}
        self._outcomes = self.group.apply(planned, members)

    def bring(self, end: int, split: int = 10**9) -> None:
        """Each from its position to `end`, in one batch."""
        at = {name: replica.position() or Offset(0) for name, replica in self.replicas.items()}
        self.apply(*(one for name, start in at.items() for one in splits(name, start, end, split)))

    @property
    def too_slow(self) -> list[str]:
        return [name for name, replica in self.replicas.items() if replica.is_too_slow]

    def positions(self) -> dict[str, int | None]:
        return {name: replica.position() for name, replica in self.replicas.items()}

    @property
    def promises(self) -> dict[str, list[Offset]]:
        return {name: session.promises for name, session in self.sessions.items()}

    @property
    def errors(self) -> dict[str, LogtwinError]:
        found = {LogId.parse(log).name: outcome for log, outcome in self._outcomes.items()}
        return {name: outcome for name, outcome in found.items() if isinstance(outcome, LogtwinError)}

    @property
    def results(self) -> dict[str, BatchResult]:
        found = {LogId.parse(log).name: outcome for log, outcome in self._outcomes.items()}
        return {name: outcome for name, outcome in found.items() if isinstance(outcome, BatchResult)}


@dataclass(frozen=True)
class Tables:
    spark: SparkSession
    warehouse: Path

    def version(self, table: str = "log") -> int:
        return int(DeltaTable(self.warehouse / table).version())

    def held(self, name: str) -> Held:
        return LogTable(self.spark, LOG.path(str(self.warehouse)), named(name)).read()

    def offsets(self, name: str) -> list[int]:
        """In order, doubled where a record is there twice."""
        return sorted(row["offset"] for row in self._rows(LOG.path(str(self.warehouse)), name))

    def ledger(self, name: str) -> list[dict[str, Any]]:
        return sorted(self._rows(LEDGER.path(str(self.warehouse)), name), key=lambda row: int(row["start"]))

    def assert_one_copy(self, master: MemoryMaster, end: int, *, but: Sequence[int] = ()) -> None:
        """All of `master` below `end` is there once, but the records that start at `but`, and every account says so."""
        name = master.log_id.name
        rows = {row["offset"]: row for row in master.records() if row["offset"] < end}
        kept = [offset for offset in rows if offset not in but]
        held = self.held(name)
        assert held.state is not None
        assert held.state.offset == (end or None)
        if end:
            app_id = Position(master.log_id, held.state.epoch, Offset(end)).app_id
            assert held.snapshot.transaction_version(app_id) == end
        assert self.offsets(name) == kept
        assert [one.start for one in held.holes.ranges] == list(but)
        assert_ledger(self.ledger(name), [rows[offset] for offset in kept])

    def files_of_no_commit(self) -> list[str]:
        left = []
        for table in (self.warehouse / "log", self.warehouse / "ledger"):
            named = set(DeltaTable(table).get_add_actions(flatten=True)["path"].to_pylist())
            left += [file.name for file in table.glob("*.parquet") if file.name not in named]
        return left

    def _rows(self, path: str, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return [row for row in rows if row["log_id"] == str(named(name))]


def assert_ledger(entries: Sequence[Mapping[str, Any]], records: Sequence[dict[str, Any]]) -> None:
    """Its ranges hold each of `records` once, and nothing else; each has the checksum of its bytes."""
    seen = 0
    for entry in entries:
        mine = [row for row in records if entry["start"] <= row["offset"] < entry["end"]]
        raw = b"".join(map(raw_bytes, mine))
        assert (entry["bytes"], entry["records"]) == (entry["end"] - entry["start"], len(mine))
        assert (len(raw), entry["checksum"]) == (entry["bytes"], f"sha256:{hashlib.sha256(raw).hexdigest()}")
        seen += len(mine)
    assert seen == len(records)


@dataclass(frozen=True, slots=True)
class Slow(MemoryMaster):
    """Sends so many bytes a second of each split: who is in a hurry gets the whole records of the time that it has."""

    bytes_per_s: int = 0
    patience_s: float | None = None

    def hurried(self, patience_s: float) -> Slow:
        return replace(self, patience_s=patience_s)

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        come = owned.start + (10**9 if self.patience_s is None else int(self.bytes_per_s * self.patience_s))
        for piece in MemoryMaster.read(self, owned, committed=committed, boundary=boundary):
            if piece.covered.end > come:
                raise TimeIsUp
            yield piece


class Refusing(RecordingSession):
    """It is never their turn to read: `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self.error is not None:
            raise self.error
        yield
