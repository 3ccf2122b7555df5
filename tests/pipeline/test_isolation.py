"""What one log meets stops no other log, and costs no other log's freshness more than a second.

One job replicates two steady logs over HA, which are written to all the time, and beside them logs that things happen
to, one thing at a time. The bound is relative: what the steady logs waited in the same job when nothing happened.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.backfill import run_backfill
from pipeline.config import Config, parse
from pipeline.progress import Phase
from pipeline.replicate import Job
from pipeline.replication import Replication
from pipeline.subjects import OneLog
from pipeline.wanted import Wanted
from sinks.healing.repair import Repair
from sources.datasource import register
from sources.errors import ConfigurationError, CorruptRecord, LogtwinError, OffsetOutOfRange, TakenOver
from sources.offsets import Offset
from sources.registry import open_log
from sources.rocketmq.producer import Message, Producer
from tests.patience import wait_until
from tests.pipeline.faulty_link import Fault, Link
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.freshness import Freshness
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.running import log_table

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

STEADY = ("rocketmq/a", "rocketmq/b")
LASTS_S = 3.0
"""How long the steady logs are watched when something happens."""

FAULT_S = 5.0
"""How long a master fails: longer than anybody is allowed to wait."""

MORE_S = 1.0
"""The promise."""

NOISE_S = 1.0
"""Of a machine that does much else; a log that is waited for as long as one alone would be costs five."""


VERB_S = 10.0
"""The same where a verb works. It is a process of its own, but here it shares the job's JVM and Spark's two cores."""


class World:
    """The masters, the job that replicates them, and what was written when."""

    def __init__(self, spark: SparkSession, folder: Path, stack: ExitStack) -> None:
        self.spark = spark
        self.folder = folder
        self.lake = folder / "lake"
        self.masters: dict[str, Served] = {
            name: stack.enter_context(embedded_master(folder / name)) for name in ("a", "b", "linked")
        }
        linked = self.masters["linked"].master
        self.ha, self.remoting = (stack.enter_context(Link(to)) for to in (linked.ha_address, linked.address))
        self.files = {name: FaultyLog(folder / name) for name in ("taken", "holed", "cut", "damaged")}
        for number, log in enumerate(self.files.values()):
            log.append(random.Random(number), 20)
        holed = self.files["holed"]
        self.bad = holed.boundaries[7]
        holed.flip(Offset(self.bad + 95))
        self._producers = {
            name: stack.enter_context(Producer(served.master.address)) for name, served in self.masters.items()
        }
        self.job = Job(spark, self._config(), available_now=False)
        self.fresh = {
            f"rocketmq/{name}": stack.enter_context(Freshness(self._position(f"rocketmq/{name}"))) for name in "ab"
        }
        stack.enter_context(self._writing())
        stack.enter_context(self._running())
        self.quiet_s = 0.0

    def settle(self) -> None:
        """Until the job has begun, and as long again as it takes to see what it does when nothing happens."""
        wait_until(lambda: self._have_begun(), lambda: str([(one.id, one.phase, one.error) for one in self.job.logs]))
        for log_id in STEADY:
            self.assert_equal(log_id)
        began_s = time.monotonic()
        time.sleep(LASTS_S)
        self.quiet_s = self._worst_s(began_s)

    def _have_begun(self) -> bool:
        """Every log that can be replicated is."""
        wanted = [one for one in self.job.logs if one.id != "rocketmq/wrong"]
        return all(one.phase is Phase.RUNNING and one.progress().position for one in wanted)

    def member(self, log_id: str) -> Replication:
        return next(one for one in self.job.logs if one.id == log_id)

    def error(self, log_id: str) -> LogtwinError | None:
        return self.member(log_id).error

    def write(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self._producers[name].send(Message("orders", random.randbytes(300), queue_id=0))

    def config_of(self, *log_ids: str) -> Config:
        whole = self._config()
        return whole.model_copy(update={"logs": tuple(one for one in whole.logs if one.id in log_ids)})

    def _config(self) -> Config:
        logs: list[dict[str, object]] = [
            {"id": f"rocketmq/{name}", **self.masters[name].options} for name in ("a", "b")
        ]
        logs += [{"id": f"rocketmq/{name}", "path": str(log.path)} for name, log in self.files.items()]
        logs.append({"id": "rocketmq/linked", "master": str(self.ha.address), "remoting": str(self.remoting.address)})
        logs.append({"id": "rocketmq/wrong", "path": str(self.folder / "nowhere")})
        for one in logs:
            one["on_loss"] = "record" if one["id"] == "rocketmq/holed" else "fail"
        settings = {"trigger_interval_s": 0.2, "retry_wait_max_s": 1.0, "metadata": {"enabled": False}}
        return parse({"warehouse": str(self.lake), **settings, "logs": logs}, where="test")

    def _position(self, log_id: str) -> Callable[[], int | None]:
        return lambda: self.member(log_id).progress().position

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """To the steady logs, a message to each every now and then."""
        done = threading.Event()

        def write() -> None:
            while not done.wait(0.05):
                for name in ("a", "b"):
                    self.write(name)
                    self.fresh[f"rocketmq/{name}"].wrote(self.masters[name].end)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            done.set()
            writer.join()

    @contextmanager
    def _running(self) -> Iterator[None]:
        self.job.start()

        def run() -> None:
            while not self.job._stop.wait(0.1):
                self.job.poll()

        runner = threading.Thread(target=run)
        runner.start()
        try:
            yield
        finally:
            self.job.request_stop()
            runner.join()
            self.job.close()

    @contextmanager
    def watched(self, lasts_s: float = LASTS_S, *, noise_s: float = NOISE_S) -> Iterator[None]:
        """Nothing of the steady logs waits longer than is promised, while what is inside happens and for a while."""
        began_s, quiet_s = time.monotonic(), self.quiet_s
        yield
        time.sleep(max(0.0, began_s + lasts_s - time.monotonic()))
        worst_s = self._worst_s(began_s)
        print(f"{quiet_s:.2f} s when nothing happened, {worst_s:.2f} s meanwhile")  # noqa: T201 - for who looks
        for log_id in STEADY:
            assert self.member(log_id).phase is Phase.RUNNING, self.error(log_id)
        assert worst_s <= quiet_s + MORE_S + noise_s, f"{quiet_s:.2f} s when nothing happened"

    def _worst_s(self, since_s: float) -> float:
        return max(one.worst_s(since_s) for one in self.fresh.values())

    def assert_equal(self, log_id: str) -> None:
        name = log_id.partition("/")[2]
        end = self.masters[name].end
        wait_until(lambda: (self.member(log_id).progress().position or 0) >= end, f"{log_id} at {end}")


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    register(spark)
    with ExitStack() as stack:
        world = World(spark, tmp_path_factory.mktemp("isolation"), stack)
        world.write("linked")
        world.settle()
        yield world


def test_a_log_that_is_configured_wrongly_fails_alone(world: World) -> None:
    assert isinstance(world.error("rocketmq/wrong"), ConfigurationError)
    assert world.member("rocketmq/wrong").phase is Phase.FAILED
    assert [one.id for one in world.job.logs if one.phase is Phase.FAILED] == ["rocketmq/wrong"]


@pytest.mark.parametrize(
    ("fault", "is_of_all"),
    [
        (Fault.SILENT, True),
        (Fault.SILENT, False),  # it says what it holds, and does not send it: each batch has to find out anew
        (Fault.DRIPPING, True),
        (Fault.DRIPPING, False),
        (Fault.GONE, True),
    ],
    ids=lambda one: one.value if isinstance(one, Fault) else "everywhere" if one else "where it sends",
)
def test_a_master_that_fails(world: World, fault: Fault, is_of_all: bool) -> None:
    links = (world.ha, world.remoting) if is_of_all else (world.ha,)
    with world.watched(FAULT_S):
        for link in links:
            link.meet(fault)
        world.write("linked", 20)
    for link in links:
        link.meet(Fault.NONE)
    world.assert_equal("rocketmq/linked")


def test_another_job_takes_a_log_over(world: World) -> None:
    taken = "rocketmq/taken"
    other = Job(world.spark, world.config_of(taken), available_now=False, take_over=True)
    try:
        with world.watched():
            other.start()
            world.files["taken"].append(random.Random(8), 5)
        wait_until(lambda: world.member(taken).phase is Phase.FAILED, "the job to notice")
        assert isinstance(world.error(taken), TakenOver)
    finally:
        other.close()


def test_a_hole_is_filled_while_the_job_runs(world: World) -> None:
    holed, files = world.config_of("rocketmq/holed"), str(world.files["holed"].path)
    world.files["holed"].flip(Offset(world.bad + 95))
    with world.watched(noise_s=VERB_S):
        run_backfill(world.spark, holed, OneLog(holed.logs[0]), Wanted.parse(None, None), path=files)
    found = log_table(world.spark, world.lake).where("log_id = 'rocketmq/holed'").select("offset").collect()
    assert sorted(row["offset"] for row in found) == world.files["holed"].boundaries[:-1]
    assert world.member("rocketmq/holed").phase is Phase.RUNNING


def test_a_master_that_lost_its_tail_stops_its_log_and_is_repaired(world: World) -> None:
    cut = "rocketmq/cut"
    with world.watched(noise_s=VERB_S):
        world.files["cut"].lose_a_record()
        wait_until(lambda: world.member(cut).phase is Phase.FAILED, "the log to stop")
        Repair(world.spark, str(world.lake), open_log(world.config_of(cut).logs[0])).run()
    assert isinstance(world.error(cut), OffsetOutOfRange)


def test_damage_stops_the_log_that_has_it(world: World) -> None:
    damaged, log = "rocketmq/damaged", world.files["damaged"]
    with world.watched():
        staged = FaultyLog(world.folder / "staged")
        staged.path.mkdir(parents=True)
        first = sorted(log.path.iterdir())[0]
        (staged.path / first.name).write_bytes(first.read_bytes())
        end = staged.end
        staged.append(random.Random(9), 1)
        staged.flip(Offset(end + 95))
        (staged.path / first.name).replace(first)
        wait_until(lambda: world.member(damaged).phase is Phase.FAILED, "the log to stop")
    error = world.error(damaged)
    assert isinstance(error, CorruptRecord)
    assert error.offset == end
