"""A record of the log as a line: text for people, or a JSON object for programs.

Who logs an error as an argument gives the object its facts: log id, offset, condition. `extra={FACTS: {…}}` gives it
others.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from sources.errors import LogtwinError
from sources.loss import condition_of
from sources.offsets import LogId
from sources.readable import visible

FACTS: Final = "facts"


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """``2026-11-28T02:12:03.123Z WARNING  message``; a traceback after it has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(f"{_moment(record)} {record.levelname:<8} {record.getMessage()}")


class JsonLines(logging.Formatter):
    """``{"time": …, "level": …, "message": …, "log": …, "offset": …, "condition": …}`` with the keys that are known."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": _moment(record), "level": record.levelname, "message": record.getMessage()}
        told |= facts_of(record)
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps({key: value for key, value in told.items() if value is not None}, default=str)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record is about: the facts of the first error among its arguments, or else the first log id."""
    given = record.args if isinstance(record.args, tuple) else ()
    facts: dict[str, Any] = {}
    error = next((one for one in given if isinstance(one, LogtwinError)), None)
    if error is not None:
        condition = condition_of(error)
        facts = {**error.facts(), "condition": None if condition is None else condition.value}
    else:
        facts["log"] = next((str(one) for one in given if isinstance(one, LogId)), None)
    return facts | getattr(record, FACTS, {})
