"""Masters of files whose replicas a group has written into files that they share; each to be repaired by itself."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.inspect.coverage import coverages
from pipeline.operate.repair import repair_logs
from sinks.batch.group import Group
from sinks.batch.proof import no_step
from sinks.batch.replica import Replica, open_together
from sinks.proof.completeness import Reason
from sources.offsets import LogId
from sources.registry import open_log
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.repair_bench import Bench
from tests.pipeline.running import job_config
from tests.sinks.groups import splits
from tests.sinks.memory_master import RecordingSession

NAMES = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True)
class Member(Bench):
    @property
    def log(self) -> FaultyLog:
        return FaultyLog(self.folder / self.log_id.name)

    @property
    def config(self) -> Config:
        return job_config(self.lake, id=str(self.log_id), path=str(self.log.path))

    def is_its_master_s(self) -> bool:
        self.check_ledger(self.log.data(), self.log.end)
        return self.offsets("log") == self.log.boundaries[:-1] and not self.holes() and not self.incidents().open()

    def repair_and_bring(self) -> list[str]:
        """As ``logtwin repair`` does, with what it brings again from the master; what it says."""
        return list(repair_logs(self.config, "job.toml", accept_master=False, take_over=False, dry_run=False))

    def claims(self) -> list[tuple[int, int]]:
        return [(row["start"], row["end"]) for row in self.rows("ledger") if row["deleted_at"] is None]


@dataclass(frozen=True)
class Shared:
    spark: SparkSession
    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def config(self) -> Config:
        logs = [{"id": f"rocketmq/{name}", "path": str(self.of(name).log.path)} for name in NAMES]
        return parse({"warehouse": str(self.lake), "logs": logs}, where="test")

    def of(self, name: str) -> Member:
        return Member(self.spark, self.folder, LogId("rocketmq", name))

    def replicas(self, names: Sequence[str] = NAMES) -> dict[str, Replica]:
        """Opened, as a job has them."""
        masters = {name: open_log(self.of(name).config.logs[0]) for name in names}
        found = {name: Replica(self.spark, str(self.lake), one, RecordingSession()) for name, one in masters.items()}
        open_together(list(found.values()))
        for one in found.values():
            one.follow()
        return found

    def bring(self, replicas: dict[str, Replica]) -> None:
        planned = [
            one
            for name, replica in replicas.items()
            for one in splits(name, replica.position() or 0, self.of(name).log.end)
        ]
        group = Group(self.spark, str(self.lake), no_step)
        outcomes = group.apply(planned, {str(one.log_id): one for one in replicas.values()})
        assert not [one for one in outcomes.values() if isinstance(one, Exception)]

    def append(self, seed: int, names: Sequence[str] = NAMES) -> None:
        for name in names:
            self.of(name).log.append(random.Random(f"{seed} {name}"), 5 + NAMES.index(name))

    def files(self) -> dict[Path, list[str]]:
        """Each data file of the table's folder, and the logs that have rows in it."""
        found = {}
        for file in sorted((self.lake / "log").glob("*.parquet")):
            ids = pq.read_table(file, columns=["log_id"])["log_id"].to_pylist()
            found[file] = sorted({LogId.parse(one).name for one in ids})
        return found

    def assert_explained(self) -> None:
        """The accounts of each log agree: what is whole has its records, what is missing an incident tells of."""
        for one in coverages(self.config):
            member = self.of(one.log_id.name)
            assert one.complete is not None
            assert one.problem is None
            assert {missing.reason for missing in one.complete.missing} <= {Reason.INCIDENT}
            whole = [stretch.range for stretch in one.complete.whole]
            claimed = [at for at in member.log.boundaries[:-1] if any(at in part for part in whole)]
            assert member.offsets("log") == claimed

    def repair_all(self) -> None:
        for name in NAMES:
            self.of(name).repair_and_bring()

    def copied(self, folder: Path) -> Shared:
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Shared(self.spark, folder)


def made(spark: SparkSession, folder: Path) -> Shared:
    shared = Shared(spark, folder)
    for seed in range(3):
        shared.append(seed)
        shared.bring(shared.replicas())
    return shared
