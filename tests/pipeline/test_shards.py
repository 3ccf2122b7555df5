"""Jobs that share the logs of one configuration: killed, started and stopped in any order.

Of each log there is each record once, whoever had it when. The jobs are real, and so are the table's commits; Spark is
left out (`group_in_process`), or it would be ten JVMs. At night they are processes of their own, and one is killed.
"""

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, load, parse
from pipeline.inspect.coverage import coverages
from pipeline.job.catalog import Catalogued
from pipeline.job.replicate import Job
from pipeline.job.typed_tables import TypedTables
from sinks.delta.delta_log import newest
from sinks.state.fence import logs_in, state_in
from sources.errors import LogtwinError
from sources.shards import share_of
from tests.patience import wait_until
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.group_in_process import use_plain
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import run
from tests.sinks.plain_session import PlainSession

_PROJECT = Path(__file__).parents[2]


class Thread(threading.Thread):
    """A job in this process, which cannot be killed."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        super().__init__(daemon=True)
        self._job = Job(spark, config, available_now=False)
        self.error: LogtwinError | None = None

    def run(self) -> None:
        try:
            self._job.start()
            self._job.run()
        except LogtwinError as error:
            self.error = error

    def end(self) -> None:
        self._job.request_stop()
        self.join(60)
        assert not self.is_alive()
        assert self.error is None


@dataclass
class Site:
    """Masters of files, `logs` of them, and the jobs that replicate them, by shard."""

    interval_s: ClassVar[float] = 0.5
    patience_s: ClassVar[float] = 120.0

    folder: Path
    logs: int
    jobs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._moments = random.Random(7)
        self.masters = {f"rocketmq/b{at}": FaultyLog(self.folder / f"b{at}") for at in range(self.logs)}
        self.lake = self.folder / "lake"
        logs = ({"id": log_id, "path": one.path} for log_id, one in self.masters.items())
        unattended = {"trigger_interval_s": self.interval_s, "metadata": {"enabled": False}}
        self.config_file = job_toml(self.folder, *logs, **unattended)
        self.write()

    @property
    def config(self) -> Config:
        return load(self.config_file)

    def write(self) -> None:
        """Some records more in each."""
        for one in self.masters.values():
            one.append(self._moments, 2)

    def start(self, shard: str) -> None:
        self.jobs[shard] = Thread(cast(SparkSession, PlainSession()), self.config.in_shard(shard))
        self.jobs[shard].start()

    def end(self, shard: str) -> None:
        self.jobs.pop(shard).end()

    def kill(self, shard: str) -> None:
        self.end(shard)

    def end_all(self) -> None:
        for shard in [*self.jobs]:
            self.end(shard)

    def close(self) -> None:
        self.end_all()

    def told(self) -> str:
        """What became of the jobs, for whoever waits in vain."""
        return str({shard: job.error for shard, job in self.jobs.items()})

    def at(self) -> dict[str, int | None]:
        version = newest(str(self.lake / "log"))
        domains = {} if version is None else version.domains()
        states = {str(log_id): state_in(domains.get, log_id) for log_id in logs_in(domains)}
        return {log_id: None if state is None else state.offset for log_id, state in states.items()}

    def await_ends(self) -> None:
        """Until all that the masters hold now is committed."""
        ends = {log_id: one.end for log_id, one in self.masters.items()}

        def missing() -> dict[str, int]:
            at = self.at()
            return {log_id: end for log_id, end in ends.items() if at.get(log_id) != end}

        wait_until(lambda: not missing(), lambda: f"{missing()}; {self.told()}", self.patience_s, look_every_s=1.0)

    def jobs_told(self, capsys: pytest.CaptureFixture[str], shards: set[str]) -> dict[str, Any]:
        """The jobs as status tells them from outside, once it is these, and each log has one of them."""
        found: dict[str, Any] = {}

        def is_settled() -> bool:
            told = json.loads(run(capsys, "status", "--config", self.config_file, "--json").out)
            found.clear()
            found.update({one["shard"]: one for one in told["jobs"]})
            return found.keys() == shards and {one["running"] for one in told["logs"]} == {True}

        wait_until(is_settled, lambda: f"{[*found]}; {self.told()}", self.patience_s, look_every_s=1.0)
        return found

    def check_whole(self) -> None:
        """Each record once, and every account agrees."""
        for said in (one.as_json() for one in coverages(self.config)):
            assert (said["problem"], said["missing"], said["overlaps"]) == (None, [], []), said
        rows = DeltaTable(self.lake / "log").to_pyarrow_table(columns=["log_id", "offset", "size"])
        for log_id, master in self.masters.items():
            mine = rows.filter(pc.equal(rows["log_id"], log_id)).sort_by("offset")
            starts, sizes = mine["offset"].to_pylist(), mine["size"].to_pylist()
            ends = [start + size for start, size in zip(starts, sizes, strict=True)]
            assert [*starts, master.end] == [0, *ends], log_id


class Processes(Site):
    """Jobs in processes of their own."""

    interval_s = 3.0  # the stand-in for Kernel has no checkpoints: few commits
    patience_s = 600.0

    def start(self, shard: str) -> None:
        command = [sys.executable, "-m", "tests.pipeline.shard_process", str(self.config_file), shard]
        with self._log(shard).open("a") as said:
            self.jobs[shard] = subprocess.Popen(command, cwd=_PROJECT, stdout=said, stderr=said, text=True)

    def end(self, shard: str) -> None:
        self._end(shard, signal.SIGTERM, 0)

    def kill(self, shard: str) -> None:
        self._end(shard, signal.SIGKILL, -signal.SIGKILL)

    def _end(self, shard: str, by: signal.Signals, returns: int) -> None:
        job = self.jobs.pop(shard)
        job.send_signal(by)
        assert job.wait(60) == returns, self._log(shard).read_text()[-3000:]

    def close(self) -> None:
        for job in self.jobs.values():
            job.kill()
            job.wait()

    def told(self) -> str:
        return str({shard: (job.poll(), self._log(shard).read_text()[-500:]) for shard, job in self.jobs.items()})

    def _log(self, shard: str) -> Path:
        return self.folder / f"{shard.replace('/', '-')}.log"


@pytest.fixture
def plain_jobs(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    return use_plain(monkeypatch)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as ending:
        site = request.param[0](tmp_path, request.param[1])
        ending.callback(site.close)
        yield site


@pytest.mark.job
@pytest.mark.parametrize(
    ("site", "before", "after"),
    [((Site, 15), 2, 3), pytest.param((Processes, 300), 3, 4, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])],
    indirect=["site"],
)
def test_shards_end_and_are_killed_and_more_are_started_beside_the_old(
    site: Site, before: int, after: int, capsys: pytest.CaptureFixture[str], plain_jobs: SparkSession
) -> None:
    """And one of the old is started again beside the new: no order is needed, nothing is lost or there twice."""
    old, new = ([f"{number}/{of}" for number in range(1, of + 1)] for of in (before, after))
    for shard in old:
        site.start(shard)
    site.await_ends()
    site.write()
    site.kill(old.pop(1))
    for shard in new:
        site.start(shard)
        site.write()
    moved = {log_id for log_id in site.masters if share_of(log_id, after) == after}
    kept = {log_id for log_id in moved if share_of(log_id, before) != 2}
    site.await_ends()
    last = site.jobs_told(capsys, {*old, *new})[new[-1]]
    assert last["waits_for"].keys() == kept
    assert last["logs"] == len(moved) - len(kept)
    assert all(any(f"shard {shard}," in who for shard in old) for who in last["waits_for"].values())
    for shard in old:
        site.end(shard)
        site.write()
    site.start(old[0])
    site.await_ends()
    told = site.jobs_told(capsys, {old[0], *new})
    assert sum(one["logs"] for one in told.values()) == site.logs
    site.end_all()
    site.check_whole()


def test_what_has_no_log_of_its_own_is_one_shards(tmp_path: Path, plain_jobs: SparkSession) -> None:
    tables = [{"name": f"t{at}", "from": ["orders"]} for at in range(9)]
    given = {"warehouse": str(tmp_path), "tables": tables, "catalog": {"schema": "s"}}
    shards = [parse(given, where="test").in_shard(f"{number}/3") for number in (1, 2, 3)]
    made = [[one.table for one in TypedTables(plain_jobs, config).progress()] for config in shards]
    assert sorted(name for names in made for name in names) == [str(one["name"]) for one in tables]
    assert min(map(len, made)) > 0
    assert sum(Catalogued(plain_jobs, config)._schema is not None for config in shards) == 1
    assert sum(config.serves("kafka/c/orders") for config in shards) == 1  # whose metadata it fetches
