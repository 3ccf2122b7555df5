"""One job that replicates two steady logs over HA, written to all the time, and logs that things happen to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.job.replicate import Job
from pipeline.job.replication import Replication
from pipeline.monitoring.progress import Phase
from sources.datasource import register
from sources.errors import LogtwinError
from sources.offsets import Offset
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.patience import wait_until
from tests.pipeline.faulty_link import Link
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.freshness import Freshness
from tests.pipeline.masters import Served, embedded_master

STEADY = ("rocketmq/a", "rocketmq/b")
LASTS_S = 3.0
"""How long the steady logs are watched when something happens."""

FAULT_S = 5.0
"""How long a master fails: longer than anybody is allowed to wait."""

ALONE_S = 5.0
"""What a log costs the others if it is waited for as long as one that is alone: the bound on any machine."""


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
        self.files = {name: FaultyLog(folder / name) for name in ("taken", "holed")}
        for number, log in enumerate(self.files.values()):
            log.append(random.Random(number), 80 if log is self.files["holed"] else 20)
        holed = self.files["holed"]
        assert holed.files == 2  # damage in the newest file would be the end of the log so far
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
        return all(one.phase is Phase.RUNNING and one.progress().position for one in self.job.logs)

    def member(self, log_id: str) -> Replication:
        return next(one for one in self.job.logs if one.id == log_id)

    def error(self, log_id: str) -> LogtwinError | None:
        return self.member(log_id).error

    def write(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self._producers[name].send(OutgoingMessage("orders", bytes(300), queue_id=0))

    def config_of(self, *log_ids: str) -> Config:
        whole = self._config()
        return whole.model_copy(update={"logs": tuple(one for one in whole.logs if one.id in log_ids)})

    def _config(self) -> Config:
        logs: list[dict[str, object]] = [
            {"id": f"rocketmq/{name}", **self.masters[name].options} for name in ("a", "b")
        ]
        logs += [{"id": f"rocketmq/{name}", "path": str(log.path)} for name, log in self.files.items()]
        logs.append({"id": "rocketmq/linked", "master": str(self.ha.address), "remoting": str(self.remoting.address)})
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
    def watched(self, lasts_s: float = LASTS_S, *, bound_s: float = ALONE_S) -> Iterator[None]:
        """Nothing of the steady logs waits as long as `bound_s`, while what is inside happens and for a while."""
        began_s = time.monotonic()
        yield
        time.sleep(max(0.0, began_s + lasts_s - time.monotonic()))
        worst_s = self._worst_s(began_s)
        print(f"{self.quiet_s:.2f} s when nothing happened, {worst_s:.2f} s meanwhile")  # noqa: T201 - for who looks
        for log_id in STEADY:
            assert self.member(log_id).phase is Phase.RUNNING, self.error(log_id)
        assert worst_s < bound_s, f"{self.quiet_s:.2f} s when nothing happened"

    def _worst_s(self, since_s: float) -> float:
        return max(one.worst_s(since_s) for one in self.fresh.values())

    def assert_equal(self, log_id: str) -> None:
        name = log_id.partition("/")[2]
        end = self.masters[name].end
        wait_until(lambda: (self.member(log_id).progress().position or 0) >= end, f"{log_id} at {end}")


@contextmanager
def settled_world(spark: SparkSession, folder: Path) -> Iterator[World]:
    """One whose logs have begun."""
    register(spark)
    with ExitStack() as stack:
        world = World(spark, folder, stack)
        world.write("linked")
        world.settle()
        yield world
