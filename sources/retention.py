"""How a master deletes: what it may still delete, and how long that takes, before a replica that lags loses data. Pure.

Masters delete from the front, whole files at a time (RocketMQ: segment files; a file of one offset if a master
deletes record by record). So the data at a position is lost when the file that holds it goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class UntilLoss:
    """What stands between a replica and a loss.

    `bytes`: what the master may still delete from its front before it reaches the first byte that is not replicated.
    `seconds`: an estimate of the earliest time until then; 0 if it may happen now, None if nothing tells.
    """

    bytes: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterRetention:
    """How one master deletes, as it said at one moment.

    `keeps_s`: a file whose newest record is older than this is deleted; None if age does not matter. `room_bytes`: what
    the master may still write before lack of space makes it delete, whatever the age; None if unknown.
    """

    file_size_bytes: int
    keeps_s: float | None
    room_bytes: int | None

    def until_loss(
        self,
        bounds: OffsetRange,
        position: Offset,
        *,
        age_s: float | None,
        growth_bytes_per_s: float | None,
    ) -> UntilLoss | None:
        """Return what a replica at `position` has left before a master that holds `bounds` deletes it; None if no risk.

        `age_s`: how long ago the record at `position` was stored, at most. `growth_bytes_per_s`: how fast the master's
        log grows. What already lies below the master's minimum is lost: 0 bytes, 0 s. Where age matters and is unknown,
        as before the first commit, only a lack of space that comes before any record is too old tells.
        """
        if position >= bounds.end:
            return None
        if position < bounds.start:
            return UntilLoss(0, 0.0)
        file_start = position - position % self.file_size_bytes
        bytes_left = max(file_start - bounds.start, 0)
        by_age_s = None if self.keeps_s is None else self.keeps_s - (age_s or 0.0)
        by_space_s = self._by_space_s(bytes_left, growth_bytes_per_s)
        if age_s is None and by_age_s is not None and (by_space_s is None or by_space_s > by_age_s):
            return UntilLoss(bytes_left, None)
        ends_s = [at for at in (by_age_s, by_space_s) if at is not None]
        return UntilLoss(bytes_left, max(min(ends_s), 0.0) if ends_s else None)

    def _by_space_s(self, bytes_left: int, growth_bytes_per_s: float | None) -> float | None:
        if self.room_bytes is None or not growth_bytes_per_s:
            return None
        return (self.room_bytes + bytes_left) / growth_bytes_per_s
