"""The log of an embedded leader replicated batch by batch, and table dister_kv read back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sinks.batch.proof import BatchStep, no_step
from sinks.history.key_values import KeyedStateFollower
from sources.dister.embedded.leader_log import LeaderLog
from sources.dister.log import DisterLog
from sources.offsets import LogId
from tests.dister.odd_leader import replay
from tests.sinks.batches import Solo, opened, ranges


def log_of(leader: LeaderLog, group: str = "test") -> DisterLog:
    return DisterLog(log_id=LogId("dister", group), path=str(leader.folder))


def bring(
    spark: SparkSession,
    lake: Path,
    leader: LeaderLog,
    *,
    group: str = "test",
    start: int = 0,
    on_step: Callable[[BatchStep], None] = no_step,
) -> Solo:
    """A run that replicates what there is, in one batch; a replica that is new begins at `start`."""
    master = log_of(leader, group)
    replica = opened(spark, lake, master, on_step=on_step)
    position, end = replica.position() or start, leader.last_id + 1
    if position < end:
        replica(ranges(position, end, log_id=str(master.log_id)))
    return replica


def follow(spark: SparkSession, lake: Path, leader: LeaderLog) -> bool:
    return KeyedStateFollower(spark, str(lake), log_of(leader)).follow()


def replayed(leader: LeaderLog) -> dict[str, str]:
    """The map that dister serves: its log, entry by entry."""
    return replay(leader.entries())


def table(lake: Path) -> DeltaTable:
    return DeltaTable(str(lake / "dister_kv"))


def entries(lake: Path, group: str = "test") -> dict[str, tuple[str | None, int, bool]]:
    """The rows of a log in dister_kv, as delta-rs reads them; no key is there twice."""
    columns = ["log_id", "key", "value", "id", "deleted"]
    found: list[dict[str, Any]] = table(lake).to_pyarrow_table(columns=columns).to_pylist()
    rows = [row for row in found if row["log_id"] == f"dister/{group}"]
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["value"], row["id"], row["deleted"]) for row in rows}


def live(lake: Path, group: str = "test") -> dict[str, str | None]:
    """The map, as an analyst asks for it."""
    return {key: value for key, (value, _, deleted) in entries(lake, group).items() if not deleted}
