"""Asks now and then what a configuration's patterns stand for: logs and topics come and go while a job runs.

What comes is added to the job and begins at its oldest record, or what came before it was found would be lost. What no
server lists any more waits, and is reported. Nothing is ever taken away, so an id is never given to another log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Final

from pipeline.config.configuration import Config
from pipeline.config.found import Options, Rosters, from_oldest
from sources.discovery import Roster
from sources.errors import LogtwinError, of_log
from sources.offsets import LogId
from sources.registry import FollowedOptions

log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class News:
    """The changes for a job: logs that have `come`, which it begins to follow, and `unlisted` ones, which it reports.

    What is contested is not in it: it does not come, and if the job follows it already, it goes on with its own log.
    """

    come: Mapping[LogId, FollowedOptions]
    unlisted: Set[LogId]

    @classmethod
    def of(cls, rosters: Rosters, followed: Collection[LogId], unlisted: Set[LogId]) -> News:
        """Return what `rosters` say to a job that has `followed` these, of which these were `unlisted` before."""
        each = [_news(rosters.logs, followed, unlisted), _news(rosters.topics, followed, unlisted)]
        return cls(
            {log_id: options for one in each for log_id, options in one.come.items()},
            frozenset().union(*(one.unlisted for one in each)),
        )


def _news(roster: Roster[Options], followed: Collection[LogId], unlisted: Set[LogId]) -> News:
    come = {log_id: from_oldest(options) for log_id, options in roster.options.items() if log_id not in followed}
    # While some servers do not answer, nobody knows whether they list what the others do not.
    left = roster.unlisted & unlisted if roster.unasked else roster.unlisted
    return News(come, left)


class RollCall:
    """Asks the servers of all patterns of `config`, in a thread of its own. Driver only."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._followed: Collection[LogId] = ()
        self._answer: Rosters | None = None
        self._said: Set[str] = frozenset()
        self._saying: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="finds logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop asking, without waiting for servers that do not answer. Idempotent."""
        self._stopping.set()

    def follow(self, followed: Collection[LogId]) -> None:
        """Set the logs that the job follows."""
        self._followed = followed

    def answer(self) -> Rosters | None:
        """Return the answer that came since the last call; None if there was none."""
        answer, self._answer = self._answer, None
        return answer

    def _run(self) -> None:
        self.ask()
        while not self._stopping.wait(ASK_EVERY_S):
            self.ask()

    def ask(self) -> None:
        """Ask now. An error is logged once, and again only after it was gone."""
        self._said, self._saying = self._saying, set()
        try:
            rosters = Rosters.of(self._config, self._followed, self._warn)
        except Exception as failure:  # noqa: BLE001 - if this thread ended, nothing would be found, and nobody know why
            self._tell(of_log(failure, "the patterns of the configuration"))
            return
        for one in (rosters.logs, rosters.topics):
            for text, error in one.unasked.items():
                self._warn("cannot list %s; the job goes on with what it has of it: %s", text, error)
            for contested in one.contested.values():
                self._tell(contested)
        self._answer = rosters.in_shard(self._config.shard)

    def _warn(self, text: str, /, *values: object) -> None:
        self._say(logging.WARNING, text % values if values else text)

    def _tell(self, error: LogtwinError) -> None:
        self._say(logging.ERROR, str(error))

    def _say(self, level: int, text: str) -> None:
        if text not in self._said and text not in self._saying:
            log.log(level, "%s", text)
        self._saying.add(text)
