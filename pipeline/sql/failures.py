"""What went wrong with a statement, in words that help: PySpark's exceptions as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipeline.spark.session import spark_log
from pipeline.sql.statements import Statement
from sinks.delta.spark_jobs import first_cause
from sources.errors import LogtwinError, QueryError, ReplicaError

_NO_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"
_NO_COLUMN: Final = "UNRESOLVED_COLUMN"
_SYNTAX: Final = "PARSE_SYNTAX_ERROR"
_UNREADABLE: Final = ("FAILED_READ_FILE", "DELTA_FILE_NOT_FOUND", "DELTA_TRUNCATED_TRANSACTION_LOG")
_TABLES: Final = "logtwin tables all says what there is."
_LINE: Final = re.compile(r"\(?line (\d+),? pos")
_NOISE: Final = re.compile(r"^\[[A-Z0-9_.]+\] | ?SQLSTATE: \w+.*", re.S)
_VARIANT: Final = (
    "A VARIANT, such as the column json, can be neither compared nor sorted nor grouped: "
    "try_variant_get(json, '$.field', 'string') is a value of it, to_json(json) its text."
)
_SNIPPET: Final = 80
"""Characters of the statement in an error."""


def failure(
    error: PySparkException | Py4JJavaError, statement: Statement, tables: Callable[[], Iterable[str]]
) -> LogtwinError:
    """Explain the `error` of `statement`; `tables` are those that are known."""
    if isinstance(error, Py4JJavaError):
        return _of_a_task(error, statement)
    condition, facts = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith(_UNREADABLE):
        return _unreadable(_sentence(error.getMessage()))
    if condition.startswith(_NO_TABLE):
        return no_table(_bare(facts["relationName"]), tables(), statement, _line_in(str(error)))
    if condition.startswith(_NO_COLUMN):
        return _no_column(facts, statement, str(error))
    hint = (
        "help names what can be asked."
        if condition == _SYNTAX
        else _VARIANT
        if re.search(r"\bVARIANT\b", str(facts))
        else None
    )
    return _query_error(_sentence(error.getMessage() or str(error)), statement, _line_in(str(error)), hint)


def gone(statement: Statement) -> QueryError:
    """Return the error for Java that has ended, as it does for lack of memory."""
    return QueryError(
        f"line {statement.line}: Spark ended while it ran this",
        found=_short(statement.text.splitlines()[0]),
        hint=f"{spark_log()} has its last words; spark.driver.memory below [spark] gives it more than 1g.",
    )


def no_table(name: str, tables: Iterable[str], statement: Statement, line: int) -> QueryError:
    """Return the error for a table that is none of `tables`, in line `line` of the statement, from 1."""
    near = get_close_matches(name.lower(), tables, n=2, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}? {_TABLES}" if near else _TABLES
    return _query_error(f"there is no table or view {name}", statement, line, hint)


def _no_column(facts: dict[str, str], statement: Statement, text: str) -> QueryError:
    name, known = _bare(facts["objectName"]), [_bare(one) for one in facts.get("proposal", "").split(", ") if one]
    near = get_close_matches(name.lower(), known, n=2, cutoff=0.6)
    others = f"Among its columns are {', '.join(known)}; DESCRIBE lists all." if known else _TABLES
    hint = f"Did you mean {' or '.join(near)}?" if near else others
    return _query_error(f"there is no column {name}", statement, _line_in(text), hint)


def _query_error(problem: str, statement: Statement, line: int, hint: str | None) -> QueryError:
    lines = statement.text.splitlines()
    number = min(line, len(lines))
    return QueryError(f"line {statement.line + number - 1}: {problem}", found=_short(lines[number - 1]), hint=hint)


def _line_in(text: str) -> int:
    """The line of the statement, from 1, by Spark's message; the first if it names none."""
    at = _LINE.search(text)
    return 1 if at is None else int(at[1])


def _of_a_task(error: Py4JJavaError, statement: Statement) -> LogtwinError:
    """Errors that Spark does not tell from a defect; the first cause says what it was."""
    cause = first_cause(error)
    text = str(cause.getMessage() or cause.toString())
    if any(condition in text for condition in _UNREADABLE) or "FileNotFound" in str(cause.getClass().getName()):
        return _unreadable(_sentence(text))
    return _query_error(_sentence(text), statement, _line_in(text), None)


def _unreadable(found: str) -> ReplicaError:
    return ReplicaError(
        "the tables cannot be read",
        expected="the files that their last commits name",
        found=found,
        hint="logtwin verify compares the replica with its master, logtwin repair and backfill bring back what lacks.",
    )


def _sentence(message: str) -> str:
    """Strip Spark's name of the error, its code, and the plan that comes after it."""
    return _NOISE.sub("", message).strip().splitlines()[0].rstrip(".") if message.strip() else "Spark does not say why"


def _bare(name: str) -> str:
    return name.replace("`", "")


def _short(line: str) -> str:
    text = line.strip()
    return text if len(text) <= _SNIPPET else f"{text[:_SNIPPET]}…"
