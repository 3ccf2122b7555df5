"""The task of ``logtwin verify``: reads sections from both sides and compares them. No Spark.

Unreadable data is a verdict on the claims that it concerns: such a section is compared again in halves, down to those
claims. Only a master or a table's storage that is away ends the task, and with it the run, which a rerun continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from pipeline.verify.plan import At, ClaimSection
from sinks.proof.comparison import compare
from sinks.proof.master_bytes import master_bytes
from sinks.proof.stored import read
from sinks.proof.verdicts import Compared, Verdict
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    LogError,
    LogtwinError,
    OffsetOutOfRange,
    ReplicaError,
    StorageUnreachable,
)
from sources.master import MasterLog
from sources.offsets import Offset


class Throttle:
    """Keeps the average rate since the first byte below a limit, at every moment. None is no limit."""

    def __init__(
        self,
        bytes_per_s: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._began_s: float | None = None
        self._spent_bytes = 0

    def spend(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may be spent."""
        if self._bytes_per_s is None:
            return
        if self._began_s is None:
            self._began_s = self._clock()
        self._spent_bytes += size_bytes
        early_s = self._began_s + self._spent_bytes / self._bytes_per_s - self._clock()
        if early_s > 0:
            self._sleep(early_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionComparer:
    """The picklable task function. `folder` is the log table's; `bytes_per_s` limits one task."""

    master: MasterLog
    folder: str
    position: Offset
    bytes_per_s: float | None

    def __call__(self, sections: Iterable[ClaimSection]) -> Iterator[tuple[ClaimSection, list[Compared]]]:
        """Compare each section. Yields it with the results for its claims."""
        throttle = Throttle(self.bytes_per_s)
        for section in sections:
            try:
                yield section, self.compared(section, throttle)
            except LogtwinError as error:
                raise RuntimeError(error.at(self.master.log_id).token()) from error

    def compared(self, section: ClaimSection, throttle: Throttle) -> list[Compared]:
        """Compare one section. Raises MasterError or StorageUnreachable if master or storage is away."""
        try:
            return self._compare(section, throttle)
        except StorageUnreachable:  # says nothing of the bytes
            raise
        except (ReplicaError, LogError, OffsetOutOfRange) as error:
            failed = error.at(self.master.log_id)
        if len(section.claims) > 1:
            return [one for half in section.halves() for one in self.compared(half, throttle)]
        return [self._judged(section, failed, throttle)]

    def _compare(self, section: ClaimSection, throttle: Throttle) -> list[Compared]:
        columns = tuple(dict.fromkeys(("offset", *self.master.traits.restored_from, *self.master.traits.measured_by)))
        rows = self._paced(read(self.folder, section.parts, self.master.log_id, section.range, columns), throttle)
        with master_bytes(self.master, section.range, self.position) as held:
            found = list(compare(section.claims, rows, held if section.at is At.MASTER else None, self.master))
        return [_unless_worse(one, Verdict.MASTER_LACKS) for one in found] if section.at is At.BEYOND else found

    def _judged(self, section: ClaimSection, error: LogtwinError, throttle: Throttle) -> Compared:
        """The result for a single claim that could not be read from the replica or the master."""
        if isinstance(error, ReplicaError):
            return Compared(claim=section.claims[0], verdict=Verdict.UNREADABLE, error=str(error))
        (alone,) = self.compared(replace(section, at=At.GONE), throttle)
        if isinstance(error, BelowMinimum):  # the master's retention deleted it meanwhile
            return alone
        verdict = Verdict.MASTER_LACKS if isinstance(error, AboveMaximum) else Verdict.MASTER_UNREADABLE
        return _unless_worse(alone, verdict, str(error))

    def _paced(self, batches: Iterable[pa.RecordBatch], throttle: Throttle) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            throttle.spend(int(self.master.lengths(batch).sum()))
            yield batch


def _unless_worse(found: Compared, verdict: Verdict, error: str | None = None) -> Compared:
    """`found` with `verdict` if it equals the ledger; otherwise unchanged, because its own verdict is worse."""
    return replace(found, verdict=verdict, error=error) if found.verdict is Verdict.EQUAL else found
