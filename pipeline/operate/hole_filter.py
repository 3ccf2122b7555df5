"""Selects the holes that an operator wants filled, by offset or by the master's time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sources.errors import ConfigurationError
from sources.offsets import END, Offset, OffsetRange

Bound = int | datetime | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted holes: offsets from `start` on and below `end`.

    If a bound is a time, it selects whole holes that may lack messages which were stored on its side. None is no bound.
    """

    start: Bound = None
    end: Bound = None

    @classmethod
    def parse(cls, start: str | None, end: str | None) -> Wanted:
        """Parse two bounds, each an offset or a time in ISO 8601, UTC if it has no zone. Raises ConfigurationError."""
        wanted = cls(_bound("--from", start), _bound("--to", end))
        if wanted.is_backwards:
            raise ConfigurationError("--to lies before --from", expected=f"{start} or more", found=end)
        return wanted

    @property
    def is_backwards(self) -> bool:
        bounds = (self.start, self.end)
        match bounds:
            case (int() as start, int() as end):
                return end < start
            case (datetime() as start, datetime() as end):
                return end < start
        return False

    @property
    def needs_times(self) -> bool:
        return isinstance(self.start, datetime) or isinstance(self.end, datetime)

    @property
    def offsets(self) -> OffsetRange:
        """The range that the bounds allow that are offsets."""
        start = self.start if isinstance(self.start, int) else 0
        end = self.end if isinstance(self.end, int) else END
        return OffsetRange(Offset(start), Offset(end))

    def may_lie_between(self, after_us: int | None, before_us: int | None) -> bool:
        """Whether the bounds that are times allow a hole between messages stored at these times.

        Both are µs since 1970; None if there is no such message.
        """
        is_early = isinstance(self.start, datetime) and before_us is not None and before_us < _micros(self.start)
        is_late = isinstance(self.end, datetime) and after_us is not None and after_us >= _micros(self.end)
        return not is_early and not is_late


def _bound(option: str, text: str | None) -> Bound:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{option} is not usable", expected="an offset, or a time like 2026-01-31T12:00:00Z", found=text
        ) from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
