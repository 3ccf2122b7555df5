"""Random histories of a group of logs: what happens to their masters, and to the jobs and verbs that replicate them.

A seed is a history: the same seed does the same in the same order. What a verb may answer in the middle is not judged,
because it depends on what came before. What must hold is judged at the end, when everything that operators can do has
been done: each log is its master's, byte for byte, and every account of it agrees; or an incident says why it is not.

A kill is an error thrown between two steps of a batch, a repair or a backfill; nothing of that run is used again. Real
``kill -9``: `test_killed.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.inspect.coverage import coverages
from pipeline.inspect.selection import ConfiguredLog
from pipeline.job.replicate import Job
from pipeline.operate.backfill import Wanted, run_backfill
from sinks.healing.repair import Repair
from sinks.state.log_table import LogTable
from sources.dister.embedded.leader import EmbeddedLeader
from sources.errors import LogtwinError, Recreated, ReplicaError
from sources.offsets import LogId, Offset
from sources.registry import open_log
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.pipeline import running
from tests.pipeline.faulty_link import Fault, Link
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.masters import embedded_master
from tests.pipeline.read_back import assert_whole

LOSSES = ("fail", "record")
BODY = 95
"""Where in a record there is a byte of its body for certain."""


class Killed(ReplicaError):
    """The run that got this far gets no further."""


def dying_after(steps: int, of: object = None) -> Callable[[object], None]:
    """For `on_step`: the end of the run after so many steps, or so many `of` one kind; 0: never."""
    left = steps

    def die(step: object) -> None:
        nonlocal left
        left -= of in (None, step)
        if not left:
            raise Killed("killed")

    return die


class Master(Protocol):
    log_id: str

    def options(self) -> dict[str, object]: ...

    def happenings(self) -> list[Callable[[random.Random], str]]:
        """What may happen to it; each does it, and says what."""

    def mend(self) -> None:
        """Whatever is wrong with it is over, and what is lost for good may be passed."""

    def archive(self) -> Path | None:
        """Where everything that it ever held can be had."""

    def judge(self, world: World) -> None:
        """The replica is what it holds."""


class Files:
    def __init__(self, root: Path, on_loss: str) -> None:
        self.log = FaultyLog(root)
        self.log_id = f"rocketmq/{root.name}"
        self.log.append(random.Random(root.name), 8)
        self._on_loss = on_loss
        self._bad: Offset | None = None

    def options(self) -> dict[str, object]:
        sizes = {"max_bytes_per_trigger": 9000, "split_bytes": 4000}
        return {"path": str(self.log.path), "on_loss": self._on_loss, **sizes}

    def happenings(self) -> list[Callable[[random.Random], str]]:
        return [self.write, self.write, self._cut, self._rewrite, self._damage, self._forget]

    def write(self, moments: random.Random) -> str:
        self._heal()
        count = moments.randrange(1, 40)
        self.log.append(moments, count)
        return f"{count} messages, up to {self.log.end}"

    def _cut(self, moments: random.Random) -> str:
        self._heal()
        at = moments.choice(self.log.boundaries)
        self.log.cut_at(at)
        return f"cut at {at}"

    def _rewrite(self, moments: random.Random) -> str:
        self._heal()
        at = moments.choice(self.log.boundaries)
        self.log.rewrite_from(at, moments)
        return f"rewritten from {at}"

    def _damage(self, moments: random.Random) -> str:
        """Until something else happens: the store takes no log that is damaged. Whoever reads meanwhile meets it."""
        self._heal()
        starts = self.log.messages
        if not starts:
            return "nothing to damage"
        at = moments.choice(starts)
        self._bad = Offset(at + BODY)
        self.log.flip(self._bad)
        return f"damaged at {at}"

    def _heal(self) -> None:
        bad, self._bad = self._bad, None
        if bad is not None:
            self.log.flip(bad)

    def _forget(self, moments: random.Random) -> str:
        self._heal()
        if self.log.files < 2:
            return self.write(moments)
        self.log.forget_front(1)
        return f"retention, up to {self.log.start}"

    def mend(self) -> None:
        self._heal()
        self._on_loss = "record"
        if not self.log.data():
            self.write(random.Random(self.log_id))  # of an empty log nobody has a state

    def archive(self) -> Path | None:
        return self.log.archive

    def judge(self, world: World) -> None:
        world.assert_whole(self.log_id, self.log.everything())


class Linked:
    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.log_id = f"rocketmq/{root.name}"
        self._served = stack.enter_context(embedded_master(root))
        master = self._served.master
        self._producer = stack.enter_context(Producer(master.address))
        self._ha, self._remoting = (stack.enter_context(Link(to)) for to in (master.ha_address, master.address))
        self.write(random.Random(root.name))

    def options(self) -> dict[str, object]:
        timeouts = {"connect_timeout_ms": 400, "connect_attempts": 1, "silence_timeout_ms": 1000}
        return {"master": str(self._ha.address), "remoting": str(self._remoting.address), **timeouts}

    def happenings(self) -> list[Callable[[random.Random], str]]:
        return [self.write, self.write, self._fail]

    def write(self, moments: random.Random) -> str:
        for _ in range(moments.randrange(1, 20)):
            self._producer.send(OutgoingMessage("orders", moments.randbytes(moments.randrange(500)), queue_id=0))
        return f"messages, up to {self._served.end}"

    def _fail(self, moments: random.Random) -> str:
        fault = moments.choice((Fault.SILENT, Fault.GONE, Fault.NONE))
        links = moments.choice(((self._ha,), (self._ha, self._remoting)))
        for link in links:
            link.meet(fault)
        return f"{fault.value}, {len(links)} of its ports"

    def mend(self) -> None:
        for link in (self._ha, self._remoting):
            link.meet(Fault.NONE)

    def archive(self) -> Path | None:
        return None

    def judge(self, world: World) -> None:
        world.assert_whole(self.log_id, self._served.log())


class Leader:
    def __init__(self, root: Path) -> None:
        self.log_id = f"dister/{root.name}"
        self._folder = root
        self.write(random.Random(root.name))

    def options(self) -> dict[str, object]:
        return {"path": str(self._folder), "max_entries_per_trigger": 7}

    def happenings(self) -> list[Callable[[random.Random], str]]:
        return [self.write]

    def write(self, moments: random.Random) -> str:
        with EmbeddedLeader(self._folder, group=self._folder.name, seed=7) as leader:
            for _ in range(moments.randrange(1, 12)):
                leader.write({f"key-{moments.randrange(5)}": f"{moments.random()}"})
            return f"entries, up to {leader.last_id}"

    def mend(self) -> None:
        """It is always there."""

    def archive(self) -> Path | None:
        return None

    def judge(self, world: World) -> None:
        from tests.dister.twin import Twin  # which has the same kill as a history

        Twin(world.spark, self._folder, world.lake, self._folder.name).assert_equal()


@dataclass
class World:
    """One history, in `folder`. `done` tells it, for whoever has to repeat it."""

    spark: SparkSession
    folder: Path
    seed: int
    asks_all: bool = False
    files: int = 5
    linked: int = 2
    leaders: int = 1
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._moments = random.Random(self.seed)
        self.lake = self.folder / "lake"
        self.masters: list[Master] = []

    def run(self) -> None:
        """Everything, and the proof at the end. Raises AssertionError telling the whole history."""
        try:
            with ExitStack() as stack:
                self._begin(stack)
                for act in (*self._history(), self._settle, self._judge):
                    act()
        except (AssertionError, LogtwinError) as error:
            told = "\n  ".join(self.done)
            raise AssertionError(f"seed {self.seed}:\n  {told}\n{error!r}") from error

    def _begin(self, stack: ExitStack) -> None:
        self.masters += [
            Files(self.folder / f"files-{number}", self._moments.choice(LOSSES)) for number in range(self.files)
        ]
        self.masters += [Linked(self.folder / f"linked-{number}", stack) for number in range(self.linked)]
        self.masters += [Leader(self.folder / f"leader-{number}") for number in range(self.leaders)]

    def _history(self) -> Iterator[Callable[[], None]]:
        """A run that is killed or not; then things happen, between further runs and verbs."""
        yield self._moments.choice((self._replicate, self._replicate_killed))
        for _ in range(self._moments.randrange(3, 9)):
            yield self._happen
        yield self._replicate_killed
        for _ in range(self._moments.randrange(1, 4)):
            yield self._moments.choice((self._happen, self._happen, self._repair, self._backfill))

    def _happen(self) -> None:
        master = self._moments.choice(self.masters)
        said = self._moments.choice(master.happenings())(self._moments)
        self._tell(f"{master.log_id}: {said}")

    def _replicate(self) -> None:
        self._tell(f"replicate: {self._replicated()}")

    def _replicate_killed(self) -> None:
        after = self._moments.randrange(1, 10)
        self._tell(f"replicate, killed after step {after}: {self._replicated(dying_after(after))}")

    def _replicated(self, on_step: Callable[[object], None] | None = None, *log_ids: str) -> dict[str, str]:
        """By a job: what ended which log."""
        running.register(self.spark)
        job = Job(self.spark, self._config(*log_ids), available_now=True, on_step=on_step)
        try:
            job.start(poll_interval_s=0.01)
            job.run(poll_interval_s=0.01)
        except LogtwinError:
            pass  # it is the first log's
        return {one.id: f"{type(one.error).__name__}: {one.error}" for one in job.logs if one.error is not None}

    def _repair(self) -> None:
        self._try("repair", self._repair_one, 6)

    def _backfill(self) -> None:
        self._try("backfill", self._backfill_one, 4)

    def _files(self) -> list[Master]:
        return [one for one in self.masters if one.archive() is not None]

    def _repair_one(self, master: Master, killed_after: int = 0, *, accept_master: bool = False) -> None:
        log = open_log(self._config(master.log_id).logs[0])
        Repair(self.spark, str(self.lake), log, on_step=dying_after(killed_after)).run(accept_master=accept_master)

    def _backfill_one(self, master: Master, killed_after: int = 0) -> None:
        config, die = self._config(master.log_id), dying_after(killed_after)
        subject, path = ConfiguredLog.alone(config.logs[0]), str(master.archive())
        run_backfill(self.spark, config, subject, Wanted.parse(None, None), path=path, on_step=die)

    def _settle(self) -> None:
        for master in self.masters:
            master.mend()
        failed = self._replicated()
        self._tell(f"mended, and replicated: {failed}")
        for master in self._files():
            if master.log_id in failed:
                self._settle_one(master)
        if failed:
            failed = self._replicated(None, *failed)
            self._tell(f"and what had failed: {failed}")
        assert failed == {}
        for master in self._files():
            if self._held(master.log_id).holes.ranges:
                self._backfill_one(master)

    def _settle_one(self, master: Master) -> None:
        try:
            self._repair_one(master)
        except Recreated:
            self._repair_one(master, accept_master=True)
        self._tell(f"{master.log_id}: repaired")

    def _judge(self) -> None:
        """By the tables' files; where it `asks_all`, also by what `logtwin coverage` says, which takes some seconds."""
        for master in self.masters:
            master.judge(self)
        if self.asks_all:
            assert [one.problem for one in coverages(self._config())] == [None] * len(self.masters)

    def assert_whole(self, log_id: str, log: bytes) -> None:
        """The table is `log`, once, and so say the position, the holes and the ledger."""
        held = self._held(log_id)
        assert (held.state.offset, held.holes.ranges) == (len(log), ())
        assert_whole(self.lake, log, log_id)

    def _held(self, log_id: str) -> Any:
        return LogTable(self.spark, f"{self.lake}/log", LogId.parse(log_id)).read()

    def _config(self, *log_ids: str) -> Config:
        logs = [{"id": one.log_id, **one.options()} for one in self.masters if not log_ids or one.log_id in log_ids]
        settings = {"trigger_interval_s": 0.05, "metadata": {"enabled": False}}
        return parse({"warehouse": str(self.lake), **settings, "logs": logs}, where=f"seed {self.seed}")

    def _try(self, name: str, act: Callable[[Master, int], None], steps: int) -> None:
        master = self._moments.choice(self._files())
        after = self._moments.choice((0, self._moments.randrange(1, steps)))
        name += f", killed after step {after}" if after else ""
        try:
            act(master, after)
        except LogtwinError as error:
            self._tell(f"{master.log_id}: {name}: {type(error).__name__}: {error}")
        else:
            self._tell(f"{master.log_id}: {name}: done")

    def _tell(self, what: str) -> None:
        self.done.append(what)
