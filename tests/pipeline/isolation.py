"""One job that replicates two steady logs over HA, written to all the time, and a third one whose master fails."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.job.replicate import Job
from pipeline.job.replication import Replication
from pipeline.monitoring.progress import Phase
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.patience import wait_until
from tests.pipeline import running
from tests.pipeline.faulty_link import Fault, Link
from tests.pipeline.freshness import Freshness
from tests.pipeline.masters import Served, embedded_master

STEADY = ("rocketmq/a", "rocketmq/b")


class World:
    def __init__(self, session: SparkSession, folder: Path, stack: ExitStack) -> None:
        self.masters: dict[str, Served] = {
            name: stack.enter_context(embedded_master(folder / name)) for name in ("a", "b", "linked")
        }
        linked = self.masters["linked"].master
        self.links = [stack.enter_context(Link(to)) for to in (linked.ha_address, linked.address)]
        self._producers = {
            name: stack.enter_context(Producer(served.master.address)) for name, served in self.masters.items()
        }
        ha, remoting = (str(link.address) for link in self.links)
        logs: list[dict[str, object]] = [
            {"id": f"rocketmq/{name}", **self.masters[name].options} for name in ("a", "b")
        ]
        # whoever waited for it as long as for a log that is alone would wait for longer than a test does
        logs.append({"id": "rocketmq/linked", "master": ha, "remoting": remoting, "silence_timeout_ms": 300_000})
        settings = {"trigger_interval_s": 0.2, "retry_wait_max_s": 1.0, "metadata": {"enabled": False}}
        config = parse({"warehouse": str(folder / "lake"), **settings, "logs": logs}, where="test")
        self.job = Job(session, config, available_now=False)
        self.fresh = {log_id: stack.enter_context(Freshness(self._position(log_id))) for log_id in STEADY}
        stack.enter_context(self._writing())
        stack.enter_context(self._running())

    def member(self, log_id: str) -> Replication:
        return next(one for one in self.job.logs if one.id == log_id)

    def write(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self._producers[name].send(OutgoingMessage("orders", bytes(300), queue_id=0))

    @contextmanager
    def failing(self, fault: Fault, *, is_of_all: bool = True) -> Iterator[None]:
        """The third master, at each of its ports or only where it sends; it is given more meanwhile."""
        for link in self.links if is_of_all else self.links[:1]:
            link.meet(fault)
        self.write("linked", 20)
        yield
        for link in self.links:
            link.meet(Fault.NONE)

    def reach(self, log_id: str) -> None:
        end = self.masters[log_id.partition("/")[2]].end
        one = self.member(log_id)
        wait_until(
            lambda: (one.progress().position or 0) >= end and one.phase is Phase.RUNNING,
            lambda: f"{log_id} at {end}: {one.phase}, {one.error}",
        )

    def worst_s(self, lasts_s: float) -> float:
        """How long anything of the steady logs waits at most, from now on for so long."""
        began_s = time.monotonic()
        time.sleep(lasts_s)
        return max(one.worst_s(began_s) for one in self.fresh.values())

    def _position(self, log_id: str) -> Callable[[], int | None]:
        return lambda: self.member(log_id).progress().position

    @contextmanager
    def _writing(self) -> Iterator[None]:
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
def settled_world(session: SparkSession, folder: Path) -> Iterator[World]:
    running.register(session)
    with ExitStack() as stack:
        world = World(session, folder, stack)
        world.write("linked")
        for one in world.job.logs:
            world.reach(one.id)
        yield world
