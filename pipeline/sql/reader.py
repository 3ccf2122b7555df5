"""A Spark session that reads one replica, as it is or was: statement by statement, or a text of them with all that
is answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, Final, Self, TypeVar

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.configuration import Config
from pipeline.spark.session import session_for
from pipeline.sql.authority import Authority, StatementKind
from pipeline.sql.failures import failure, gone
from pipeline.sql.output import Format
from pipeline.sql.results import TABLE_CHARACTERS, WrittenRows, writer
from pipeline.sql.statements import Statement, split
from pipeline.system.console import err
from sinks.storage.place import LOCAL, Place, placed
from sinks.tables import log_table
from sinks.views.as_of import AsOf, register_as_of
from sinks.views.definition import named_in, words_in
from sinks.views.registration import all_names, register
from sources.errors import ConfigurationError, QueryError
from sources.offsets import LogId, Offset

_Made = TypeVar("_Made")

_READING: Final = {
    # Results leave partition by partition, through the driver's memory. Spark merges those that are too small, and
    # cannot split one that is too large.
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.files.maxPartitionBytes": "32m",
    # A batch is a row group of a Parquet file; one record may have megabytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
}

_ASKS_FOR_ALL: Final = re.compile(r"\bSHOW\b", re.I)
"""Commands that list names."""

_LOUD: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark prints each error that it raises, all of Java's stack with it; here it is told once, in words."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Past:
    """The log `log_id` as it was `at` an offset, or at a time."""

    log_id: LogId
    at: Offset | datetime

    @classmethod
    def asked(cls, config: Config, log: str | None, offset: int | None, time: str | None) -> Self | None:
        """Parse the options; None means the present. Raises ConfigurationError."""
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


@dataclass(frozen=True, slots=True)
class Checked:
    """A statement that Spark can read and that changes nothing but the session."""

    statement: Statement
    kind: StatementKind


@dataclass(frozen=True, slots=True)
class Reader:
    """`spark` is a session of its own: what is SET in it, and its temporary views, stay there.

    `warehouse` is where the replica is. `as_of` is the past that it shows, None of the present. `known` are tables and
    views that it would show and has not registered, because nobody asked for them.
    """

    spark: SparkSession
    warehouse: Place = LOCAL
    as_of: AsOf | None = None
    known: Callable[[], Collection[str]] = tuple

    @classmethod
    def opened(cls, config: Config, past: Past | None, text: str | None = None) -> Self:
        """Open a reader of the warehouse of `config`, as its tables are or were. Raises ReplicaError.

        With `text`, all that will be asked, it opens of the present only what that names: half of the time goes there.
        """
        return cls.over(session_for(config), config, past, text)

    @classmethod
    def over(cls, spark: SparkSession, config: Config, past: Past | None, text: str | None) -> Self:
        """Open a reader of the same replica in a session beside `spark`."""
        spark = spark.newSession()
        for name in _LOUD:
            PySparkLogger.getLogger(name).setLevel("CRITICAL")
        for key, value in _READING.items():
            if key not in config.spark:
                spark.conf.set(key, value)
        warehouse = placed(config.warehouse)
        if past is not None:
            return cls(spark, warehouse, register_as_of(spark, config.warehouse, past.log_id, past.at))
        if text is None or _ASKS_FOR_ALL.search(text):
            register(spark, config.warehouse)
            return cls(spark, warehouse)
        register(spark, config.warehouse, views=named_in(text), tables=words_in(text))
        return cls(spark, warehouse, known=lambda: all_names(spark, config.warehouse))

    def check(self, text: str) -> list[Checked]:
        """Check every statement of `text`, and run none. Raises QueryError."""
        return [self._checked(one) for one in split(text).all]

    def answer(self, one: Checked, use: Callable[[DataFrame], _Made]) -> _Made:
        """Return what `use` makes of the result. Raises QueryError; ReplicaError if the tables cannot be read."""
        with self._told(one.statement), ThreadPoolExecutor(1) as worker:
            answering = worker.submit(lambda: use(self._frame(one.statement)))
            try:
                return answering.result()  # no call of Spark: Ctrl-C would break it, and leave its job
            except KeyboardInterrupt:
                self.spark.interruptAll()
                raise

    @property
    def _authority(self) -> Authority:
        return Authority(self.spark, self.warehouse)

    def _frame(self, statement: Statement) -> DataFrame:
        """Judge it once more: statements that ran since the check may have given its names another meaning."""
        return self._authority.frame_of(statement, self.tables)

    def tables(self) -> list[str]:
        """The names of all tables and views, those of the session included."""
        return sorted({*self.known(), *(row.viewName for row in self.spark.sql("SHOW VIEWS").collect())})

    def _checked(self, statement: Statement) -> Checked:
        with self._told(statement):
            return Checked(statement, self._authority.kind_of(statement))

    @contextmanager
    def _told(self, statement: Statement) -> Iterator[None]:
        try:
            yield
        except (Py4JNetworkError, ConnectionRefusedError, ConnectionResetError) as error:
            raise gone(statement) from error
        except (PySparkException, Py4JJavaError) as error:
            raise failure(error, statement, self.tables) from error


def say(line: str) -> None:
    """Print to standard error."""
    err.print(line, highlight=False)


def run_text(reader: Reader, text: str, form: Format, sink: BinaryIO, width: int | None, tell: Tell = say) -> None:
    """Run all statements of `text`, once all of them are found sound; answers of settings are not written.

    `width` is a terminal's, None of anything else. `tell` gets what is not part of a result.
    Raises QueryError, ReplicaError, and what `sink` raises.
    """
    checked = reader.check(text)
    results = sum(one.kind is not StatementKind.SETTING for one in checked)
    if not checked:
        raise QueryError("there is no statement to run", hint="Give one with -e, -f or on standard input.")
    if form == "parquet" and results != 1:
        raise QueryError("a Parquet file holds one result", expected="one query", found=results)
    is_first = True
    for one in checked:
        if one.kind is StatementKind.SETTING:
            reader.answer(one, lambda _: None)
            continue
        if not is_first and form in ("table", "csv"):
            sink.write(b"\n")
        is_first = False
        run_one(reader, one, form, sink, width, tell)


def run_one(
    reader: Reader, one: Checked, form: Format, sink: BinaryIO, width: int | None, tell: Tell = say
) -> WrittenRows:
    """Run one statement. Say if rows were left out."""
    write = writer(form, width=width, most=TABLE_CHARACTERS if one.kind is StatementKind.QUERY else None)
    written = reader.answer(one, lambda frame: write(frame, sink) if frame.columns else WrittenRows(0))
    sink.flush()
    if written.is_cut:
        tell(f"the first {written.rows:,} rows of more: --format csv, json and parquet write all")
    if written.is_narrowed:
        tell("cut to the width of the terminal: LIMIT 1 shows a row whole, and --format csv or json all of them")
    return written
