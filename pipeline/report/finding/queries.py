"""Find out the facts: of the small tables without Spark, of single records by SQL over the replica's views.

The records may be very many, and more than one machine's: so every query aggregates in Spark, and what comes to the
driver is bounded by the logs, the topics, and the numbers named here. A question that the Delta log proves to have no
answer is not asked, and without any there is no session. Some are asked side by side: most of their time goes by before
Spark runs anything. Each table is read at one version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.report.facts import (
    Election,
    Facts,
    GroupLag,
    IncidentFacts,
    Pending,
    ReportedIncidents,
    Slice,
    SlowestGroups,
    TopicFacts,
    TopTopics,
    Waiting,
)
from pipeline.report.finding.flaws import flaws
from pipeline.report.finding.questions import (
    DELAYS,
    GROUPS,
    SLICES,
    TOPICS,
    TRANSACTIONS,
    WAITING,
    dicts_of,
    rows_of,
    worth_asking,
)
from pipeline.report.finding.ranges import COLUMNS, LedgerRanges, log_facts, timeline, width_s
from sinks.delta.delta_log import newest
from sinks.delta.spark_jobs import first_cause, first_line
from sinks.tables import EPOCHS, INCIDENTS, KAFKA_LOG, LEDGER, LOG, metadata_table
from sinks.views.definition import named_in, words_in
from sinks.views.registration import frames, newest_versions, no_replica, register_views
from sinks.warehouse import absolute
from sources.errors import ReplicaError
from sources.metadata import CONSUMER_OFFSETS, KAFKA_PARTITIONS

_AT_ONCE: Final = 3
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
    warehouse: str,
    configured: Sequence[str],
    session: Callable[[int], SparkSession],
    tell: Callable[[str], None] = lambda _: None,
) -> Facts:
    """Find out the facts of the replica in `warehouse`, which has the logs `configured`, and perhaps others.

    `session` is called where Spark is needed, for a session that is ours alone; it is told how many bytes the files
    have that will be read. `tell` hears how far it is.

    Raises ReplicaError where there is no replica, or a table of it cannot be read.
    """
    place = absolute(warehouse)
    log, kafka_log = newest(LOG.path(place)), newest(KAFKA_LOG.path(place))
    of_replica = log or kafka_log
    if of_replica is None:
        raise no_replica(place)
    found = _of_small_tables(place)
    worth = worth_asking(place, log, kafka_log)
    if worth:
        spark = session(sum(one.size_bytes for table in (log, kafka_log) if table for one in table.files.values()))
        with _translated(place):
            found |= _Questions.opened(spark, place, worth).all(tell)
    seen = {one.log_id for one in found["logs"]}
    return Facts(
        warehouse=place,
        version=of_replica.version,
        made_at=datetime.now(UTC),
        unseen=tuple(log_id for log_id in configured if log_id not in seen),
        has_metadata=any(newest(metadata_table(kind).path(place)) for kind in (CONSUMER_OFFSETS, KAFKA_PARTITIONS)),
        **found,
    )


def _of_small_tables(place: str) -> dict[str, Any]:
    """Return facts by the names of the fields of `Facts`."""
    ranges = LedgerRanges.of(rows_of(LEDGER, place, *COLUMNS))
    # after the ledger: so no gap in it lacks its reason because that came a moment later
    incidents = dicts_of(rows_of(INCIDENTS, place, *INCIDENTS.schema.names))
    return {
        "logs": tuple(log_facts(ranges, incidents)),
        "timeline": timeline(ranges),
        "flaws": tuple(flaws(ranges, incidents, _MOST_RANGES)),
        "elections": _elections(dicts_of(rows_of(EPOCHS, place, *EPOCHS.schema.names))),
        "incidents": _incidents(incidents),
    }


def _elections(rows: Sequence[Mapping[str, Any]]) -> tuple[Election, ...]:
    """Return the elections of each log's newest history, the newest first."""
    newest_epochs: dict[str, int] = {}
    for row in rows:
        newest_epochs[row["log_id"]] = max(row["epoch"], newest_epochs.get(row["log_id"], row["epoch"]))
    found = sorted(
        (row for row in rows if row["epoch"] == newest_epochs[row["log_id"]]),
        key=lambda row: (_backwards(row["since"]), row["log_id"], -row["number"]),
    )
    return tuple(_each(Election, found[:_MOST_ELECTIONS]))


def _incidents(rows: Sequence[Mapping[str, Any]]) -> ReportedIncidents:
    is_open = [row["state"] == "open" for row in rows]
    found = sorted(
        rows, key=lambda row: (row["state"] != "open", _backwards(row["detected_at"]), row["log_id"], row["id"])
    )
    return ReportedIncidents(tuple(_each(IncidentFacts, found[:_MOST_INCIDENTS])), len(rows), sum(is_open))


def _backwards(at: datetime | None) -> float:
    """The newest first, and what has no time last."""
    return math.inf if at is None else -at.timestamp()


class _Questions:
    """Ask Spark what is worth asking."""

    def __init__(self, spark: SparkSession, worth: Collection[str]) -> None:
        self._spark = spark
        known: dict[str, tuple[str, Callable[[], Any]]] = {
            "topics": (TOPICS, self._topics),
            "groups": (GROUPS, self._groups),
            "transactions": (TRANSACTIONS, partial(self._pending, TRANSACTIONS, _TRANSACTION_STATES)),
            "delays": (DELAYS, partial(self._pending, DELAYS, _DELAY_STATES)),
        }
        self._asked = {name: one for name, one in known.items() if name in worth}

    @classmethod
    def opened(cls, spark: SparkSession, place: str, worth: Collection[str]) -> Self:
        """Register the tables that are asked for, each as it is now, and the views over them."""
        questions = cls(spark, worth)
        texts = [text for text, _ in questions._asked.values()]
        tables = words_in(*texts)
        versions = newest_versions(spark, place, tables)
        for spec, frame in frames(spark, place, versions, pinned=versions, tables=tables):
            frame.createOrReplaceTempView(spec.name)
        register_views(spark, named_in(*texts))
        return questions

    def all(self, tell: Callable[[str], None]) -> dict[str, Any]:
        """The answers, by the names of the fields of `Facts`."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = {pool.submit(question): name for name, (_, question) in self._asked.items()}
            try:
                for number, answer in enumerate(as_completed(asked), 1):
                    answer.result()
                    tell(f"{number} of {len(asked)} questions are answered")
            except BaseException:  # nobody waits for the others
                pool.shutdown(wait=False, cancel_futures=True)
                self._spark.interruptAll()
                raise
            return {name: answer.result() for answer, name in asked.items()}

    def _topics(self) -> TopTopics:
        rows = sorted(self._rows(TOPICS), key=lambda row: (-row["messages"], row["topic"]))
        messages, sizes = (sum(row[name] for row in rows) for name in ("messages", "bytes"))
        return TopTopics(tuple(_each(TopicFacts, rows[:_MOST_BARS])), len(rows), messages, sizes)

    def _groups(self) -> SlowestGroups:
        rows = self._rows(GROUPS, most=_MOST_BARS)
        if not rows:
            return SlowestGroups()
        of, behind = _same(rows, "groups", "groups_behind")
        return SlowestGroups(tuple(_each(GroupLag, rows)), of, behind)

    def _pending(self, statement: str, states: Sequence[str]) -> Pending:
        waiting = self._spark.sql(statement)
        rows = self._rows(WAITING, most=_MOST_BARS + len(states), waiting=waiting)
        totals = {row["state"]: row for row in rows if row["is_total"]}
        if not totals:
            return Pending()
        counted = {state: totals[state]["count"] if state in totals else 0 for state in states}
        pending = totals.get("pending")
        if pending is None or pending["first"] is None or pending["last"] is None:
            return Pending(counted)
        width = width_s(pending["first"], pending["last"], _MOST_SLICES)
        slices = self._rows(SLICES, width_us=width * _SECOND_US, waiting=waiting)
        (places,) = _same(rows, "places")
        oldest = _each(Waiting, (row for row in rows if not row["is_total"]))
        return Pending(counted, width, tuple(_each(Slice, slices)), tuple(oldest), places)

    def _rows(self, statement: str, **names: Any) -> list[dict[str, Any]]:
        return dicts_of(self._spark.sql(statement, **names).toArrow())


def _each(kind: type[_T], rows: Iterable[Mapping[str, Any]]) -> Iterator[_T]:
    """Make values of `kind` from rows, without columns that are no fields of it."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    return (kind(**{name: row[name] for name in names}) for row in rows)


def _same(rows: Sequence[Mapping[str, Any]], *names: str) -> tuple[int, ...]:
    """Return values that are the same in every row."""
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
    """Unwrap the error: what lies between Spark and the driver wraps it."""
    if not isinstance(error, Py4JJavaError):
        return first_line(error)
    return str(first_cause(error).toString()).partition("\n")[0]
