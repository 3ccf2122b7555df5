"""Fetches a log's metadata at fixed intervals, beside the replication of its data.

There is one daemon thread for each log. Data never waits for it: fetching has its own connections, and writing is no
Spark job. The schedule is fixed: a slow fetch does not shift the next one, it only makes the ticks in between drop out.
The first fetch comes a while after the start, because the log comes first, and not of all logs at once. When a job
ends well, metadata is fetched once more, so that the tables show the master as it was when the replica reached its
position, even after a run shorter than the interval.

Each tick also logs how far master and replica are apart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, partial

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.monitoring.progress import ENDED, Progress
from sinks.history.metadata import MetadataTable
from sources.access.spread import Spread
from sources.errors import LogtwinError, of_log
from sources.master import Master
from sources.metadata import FetchedMetadata
from sources.offsets import LogId

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0

_FIRST = Spread(0.05)  # a thousand that are fetched at the same moment would hold up the first commits of all


class MetadataSync:
    """The thread that fetches one log's metadata. Driver only.

    Call `start`, then `stop` or `finish`. It also ends by itself once its log has ended, for whatever reason.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        log_id: LogId,
        fetch: Callable[[], Iterable[FetchedMetadata]],
        progress: Callable[[], Progress],
    ) -> None:
        """`fetch` asks the master for every kind of metadata, one after the other, as its results are consumed."""
        self._log_id = log_id
        self._first_after_s = config.metadata.first_after_s
        self._every_s = config.metadata.every_s
        self._fetch = fetch
        self._progress = progress
        self._table = cache(partial(MetadataTable, spark, config.warehouse, log_id))  # of a kind: a start makes none
        self._failing: tuple[str, ...] = ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"metadata of {log_id}", daemon=True)
        self._last = threading.Thread(target=self._tick, name=f"last metadata of {log_id}", daemon=True)
        self._is_open = False  # True during the last fetch, though the log has ended

    @classmethod
    def started(
        cls, spark: SparkSession, config: Config, master: Master, progress: Callable[[], Progress]
    ) -> MetadataSync:
        """Start and return the sync of `master`; it stops by itself when the log ends.

        If metadata is disabled, or it is of a topic that another shard fetches it of, it only logs, at the same
        interval, how far master and replica are apart.
        """
        is_ours = config.metadata.enabled and config.serves(str(master.id))
        sync = cls(spark, config, master.id, master.metadata if is_ours else tuple, progress)
        sync.start()
        return sync

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no more fetches, and commit nothing after a commit that is under way. Bounded, idempotent.

        The thread may outlive this call if a master does not answer; a late answer is dropped.
        """
        self._stop.set()
        for thread in (self._thread, self._last):
            if thread.ident is not None:
                thread.join(STOP_TIMEOUT_S)

    def finish(self, deadline_s: float) -> None:
        """Stop, and fetch once more until `deadline_s` of `time.monotonic`. Call it once, after `start`.

        It is for a log that has ended well: a failure is only a warning, and a late answer is dropped.
        """
        self.stop()
        if self._thread.is_alive():  # its fetch is still running, and two must not run at once
            return
        self._is_open = True
        self._last.start()
        self._last.join(max(0.0, deadline_s - time.monotonic()))
        self._is_open = False

    def _run(self) -> None:
        due = _FIRST.moment_s(time.monotonic()) + self._first_after_s
        while not self._stop.wait(max(0.0, due - time.monotonic())) and not self._is_over():
            self._tick()
            due = next_due(due, time.monotonic(), self._every_s)

    def _is_over(self) -> bool:
        return not self._is_open and (self._stop.is_set() or self._progress().phase in ENDED)

    def _tick(self) -> None:
        self._report()
        failed: dict[str, str] = {}
        try:
            found = [(fetched, datetime.now(UTC)) for fetched in self._fetch()]
            for fetched, at in found:
                if self._is_over():
                    return
                error = self._take(fetched, at)
                if error is not None:
                    failed[fetched.kind.name] = str(error.at(self._log_id))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the next fetch may work
            failed["metadata"] = str(of_log(failure, self._log_id))
        self._tell(failed)

    def _report(self) -> None:
        progress = self._progress()
        log.debug(  # the line a minute of the job has the same
            "%s: the master is at %s, the replica at %s, %s %s behind; acknowledged %s",
            self._log_id, *map(_known, (progress.master_maximum, progress.position, progress.lag)),
            self._log_id.unit, _known(progress.acknowledged),
        )  # fmt: skip

    def _take(self, fetched: FetchedMetadata, at: datetime) -> LogtwinError | None:
        """Record what was fetched. Returns the error of the fetch or of the commit, if any."""
        if fetched.items is None or isinstance(fetched.items, LogtwinError):
            return fetched.items
        try:
            self._table(fetched.kind).record(fetched.items, at, fetched.version)
        except LogtwinError as error:
            return error
        return None

    def _tell(self, failed: Mapping[str, str]) -> None:
        """Log what has begun to fail and what works again: once each, not at every tick."""
        fresh = {name: error for name, error in failed.items() if name not in self._failing}
        for error in dict.fromkeys(fresh.values()):
            names = ", ".join(name for name in fresh if fresh[name] == error)
            log.warning("%s (until it works again the warehouse keeps what it has of: %s)", error, names)
        healed = [name for name in self._failing if name not in failed]
        if healed:
            log.warning("%s: the %s are fetched again", self._log_id, ", ".join(healed))
        self._failing = tuple(failed)


def next_due(due: float, now: float, every_s: float) -> float:
    """The next tick after `now`, for a tick that was due at `due`. Missed ticks drop out."""
    return due + every_s * max(1, int((now - due) // every_s) + 1)


def _known(offset: int | None) -> int | str:
    return "nothing yet" if offset is None else offset
