"""Commits the replica's position to a consumer group, over a connection that stays open as long as the job runs.

A thread owns the connection. The job leaves its positions with `acknowledge` and goes on. The thread commits them to
the group at once, and reconnects for ever if that fails and a retry can help. What holds at every moment:

    committed to the group <= acknowledged by the job <= committed in the replica

unless the job itself went back, because the newest acknowledgement counts. Before the first commit of each connection
the session checks that nobody else consumes with the group, and the coordinator refuses a later commit as soon as
somebody does. That ends the session, with who it was as its `failure`: two would overwrite each other's offsets.

Positions are repeated now and then, for three reasons: Kafka forgets, even for an idle partition, what a group without
members has not committed for 7 days (offsets.retention.minutes); somebody may have reset them; and a new member of the
group is noticed while nothing is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from sources.errors import LogtwinError, of_log
from sources.kafka.cluster.connection import Cluster, connected, may_pass
from sources.kafka.cluster.group import ConsumerGroup
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.cluster.topics import TopicPartition
from sources.master import Committed, MasterLog, SessionState
from sources.offsets import LogId, Offset, topic_and_number

Positions = Mapping[LogId, Committed]

_FIRST_WAIT_S: Final = 0.1
_LAST_ATTEMPT_S: Final = 5.0

_logger = logging.getLogger(__name__)


class GroupSession:
    """A `sources.master.Session` with the consumer group `group`. Connects at the first acknowledgement.

    `acknowledged` is what the group's coordinator has confirmed. `log_id` is the topic's.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        topic: str,
        log_id: LogId,
        *,
        repeat_after_s: float = 60.0,
        longest_wait_s: float = 5.0,
    ) -> None:
        self._settings = replace(settings, connect_attempts=1)  # the thread itself tries again
        self._group = ConsumerGroup(group, patience_ms=0)
        self._topic = topic
        self._log_id = log_id
        self._repeat_after_s = repeat_after_s
        self._longest_wait_s = longest_wait_s
        self._changed = threading.Condition()  # guards the facts below; held for assignments only
        self._wanted: Positions = {}
        self._told: Positions = {}
        self._connected_since: datetime | None = None
        self._connections = 0
        self._last_error: str | None = None
        self._failure: LogtwinError | None = None
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._is_over = False

    @property
    def acknowledged(self) -> Mapping[LogId, Offset]:
        return {log_id: position.offset for log_id, position in self._told.items()}

    @property
    def state(self) -> SessionState:
        with self._changed:
            told = Offset(sum(position.offset for position in self._told.values())) if self._told else None
            return SessionState(told, self._connected_since, max(self._connections - 1, 0), self._last_error)

    @property
    def failure(self) -> LogtwinError | None:
        return self._failure

    def reading(self) -> AbstractContextManager[None]:
        """Do nothing: a group is one, however many connections it has."""
        return nullcontext()

    def reader_of(self, log: MasterLog) -> MasterLog:
        return log

    def acknowledge(self, positions: Positions) -> None:
        """Implement the contract. Raises ValueError after `close`."""
        with self._changed:
            if self._is_closing:
                raise ValueError(f"{self._log_id}: acknowledging {positions} to a closed session")
            self._wanted = {**self._wanted, **positions}
            self._changed.notify()
            if self._thread is None and self._wanted:
                self._thread = threading.Thread(target=self._run, name=f"acknowledge {self._log_id}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Commit the last acknowledgement if that succeeds at the first attempt, within 5 s, and end the thread.

        A thread that hangs longer commits nothing any more, and ends with the process.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_LAST_ATTEMPT_S)
        with self._changed:
            self._is_over = True
            self._connected_since = None

    # The methods below run in the thread.

    def _run(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._is_done():
            is_last_attempt = self._is_closing
            try:
                with connected(self._settings) as cluster:
                    self._serve(cluster)
            except Exception as failure:  # noqa: BLE001 - if this thread ended, the group would lag, and nobody know why
                wait_s = _FIRST_WAIT_S if self._connected_since else wait_s
                self._note(failure)
                if is_last_attempt or self._failure:
                    return
                self._pause(wait_s)
                wait_s = min(2 * wait_s, self._longest_wait_s)

    def _is_done(self) -> bool:
        with self._changed:
            return self._is_over or (self._is_closing and self._told == self._wanted)

    def _serve(self, cluster: Cluster) -> None:
        """Serve until the session is closed and everything is told. Raises what ends the connection, or the session."""
        self._group.check(cluster)
        told: Positions = {}
        while True:
            is_closing, wanted = self._await_news(told)
            news = {log_id: position for log_id, position in wanted.items() if told.get(log_id) != position}
            if news or not is_closing:
                self._commit(cluster, news or wanted)
            told = wanted
            if is_closing:
                return

    def _await_news(self, told: Positions) -> tuple[bool, Positions]:
        """Return whether it is closed, and the positions to tell; after `repeat_after_s` they may equal `told`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing or self._wanted != told, self._repeat_after_s)
            return self._is_closing, self._wanted

    def _commit(self, cluster: Cluster, positions: Positions) -> None:
        if self._is_over:
            return
        self._group.commit(cluster, {self._partition(log_id): at for log_id, at in positions.items()})
        with self._changed:
            self._told = {**self._told, **positions}
            if self._connected_since is None and not self._is_over:
                self._connected_since = datetime.now(UTC)
                self._connections += 1
                self._last_error = None

    def _partition(self, log_id: LogId) -> TopicPartition:
        return TopicPartition(self._topic, topic_and_number(log_id)[1])

    def _pause(self, wait_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, wait_s)

    def _note(self, failure: Exception) -> None:
        error = failure if isinstance(failure, (LogtwinError, OSError)) else of_log(failure, self._log_id)
        with self._changed:
            is_news = self._connected_since is not None or self._last_error != str(error)
            self._connected_since = None
            self._last_error = str(error)
            if isinstance(failure, LogtwinError) and not may_pass(failure):
                self._failure = failure.at(self._log_id)
        level = logging.WARNING if is_news else logging.DEBUG
        _logger.log(level, "%s: committing to group %s failed: %s", self._log_id, self._group.name, error)
