"""Find out the facts: SQL over a replica's views and tables, each of one version, asked for once.

Every query aggregates in Spark: what comes to the driver is bounded by the logs, and by the numbers named here, however
many rows the ledger has. A range of the ledger counts in the span of time in which it was committed. Some questions are
asked side by side: most of their time goes by before Spark runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.report import statements
from pipeline.report.facts import (
    Commits,
    Election,
    Facts,
    Flaw,
    FlawedRange,
    GroupLag,
    IncidentFacts,
    Incidents,
    LogFacts,
    Pending,
    Slice,
    SlowestGroups,
    Timeline,
    TopicFacts,
    TopTopics,
    Waiting,
)
from pipeline.report.palette import SERIES
from pipeline.report.time_buckets import width_s
from sinks.delta.spark_jobs import first_cause, first_line
from sinks.tables import KAFKA_LOG, LOG
from sinks.views.definition import named_in, words_in
from sinks.views.registration import frames, newest_versions, register_views
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.metadata import CONSUMER_OFFSETS, KAFKA_PARTITIONS

_AT_ONCE: Final = 3
_MOST_SPANS: Final = 120
_SECOND_US: Final = 1_000_000
_MOST_SLICES: Final = 60
_MOST_RANGES: Final = 50  # of a log and a flaw
_MOST_BARS: Final = 20
_MOST_INCIDENTS: Final = 200
_MOST_ELECTIONS: Final = 100
_TRANSACTION_STATES: Final = ("committed", "rolled_back", "pending", "given_up")
_DELAY_STATES: Final = ("delivered", "pending", "cancelled")

_T = TypeVar("_T")


def read_facts(
    spark: SparkSession, warehouse: str, configured: Sequence[str], tell: Callable[[str], None] = lambda _: None
) -> Facts:
    """What there is to say of the replica in `warehouse`, which has the logs `configured`, and perhaps others.

    Asked in a session of its own: the names that `spark` knows stay what they are. `tell` hears how far it is. Raises
    ReplicaError where there is no replica, or a table of it cannot be read.
    """
    place = absolute(warehouse)
    with _translated(place):
        session = spark.newSession()
        versions = _register(session, place)
        found = _Questions(session).all(tell)
    seen = {one.log_id for one in found["logs"]}
    return Facts(
        warehouse=place,
        version=next(versions[spec.name] for spec in (LOG, KAFKA_LOG) if spec.name in versions),
        made_at=datetime.now(UTC),
        unseen=tuple(log_id for log_id in configured if log_id not in seen),
        has_metadata=not versions.keys().isdisjoint(kind.name for kind in (CONSUMER_OFFSETS, KAFKA_PARTITIONS)),
        **found,
    )


def _register(spark: SparkSession, place: str) -> Mapping[str, int]:
    """The replica's tables that are asked for, each as it is now, and the views over them.

    Returns the version of each table.
    """
    texts = [text for text in vars(statements).values() if isinstance(text, str)]
    tables = words_in(*texts)
    versions = newest_versions(spark, place, tables)
    for spec, frame in frames(spark, place, versions, pinned=versions, tables=tables):
        frame.createOrReplaceTempView(spec.name)
    register_views(spark, named_in(*texts))
    return versions


class _Questions:
    """Ask Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._waits = spark.sql(statements.WAITS)

    def all(self, tell: Callable[[str], None]) -> dict[str, Any]:
        """The answers, by the names of the fields of `Facts`."""
        questions: dict[str, Callable[[], Any]] = {
            "logs": self._logs,
            "groups": self._groups,
            "topics": self._topics,
            "transactions": lambda: self._pending(statements.TRANSACTIONS, _TRANSACTION_STATES),
            "delays": lambda: self._pending(statements.DELAYS, _DELAY_STATES),
            "flaws": self._flaws,
            "timeline": self._timeline,
            "elections": self._elections,
            "incidents": self._incidents,
        }
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = {pool.submit(question): name for name, question in questions.items()}
            try:
                for number, answer in enumerate(as_completed(asked), 1):
                    answer.result()
                    tell(f"{number} of {len(asked)} questions are answered")
            except BaseException:  # nobody waits for the others
                pool.shutdown(wait=False, cancel_futures=True)
                self._spark.interruptAll()
                raise
            return {name: answer.result() for answer, name in asked.items()}

    def _logs(self) -> tuple[LogFacts, ...]:
        ranges = {row["log_id"]: row for row in self._rows(statements.RANGES, waits=self._waits)}
        rows = ({**row, **ranges[row["log_id"]]} for row in self._rows(statements.COMPLETENESS))
        return tuple(_each(LogFacts, rows))

    def _elections(self) -> tuple[Election, ...]:
        return tuple(_each(Election, self._rows(statements.ELECTIONS, most=_MOST_ELECTIONS)))

    def _timeline(self) -> Timeline:
        (bounds,) = self._rows(statements.COMMIT_TIMES, waits=self._waits)
        logs = bounds["logs"]
        if bounds["first"] is None:
            return Timeline(1.0)
        width = width_s(bounds["first"], bounds["last"], _MOST_SPANS)
        # where colours are too few, the last one is for all the rest
        shown = logs if logs <= len(SERIES) else len(SERIES) - 1
        rows = self._rows(statements.COMMITS, width_us=width * _SECOND_US, shown=shown, waits=self._waits)
        return Timeline(width, tuple(_each(Commits, rows)))

    def _flaws(self) -> tuple[FlawedRange, ...]:
        rows = self._rows(statements.FLAWS, most=_MOST_RANGES)
        return tuple(_each(FlawedRange, ({**row, "flaw": Flaw[row["flaw"]]} for row in rows)))

    def _topics(self) -> TopTopics:
        rows = self._rows(statements.TOPICS, most=_MOST_BARS)
        if not rows:
            return TopTopics()
        of, messages, size_bytes = _same(rows, "topics", "all_messages", "all_bytes")
        return TopTopics(tuple(_each(TopicFacts, rows)), of, messages, size_bytes)

    def _groups(self) -> SlowestGroups:
        rows = self._rows(statements.GROUPS, most=_MOST_BARS)
        if not rows:
            return SlowestGroups()
        of, behind = _same(rows, "groups", "groups_behind")
        return SlowestGroups(tuple(_each(GroupLag, rows)), of, behind)

    def _pending(self, statement: str, states: Sequence[str]) -> Pending:
        waiting = self._spark.sql(statement)
        rows = self._rows(statements.WAITING, most=_MOST_BARS + len(states), waiting=waiting)
        totals = {row["state"]: row for row in rows if row["is_total"]}
        if not totals:
            return Pending()
        counted = {state: totals[state]["count"] if state in totals else 0 for state in states}
        pending = totals.get("pending")
        if pending is None or pending["first"] is None:
            return Pending(counted)
        width = width_s(pending["first"], pending["last"], _MOST_SLICES)
        slices = self._rows(statements.SLICES, width_us=width * _SECOND_US, waiting=waiting)
        (places,) = _same(rows, "places")
        oldest = _each(Waiting, (row for row in rows if not row["is_total"]))
        return Pending(counted, width, tuple(_each(Slice, slices)), tuple(oldest), places)

    def _incidents(self) -> Incidents:
        rows = self._rows(statements.INCIDENTS, most=_MOST_INCIDENTS)
        if not rows:
            return Incidents()
        of, still_open = _same(rows, "incidents", "open")
        return Incidents(tuple(_each(IncidentFacts, rows)), of, still_open)

    def _rows(self, statement: str, **names: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._spark.sql(statement, **names).toArrow().to_pylist()
        return rows


def _each(kind: type[_T], rows: Iterable[Mapping[str, Any]]) -> Iterator[_T]:
    """Rows as values: columns that are no fields of `kind` are left out."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    return (kind(**{name: row[name] for name in names}) for row in rows)


def _same(rows: Sequence[Mapping[str, Any]], *names: str) -> tuple[int, ...]:
    """What every row says of all of them."""
    return tuple(int(rows[0][name]) for name in names)


@contextmanager
def _translated(place: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ReplicaError(
            f"the replica in {place} cannot be read",
            found=_said(error),
            hint="Check that its storage can be reached; logtwin verify finds files that are damaged or gone.",
        ) from error


def _said(error: PySparkException | Py4JError) -> str:
    """What is between Spark and the driver wraps what happened."""
    if not isinstance(error, Py4JJavaError):
        return first_line(error)
    return str(first_cause(error).toString()).partition("\n")[0]
