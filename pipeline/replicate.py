"""Replicate every log and topic of a configuration side by side. What happens to one the others do not notice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypedDict

from pyspark.sql import SparkSession

from pipeline.config import Config
from pipeline.log_replication import LogReplication
from pipeline.progress import ENDED, Phase, Progress
from pipeline.replication import Replication
from sinks.steps import Step
from sources.errors import ConfigurationError, LogtwinError, NotAlone

log = logging.getLogger(__name__)

OnPoll = Callable[[list[Progress]], bool]
"""Is shown how every log stands, and says whether to go on."""


class _Ways(TypedDict):
    """How each of them is to run."""

    available_now: bool
    take_over: bool
    on_step: Callable[[Step], None] | None


class Job:
    """Every log and topic of a configuration, replicated side by side.

    With `take_over` also those that another job replicates just now: that one loses them.
    Raises ConfigurationError, MasterError where a pattern of topics has to be asked for.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        *,
        available_now: bool,
        take_over: bool = False,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        self.available_now = available_now
        ways: _Ways = {"available_now": available_now, "take_over": take_over, "on_step": on_step}
        self.logs: list[Replication] = [LogReplication(spark, config, options, **ways) for options in config.logs]
        if config.topics:
            # Here, so that a job without topics need not import what speaks to Kafka.
            from pipeline.topic_replication import TopicReplication

            self.logs += [TopicReplication(spark, config, topic, **ways) for topic in config.asked_topics()]
        if not self.logs:
            raise ConfigurationError(
                "there is nothing to replicate", expected="a topic that matches a pattern of [[topics]]", found="none"
            )
        self._stop = threading.Event()

    def start(self, on_poll: OnPoll | None = None) -> None:
        """Start every log, one after the other, until `request_stop` or `on_poll` says False, as in `run`.

        Those that run already are looked after meanwhile: a hundred take minutes. One that cannot start does not keep
        the others; raises its LogtwinError if none can.
        """
        has_started = False
        for one in self.logs:
            if self._stop.is_set():
                break
            try:
                one.start()
                has_started = True
            except LogtwinError as error:
                # A job of one log has nothing to wait for: whoever started it should know at once. But what is in its
                # way for a while, by its own replica's doing, it waits for.
                is_alone = len(self.logs) == 1 and not isinstance(error, NotAlone)
                one.fail(error, for_good=self.available_now or is_alone)
                self._announce(one)
            if not self._look(on_poll):
                break
        if not has_started and all(one.phase is Phase.FAILED for one in self.logs):
            self.close()
            self._raise_first()

    def run(self, on_poll: OnPoll | None = None, *, poll_interval_s: float = 0.25) -> None:
        """Until every log has ended, `on_poll` says False, or `request_stop`. Raises the first log's error, if any."""
        try:
            while not self._stop.is_set() and self._look(on_poll):
                self._stop.wait(poll_interval_s)
        finally:
            self.close()
        self._raise_first()

    def _look(self, on_poll: OnPoll | None) -> bool:
        """Look at every log and show them; whether there is a reason to go on."""
        all_ended = self._poll()
        is_wanted = on_poll is None or on_poll(self.progress())
        return is_wanted and not all_ended

    def _poll(self) -> bool:
        """Look at every log; whether all of them have ended. Says at once what ended one while others go on."""
        running = [one for one in self.logs if one.phase not in ENDED]
        phases = [one.poll(time.monotonic()) for one in running]
        for one, phase in zip(running, phases, strict=True):
            if phase is Phase.FAILED:
                self._announce(one)
        return all(phase in ENDED for phase in phases)

    def _announce(self, failed: Replication) -> None:
        if len(self.logs) > 1:
            log.error("%s", failed.error)

    def _raise_first(self) -> None:
        for one in self.logs:
            if one.error is not None:
                raise one.error

    def request_stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self._stop.set()

    def progress(self) -> list[Progress]:
        return [one.progress() for one in self.logs]

    def close(self) -> None:
        """End every query and session. Idempotent."""
        for one in self.logs:
            one.stop()
