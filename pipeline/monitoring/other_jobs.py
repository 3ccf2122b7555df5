"""What other jobs have of the logs of one master: a job without shard is refused by them, one of a shard waits.

Shards of one configuration share its logs (sources/shards.py). While their number is changed, jobs of both numbers run,
and each meets logs that another one has. All of this is by the files of runs (`pipeline/monitoring/run_file.py`), so it
is politeness: which run owns a log, the table decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pipeline.monitoring.progress import Progress
from pipeline.monitoring.publisher import Publisher
from pipeline.monitoring.run_state import RunState
from sources.errors import AlreadyRunning, HeldElsewhere
from sources.offsets import LogId

_MOST_NAMED = 10


class OtherJobs:
    """The other jobs, as a job sees them that publishes what it has of `master` through `publisher`."""

    def __init__(self, publisher: Publisher, master: LogId, *, is_shard: bool) -> None:
        self._publisher = publisher
        self._master = master
        self._is_shard = is_shard
        self._is_shared = is_shard and master.has_partitions  # of which others may have some
        self._are_ignored = False

    def enter(self, progress: Callable[[], Progress], *, take_over: bool) -> Sequence[RunState]:
        """`Publisher.enter`. With `take_over` nobody is waited for until the start ends, which `tell` says.

        Raises AlreadyRunning; HeldElsewhere for a shard.
        """
        self._are_ignored = take_over
        try:
            return self._publisher.enter(str(self._master), progress, take_over=take_over, is_shared=self._is_shared)
        except AlreadyRunning as error:
            if not self._is_shard:
                raise
            self.tell({self._master: str(error.found)})
            raise self.waited_for(str(error.found)) from error

    def leave(self) -> None:
        """Say no more that this job has the master's log."""
        self._publisher.leave(str(self._master))

    def holding(self, wanted: Iterable[LogId]) -> Mapping[LogId, str]:
        """Which of some partitions others have, and who."""
        if not self._is_shared or self._are_ignored:
            return {}
        return self._publisher.held_by_others(str(self._master), wanted)

    def tell(self, held: Mapping[LogId, str]) -> None:
        """Publish which logs this job waits for, and who has them."""
        self._are_ignored = False
        if self._is_shard:
            self._publisher.waits_for(str(self._master), held)

    def waited_for(self, found: str | Mapping[LogId, str]) -> HeldElsewhere:
        """The error of a run that ends before another one has ended."""
        if not isinstance(found, str):
            each = [f"{log_id} by {who}" for log_id, who in sorted(found.items())]
            found = "; ".join(each[:_MOST_NAMED]) + (f"; {len(each)} in all" if each[_MOST_NAMED:] else "")
        return HeldElsewhere(
            "another job has it, or some of its partitions",
            log=self._master,
            expected="none",
            found=found,
            hint="It can be taken when that one has ended.",
        )
