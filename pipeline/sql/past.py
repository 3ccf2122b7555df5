"""Which past of one log is asked for: by its offset, or by a time of its master."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from pipeline.config.configuration import Config
from sinks.tables import log_table
from sinks.views.past import AsOf
from sources.errors import ConfigurationError
from sources.offsets import LogId, Offset


@dataclass(frozen=True, slots=True)
class Past:
    """The log `log_id` as it was `at` an offset, or at a time."""

    log_id: LogId
    at: Offset | datetime

    @classmethod
    def asked(cls, config: Config, log: str | None, offset: int | None, time: str | None) -> Self | None:
        """From the options; None where it is the present. Raises ConfigurationError."""
        if offset is None and time is None:
            if log is not None:
                raise _unclear("--log without --as-of-offset or --as-of-time", "WHERE log_id = … asks for one log.")
            return None
        if offset is not None and time is not None:
            raise _unclear("--as-of-offset and --as-of-time", "Give one of them.")
        at = Offset(offset) if offset is not None else _instant(str(time))
        return cls(_log_id(config, log), at)


def past_line(found: AsOf) -> str:
    table = log_table(found.log_id).name
    text = f"{found.log_id} as of offset {found.offset}: version {found.version} of table {table}"
    if found.is_first:
        return text
    return f"{text}; the first one that had it is gone, later ones may lack what was removed since"


def _log_id(config: Config, log: str | None) -> LogId:
    ids = [name for entry in config.log_entries for name in entry.names]
    if log is None and (len(ids) != 1 or config.clusters):
        raise _unclear(", ".join(ids) or "no log", "Name one with --log: offsets and times of masters are a log's own.")
    try:
        return LogId.parse(log or ids[0])
    except ValueError as error:
        raise _unclear(str(error), "See --log.") from error


def _instant(time: str) -> datetime:
    try:
        at = datetime.fromisoformat(time)
    except ValueError as error:
        raise _unclear(f"{time!r}", "A time is ISO 8601, for example 2026-11-22T01:30:00Z.") from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _unclear(found: str, hint: str) -> ConfigurationError:
    return ConfigurationError("which past is asked for is not clear", found=found, hint=hint)
