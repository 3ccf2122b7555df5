"""``logtwin tables add``, ``check``, ``retry`` and ``rebuild``: their queries and texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from pipeline.config.configuration import Config
from pipeline.config.found import found_tables
from pipeline.config.typed_tables import TypedTableConfig
from pipeline.inspect.typed_status import TypedCounts, unfit_words
from pipeline.monitoring.display import count, number
from sinks.delta.kernel import Snapshot
from sinks.delta.spark_jobs import JobFacts, job_failure
from sinks.tables import KAFKA_LOG, LOG
from sinks.typed.columns import DELETED, VALID_FROM, VALID_TO, column_name, with_found
from sinks.typed.dead_letters import UnfitCount, unfit_count
from sinks.typed.definition import CHANGES, Definition, Reading
from sinks.typed.kinds import quoted
from sinks.typed.patterns import is_meant
from sinks.typed.state import TypedState, without
from sinks.typed.step.follower import TypedFollower
from sinks.typed.step.messages import messages_in, records_of, view_of
from sinks.typed.step.parsing import FieldSurvey
from sinks.typed.step.plan import FollowedLogs
from sinks.typed.step.report import REPORT_DDL, Report, reports
from sinks.typed.table import TypedTable
from sinks.warehouse import absolute
from sources.errors import ConfigurationError
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import parse_options

_LOOKED_AT: Final = {LOG.name: 16 << 20, KAFKA_LOG.name: 10_000}
"""How many of the newest offsets of each log are looked at: bytes, or messages of Kafka."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def one_of(config: Config, name: str) -> Definition:
    """The definition of the typed table `name`, which may be found. Raises ConfigurationError if there is none."""
    found = {one.table_name: one for one in found_tables(config).tables}
    if name not in found:
        listed = ", ".join(found) or "none"
        raise ConfigurationError(
            f"there is no typed table {name!r}", expected=f"one of [[tables]]: {listed}", found=name
        )
    return found[name].definition()


def proposed(
    spark: SparkSession | None,
    config: Config,
    source: Sequence[str],
    name: str | None,
    how: Mapping[str, str | Sequence[str]],
) -> str:
    """The ``[[tables]]`` of a typed table as TOML; with a session, it declares the columns of the newest messages.

    `how` has other keys of it. No line begins a table of its own: more keys can follow. Raises ConfigurationError.
    """
    said: dict[str, object] = {"name": name or _name_of(source[0]), "from": list(source), **how}
    lines = ["[[tables]]", *(f"{key} = {_toml(value)}" for key, value in said.items())]
    if spark is not None:
        found, notes = _declared(spark, config, _definition(said))
        said["schema"] = found or "infer"
        lines += [*notes, *(f"schema.{_key(field)} = {_toml(kind)}" for field, kind in found.items())]
    definition = _definition(said)
    if "format" in said and said["format"] not in CHANGES:
        return "\n".join([*lines, *(f"# {one.name}: {one.kind}" for one in definition.declared())])
    return "\n".join(lines if said.get("schema", "infer") != "infer" else [*lines, 'schema = "infer"'])


def _definition(said: Mapping[str, object]) -> Definition:
    return parse_options(TypedTableConfig, said, where="logtwin tables add").definition()


def _declared(spark: SparkSession, config: Config, wanted: Definition) -> tuple[dict[str, str], list[str]]:
    """The fields of the newest messages with the types of their columns, and what else is worth a comment."""
    report = _looked(spark, config, wanted)
    seen = [one.of_all_texts for one in report.seen.values()]
    columns, _ = with_found((), seen, renamed={}, masks={}, most=wanted.max_columns)
    unread = 0 if wanted.reading.format in CHANGES else report.messages - report.rows
    notes = [f"# of the newest {count(report.messages, 'message')}"]
    if unread:
        notes[0] += f", {unread:,} of which {'is no JSON object' if unread == 1 else 'are no JSON objects'}"
    left_out = sorted({*report.seen} - {one.field for one in columns})
    if left_out:
        notes.append(f"# without a column, in _rest: {', '.join(map(_toml, left_out))}")
    notes += [f"# {one.field} is called {one.name}" for one in columns if column_name(one.field, {}) != one.field]
    return {one.field: one.kind for one in columns}, notes


def _name_of(topic: str) -> str:
    name = "".join(letter if letter.isalnum() else "_" for letter in topic.rpartition("/")[2].lower()).strip("_")
    return name if name[:1].isalpha() else f"t_{name}"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _looked(spark: SparkSession, config: Config, wanted: Definition) -> Report:
    held = FollowedLogs(spark, config.warehouse, wanted).newest()
    if not held:
        raise ConfigurationError(
            f"there are no messages to look at in {absolute(config.warehouse)}",
            expected=f"a replica with {', '.join(wanted.topics or wanted.kafka_topics)}",
            found="none",
            hint="Replicate first, or leave out --declare.",
        )
    most = _LOOKED_AT[wanted.source.name]
    newest = {log_id: [OffsetRange(Offset(max(0, one.offset - most)), one.offset)] for log_id, one in held.items()}
    return _looking(spark, config, wanted, newest, wanted.reading)


def _looking(
    spark: SparkSession,
    config: Config,
    wanted: Definition,
    ranges: Mapping[LogId, Sequence[OffsetRange]],
    reading: Reading | None = None,
) -> Report:
    frame = messages_in(spark, config.warehouse, wanted, ranges)
    looking = FieldSurvey(reading)
    return reports(_collected(frame.mapInArrow(lambda batches: looking(batches), REPORT_DDL), wanted.name))


class Unmatched(Enum):
    """Why no message of a topic is in a typed table. The value is what JSON has."""

    NOT_IN_LOGS = "not_in_logs"
    LEFT_OUT = "left_out"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True)
class UnmatchedTopic:
    """A topic of a definition of which the table has no message; the followed logs have `records` of it."""

    source: str
    records: int
    why: Unmatched

    def as_json(self) -> dict[str, Any]:
        return {"from": self.source, "records": self.records, "why": self.why.value}

    def words(self, view: str) -> str:
        match self.why:
            case Unmatched.NOT_IN_LOGS:
                return f"no record of {self.source} is in the logs that it follows"
            case Unmatched.LEFT_OUT:
                return f"{view} leaves out all of {self.source}, {count(self.records, 'record')}"
        return f"tags and where leave out all messages of {self.source}, {count(self.records, 'record')}"


@dataclass(frozen=True, slots=True)
class TypedVerdict:
    """How many messages the log has for a typed table, and what became of them; docs/json.md documents every key.

    `unmatched` are the topics of the definition of which it has none; `view` shows its messages.
    """

    name: str
    messages: int
    counts: TypedCounts
    repeated: int
    is_by_key: bool
    view: str = "messages"
    unmatched: tuple[UnmatchedTopic, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether the table is right: with a key, no key repeats, or stands twice at a moment; else each message is a
        row, or unfit without one."""
        told = self.counts.rows + self.counts.unfit.without_row
        return not self.repeated and (self.is_by_key or self.messages == told)

    @property
    def impossible(self) -> list[str]:
        """The topics that the view leaves out: whatever comes, none of it is a message."""
        return [one.source for one in self.unmatched if one.why is Unmatched.LEFT_OUT]

    def as_json(self) -> dict[str, Any]:
        counts = {"messages": self.messages, **self.counts.as_json(), "repeated": self.repeated}
        unmatched = [one.as_json() for one in self.unmatched]
        return {
            "name": self.name, **counts, "is_by_key": self.is_by_key, "unmatched": unmatched, "is_equal": self.is_equal
        }  # fmt: skip


def checked(spark: SparkSession, config: Config, name: str | None) -> list[TypedVerdict]:
    """Check the typed table `name`, or all that exist. Raises ConfigurationError, ReplicaError."""
    wanted = [one_of(config, name)] if name is not None else [one.definition() for one in found_tables(config).tables]
    found = ((one, TypedTable(spark, config.warehouse, one.name)) for one in wanted)
    return [
        _verdict(spark, config, one, table, view.snapshot, view.state)
        for one, table in found
        if (view := table.look()) is not None and view.state is not None
    ]


def _verdict(
    spark: SparkSession, config: Config, wanted: Definition, table: TypedTable, on: Snapshot, state: TypedState
) -> TypedVerdict:
    """Check one version, while a job may update the table: dead letters are written before the rows of their step."""
    each = ((log_id, without([OffsetRange(Offset(0), one.offset)], one.holes)) for log_id, one in state.logs.items())
    ranges = {log_id: parts for log_id, parts in each if parts}
    rows = spark.read.option("versionAsOf", on.version).format("delta").load(table.path)
    key = [*map(quoted, wanted.key_columns or ("log_id", "offset", "batch_index"))]
    every = _count(rows, wanted.name)
    if wanted.keeps_history:
        repeated = _count(overlapping(rows, key), wanted.name)
    else:
        repeated = every - _count(rows.select(*key).distinct(), wanted.name)
    deleted = _count(rows.where(DELETED.name), wanted.name) if DELETED.name in rows.columns else 0
    messages = 0
    sources: frozenset[str] = frozenset()
    if ranges:
        report = _looking(spark, config, wanted, ranges)
        messages, sources = report.messages, report.sources
    unmatched = tuple(_unmatched(spark, config, wanted, ranges, wanted.unmatched(sources)))
    unfit = unfit_count(config.warehouse, wanted.name, state.generation, ranges)
    counts = TypedCounts(every - deleted, deleted, unfit)
    return TypedVerdict(wanted.name, messages, counts, repeated, wanted.is_keyed, view_of(wanted), unmatched)


def overlapping(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The changes that stand longer than until the next one of their key does, or end before they begin."""
    start, end, following = VALID_FROM.name, VALID_TO.name, "_following"
    of_key = Window.partitionBy(*key).orderBy(sql.col(start), sql.col(end).asc_nulls_last())
    stood = rows.where(f"{end} IS NULL OR {end} != {start}").withColumn(following, sql.lead(start).over(of_key))
    return stood.where(f"{end} < {start} OR {following} < {end} OR ({end} IS NULL AND {following} IS NOT NULL)")


def _unmatched(
    spark: SparkSession,
    config: Config,
    wanted: Definition,
    ranges: Mapping[LogId, Sequence[OffsetRange]],
    topics: Sequence[str],
) -> Iterator[UnmatchedTopic]:
    """Find out why there is no message of these `topics`."""
    if not topics:
        return
    records: dict[str, int] = {}
    visible: frozenset[str] = frozenset()
    if ranges:
        found = _collected(records_of(spark, config.warehouse, wanted, ranges), wanted.name)
        records = {row["source"]: row["records"] for row in found}
        visible = _looking(spark, config, replace(wanted, tags=(), where=None), ranges).sources
    for one in topics:
        counts = [of for topic, of in records.items() if is_meant(topic, (one,))]
        why = Unmatched.CONDITION if any(is_meant(topic, (one,)) for topic in visible) else Unmatched.LEFT_OUT
        yield UnmatchedTopic(one, sum(counts), why if counts else Unmatched.NOT_IN_LOGS)


def verdict_lines(found: Sequence[TypedVerdict]) -> Iterator[str]:
    if not found:
        yield "no typed table exists yet: logtwin tables add --from TOPIC proposes one, and a job makes it"
    for one in found:
        what = f"{count(one.messages, 'message')}: {one.counts}"
        repeated = f", {number(one.repeated)} repeated" if one.repeated else ""
        verdict = "NOT EQUAL" if not one.is_equal else "equal" if one.messages else "NO MESSAGES"
        yield f"{one.name}: {verdict}, {what}{repeated}"
        yield from (f"  {topic.words(one.view)}" for topic in one.unmatched)


def retried(spark: SparkSession, config: Config, wanted: Definition) -> tuple[int, UnfitCount]:
    """Take the messages that did not fit once more. Returns how many they were, and what still does not fit.

    New messages are taken, too. Raises ConfigurationError, ReplicaError, UnfitMessage.
    """
    follower = TypedFollower(spark, config.warehouse, wanted)
    follower.bring_to_end()  # finishes first what a killed step has begun
    messages = follower.retry()
    follower.bring_to_end()
    view = TypedTable(spark, config.warehouse, wanted.name).look()
    if view is None or view.state is None:
        return messages, UnfitCount()
    return messages, unfit_count(config.warehouse, wanted.name, view.state.generation)


def retried_line(name: str, messages: int, left: UnfitCount) -> str:
    return f"{name}: {count(messages, 'message')} tried again, {unfit_words(left)} now"


def rebuilt_line(name: str, state: TypedState | None) -> str:
    if state is None:
        return f"{name}: there is nothing to rebuild; logtwin replicate creates it"
    places = ", ".join(f"{log_id} at {number(one.offset)}" for log_id, one in sorted(state.logs.items()))
    return f"{name}: rebuilt, generation {state.generation}; {places}"


def _count(frame: DataFrame, name: str) -> int:
    return int(_collected(frame.selectExpr("count(*) AS count"), name)[0]["count"])


def _collected(frame: DataFrame, name: str) -> list[Any]:
    facts = JobFacts(
        problem=f"the Spark job that looks at the typed table {name} failed", log=None, hint="Nothing was changed."
    )
    try:
        return frame.collect()
    except (PySparkException, Py4JError) as error:
        raise job_failure(error, facts) from error
