"""Random histories of a log and its replica: appends, kills, restarts, faults of the master, backfills and repairs.

A seed is a schedule: the same seed does the same in the same order. What a verb may answer in the middle is not judged
beyond its type, because it depends on what came before; what must hold is judged at the end, when everything that
operators can do has been done: the table is the master's log, byte for byte, and every account of it agrees.

A kill is an error thrown between two steps; nothing of that run is used again. Real ``kill -9`` after each step
is tried beside it (`test_killed.py`, `test_repair.py`, `test_backfill.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.coverage import coverages
from pipeline.inspect.selection import OneLog
from pipeline.operate.backfill import run_backfill
from pipeline.operate.hole_filter import Wanted
from sinks.healing.repair import Repair
from sources.errors import LogtwinError, Recreated, ReplicaError
from sources.registry import open_log
from tests.pipeline.faulty_log import FaultyLog
from tests.pipeline.running import assert_complete, job_config, replicate_now

EVERYTHING = Wanted.parse(None, None)
MOST_OPERATIONS = 9


class Killed(ReplicaError):
    """The run that got this far gets no further."""


@dataclass
class Schedule:
    """One history, in `folder`. `done` tells it, for whoever has to repeat it."""

    spark: SparkSession
    folder: Path
    seed: int
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._moments = random.Random(self.seed)
        self._log = FaultyLog(self.folder / "master")
        self._lake = self.folder / "lake"
        self._on_loss = self._moments.choice(("fail", "record"))

    def run(self) -> None:
        """Everything, and the proof at the end. Raises AssertionError telling the whole history."""
        try:
            self._append()
            for _ in range(self._moments.randrange(3, MOST_OPERATIONS)):
                self._moments.choice(self._operations())()
            self._settle()
            self._judge()
        except (AssertionError, LogtwinError) as error:
            told = "\n  ".join(self.done)
            raise AssertionError(f"seed {self.seed}, on_loss {self._on_loss}:\n  {told}\n{error!r}") from error

    def _operations(self) -> list[Callable[[], None]]:
        """What may happen next; often things twice, rare things once."""
        often = [self._append, self._replicate, self._replicate, self._replicate_killed]
        return [
            *often, *often, self._backfill, self._backfill_killed, self._repair, self._repair_killed,
            self._truncate, self._rewrite, self._forget_front,
        ]  # fmt: skip

    def _append(self) -> None:
        count = self._moments.randrange(5, 120)
        self._log.append(self._moments, count)
        self._tell(f"append {count} messages, up to {self._log.end}")

    def _truncate(self) -> None:
        at = self._moments.choice(self._log.boundaries)
        self._log.cut_at(at)
        self._tell(f"truncate at {at}")

    def _rewrite(self) -> None:
        at = self._moments.choice(self._log.boundaries)
        self._log.rewrite_from(at, self._moments)
        self._tell(f"rewrite from {at}")

    def _forget_front(self) -> None:
        if self._log.files > 2:
            self._log.forget_front(1)
            self._tell(f"retention, up to {self._log.start}")

    def _replicate(self) -> None:
        self._try("replicate", lambda: replicate_now(self.spark, self._config()))

    def _replicate_killed(self) -> None:
        self._killed("replicate", 9, lambda die: replicate_now(self.spark, self._config(), on_step=die))

    def _backfill(self) -> None:
        self._try("backfill", lambda: self._run_backfill(_go_on))

    def _backfill_killed(self) -> None:
        self._killed("backfill", 4, self._run_backfill)

    def _repair(self) -> None:
        self._try("repair", lambda: self._run_repair(_go_on))

    def _repair_killed(self) -> None:
        self._killed("repair", 6, self._run_repair)

    def _run_backfill(self, on_step: Callable[[object], None]) -> object:
        subject = OneLog(self._config().logs[0])
        path = str(self._log.archive)
        return run_backfill(self.spark, self._config(), subject, EVERYTHING, path=path, on_step=on_step)

    def _run_repair(self, on_step: Callable[[object], None], *, accept_master: bool = False) -> object:
        master = open_log(self._config().logs[0])
        return Repair(self.spark, str(self._lake), master, on_step=on_step).run(accept_master=accept_master)

    def _settle(self) -> None:
        """What an operator does who wants it all right: repair, replicate past what is lost, bring what is missing."""
        try:
            self._run_repair(_go_on)
        except Recreated:
            self._run_repair(_go_on, accept_master=True)
        self._on_loss = "record"
        replicate_now(self.spark, self._config())
        self._run_backfill(_go_on)
        self._tell("settled")

    def _judge(self) -> None:
        assert_complete(self.spark, self._lake, self._log.everything())
        assert [one.problem for one in coverages(self._config())] == [None]

    def _config(self) -> Config:
        return job_config(
            self._lake,
            path=str(self._log.path),
            on_loss=self._on_loss,
            max_bytes_per_trigger=30_000,
            split_bytes=12_000,
        )

    def _killed(self, name: str, most_steps: int, act: Callable[[Callable[[object], None]], object]) -> None:
        left = self._moments.randrange(1, most_steps)

        def die(_step: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Killed("killed")

        self._try(f"{name}, killed after step {left},", lambda: act(die))

    def _try(self, name: str, act: Callable[[], object]) -> None:
        try:
            act()
        except LogtwinError as error:
            self._tell(f"{name}: {type(error).__name__}: {error}")
        else:
            self._tell(f"{name}: done")

    def _tell(self, what: str) -> None:
        self.done.append(what)


def _go_on(_step: object) -> None:
    """Nobody kills this run."""
