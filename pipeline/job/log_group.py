"""The logs of a job that share a table: one query, one batch and one commit for all of them.

The query reads the logs that are running. The job writes their names and positions to a file for the process that plans
the batches (`sources/group/standing.py`), again after each commit; and the masters to another, to which it adds those
that it finds while the query runs (`sources/group/masters.py`). So a log that fails is left out of the next batch,
and planned from its position when it is back, while the query goes on for the others. Spark's checkpoint decides
nothing. It lives as long as its query, in a folder of this process.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.job.master_watch import SIGHT_EVERY_S
from pipeline.job.replication import Replication
from pipeline.job.stream import CHECK_OWNERSHIP_EVERY_S, Stream
from pipeline.monitoring.progress import Phase
from pipeline.system.folders import process_folder
from sinks.batch.group import Group
from sinks.batch.proof import BatchStep, no_step
from sinks.delta.hooks import wait_for_checkpoints
from sinks.storage.errors import failed_by
from sinks.tables import TableSpec
from sources.errors import LogtwinError, ReplicaError
from sources.group import masters, standing
from sources.group.offsets import GroupOffset, planned
from sources.group.standing import Seen, Standing, path_beside, seen_file_at

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""How long a batch of several logs waits for one of their masters."""

CHECKPOINT_S = 10.0
"""How long the end of a job waits for the last checkpoint."""


class LogGroup:
    """The logs of one table, read by one query. Driver only.

    Call `poll` now and then, then `stop`. The job itself starts, polls and stops the members: logs, or topics, whose
    partitions are logs. All are in `table`.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        table: TableSpec,
        members: Sequence[Replication],
        *,
        available_now: bool,
        on_step: Callable[[BatchStep], None] | None = None,
    ) -> None:
        self._members = {one.id: one for one in members}
        self._available_now = available_now
        patience_s = None if available_now else PATIENCE_S
        self._group = Group(spark, config.warehouse, on_step or no_step, table=table, patience_s=patience_s)
        self._folder = Path(tempfile.mkdtemp(prefix="query-", dir=process_folder()))
        self._standing = self._folder / "standing.json"
        self._masters = self._folder / "masters.json"
        masters.write(self._masters, [one.options for one in members])
        options = {
            "masters": str(self._masters),
            "standing": str(self._standing),
            "triggerIntervalS": str(config.trigger_interval_s),
        }
        self._cores = spark.sparkContext.defaultParallelism
        self._seen = seen_file_at(path_beside(self._standing))
        self._heard: Seen = {}
        self._hear_at_s = 0.0
        self._stream = Stream(spark, table.name, options, self._apply)
        self._has_begun = False
        self._said: Standing | None = None
        self._listed: list[tuple[str, int, int]] | None = None  # the `_listing` of what was told last
        self._saying = threading.Lock()  # the job and each batch write the file
        self._is_stopping = False
        self._look_at_s = 0.0
        self._in_query: dict[str, int] = {}  # with available_now: the turn of each log that the query reads to its end

    def add(self, added: Sequence[Replication]) -> None:
        """Add members while the query runs. Raises LogtwinError, and adds none, if the planner cannot be told."""
        members = {**self._members, **{one.id: one for one in added}}
        try:
            masters.write(self._masters, [one.options for one in members.values()])
        except OSError as error:
            raise self._untold(error, "which masters there are") from error
        self._members = members  # not earlier: the planner has to know a master before its logs are listed

    def begin(self) -> None:
        """Prepare the query while its logs are being started."""
        self._tell()
        self._stream.load()

    def poll(self, now_s: float) -> None:
        """Start the query if there is something to read, handle its end, and tell it which logs to read."""
        if self._stream.has_ended:
            self._ended(self._stream.end())
        if not self._stream.is_started and self._is_wanted():
            self._start()
        elif self._listing() != self._listed:  # what moves a log without a new turn tells it
            self._tell()
        self._hear(now_s)
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + CHECK_OWNERSHIP_EVERY_S
            self._check_owners()

    def stop(self) -> None:
        """End the query between two batches. Idempotent."""
        if not self._is_stopping:
            self._is_stopping = True
            self._tell()
        try:
            self._stream.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            if not wait_for_checkpoints(CHECKPOINT_S):
                log.warning(
                    "a checkpoint of a table takes more than %g s, and is given up: nothing is lost; the next tenth "
                    "commit writes one, or logtwin maintain",
                    CHECKPOINT_S,
                )

    def _read(self) -> list[Replication]:
        return [one for one in self._members.values() if one.is_read]

    def _is_wanted(self) -> bool:
        """Whether a query should run.

        A query starts beside its logs, and reads each as soon as that has started. With available_now it waits until
        each log has started or failed, because it must read all of them to their ends.
        """
        is_beginning = any(one.phase is Phase.STARTING for one in self._members.values())
        if self._available_now:
            return bool(self._read()) and not is_beginning
        return bool(self._read()) or (is_beginning and not self._has_begun)

    def _start(self) -> None:
        turns = self._tell()
        if turns is None:
            return
        self._has_begun = True
        self._in_query = turns
        trigger: Mapping[str, object] = (
            {"availableNow": True} if self._available_now else {"processingTime": "0 seconds"}
        )
        checkpoint = self._folder / f"checkpoint-{time.monotonic_ns()}"
        try:
            self._stream.start(checkpoint, trigger)
        except LogtwinError as error:
            self._note(error)

    def _ended(self, failure: LogtwinError | None) -> None:
        if failure is not None:
            self._note(failure)
            return
        for one in self._read():
            # A log that was away may have come back after the query looked: the next query reads it to its end.
            if not self._available_now or self._in_query.get(one.id) == one.turn:
                one.end()

    def _note(self, error: LogtwinError) -> None:
        """Note for each member the `error` that kept all of them from being read."""
        for one in self._read():
            one.note(error.of(one.id))

    def _tell(self) -> dict[str, int] | None:
        """Write which logs to read, and from where, unless the file already says so. From any thread.

        Returns the turn of each member that is to be read; None if the file cannot be written, which is noted for each.
        Until it can, the planner goes on with what it was told last: batches of what is committed already, which commit
        nothing.
        """
        with self._saying:
            self._listed = self._listing()  # first: what leaves meanwhile is told at the next poll
            read = self._read()
            places = {log_id: place for one in read for log_id, place in one.places.items()}
            most = max(one.options.max_bytes_per_trigger for one in self._members.values())
            said = Standing(places, most, self._is_stopping)
            try:
                if said != self._said:
                    standing.write(self._standing, said)
                    self._said = said
            except OSError as error:
                self._listed = None
                self._note(self._untold(error, "which logs to read"))
                return None
            return {one.id: one.turn for one in read}

    def _listing(self) -> list[tuple[str, int, int]]:
        """Which members are read, in which turn, and how many logs each has."""
        return [(one.id, one.turn, len(one.replicas)) for one in self._read()]

    def _untold(self, error: OSError, what: str) -> LogtwinError:
        return failed_by(error)(
            f"the planner cannot be told {what}",
            expected=f"a file that can be written in {self._folder}",
            found=error,
            hint="A full disk is waited for. Nothing is lost: what was not committed is read again.",
        )

    def _hear(self, now_s: float) -> None:
        """Let the members hear what the planner has seen: when it tells something new, and every second."""
        try:
            found = self._seen.read()
        except OSError:
            return  # the planner finds out, too, and says so
        if found is self._heard and now_s < self._hear_at_s:
            return
        self._heard, self._hear_at_s = found, now_s + SIGHT_EVERY_S
        for one in self._read():
            one.hear(found, now_s)

    def _apply(self, batch: GroupOffset) -> None:
        read = self._read()
        with _all_held(read) as members:
            # a log that has left the group since the batch was planned is planned again when it is back
            replicas = {log_id: replica for one in members for log_id, replica in one.replicas.items()}
            logs = {log_id: replica.master for log_id, replica in replicas.items()}
            outcomes = self._group.apply(planned(batch, logs, self._cores), replicas)
            for one in members:
                one.came_to({log_id: outcomes[log_id] for log_id in one.replicas if log_id in outcomes})
        for one in read:  # also one in use: what it was to read is planned again, but an error is told only once
            for log_id in batch.errors.keys() & one.replicas.keys():
                one.note(batch.errors[log_id])
        self._tell()

    def _check_owners(self) -> None:
        """Check whether another job took over a log: this one must stop acting as its replica even without batches."""
        if not self._stream.in_batch.acquire(blocking=False):
            return  # the current batch finds out by itself
        try:
            with _all_held(self._read()) as members:
                replicas = [replica for one in members for replica in one.replicas.values()]
                lost = self._group.lost(replicas) if replicas else {}
                for one in members:
                    for error in (lost[log_id] for log_id in one.replicas if log_id in lost):
                        one.note(error)
        except ReplicaError as error:
            log.warning("cannot tell whether this job still owns its logs: %s", error)
        finally:
            self._stream.in_batch.release()


@contextmanager
def _all_held(members: Iterable[Replication]) -> Iterator[list[Replication]]:
    """The `members` that no other thread is using now, held while the context lasts."""
    held = [one for one in members if one.in_use.acquire(blocking=False)]
    try:
        yield [one for one in held if one.is_read]
    finally:
        for one in held:
            one.in_use.release()
