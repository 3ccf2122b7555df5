"""Read the messages of a typed table with Spark, through the views, which define what a message is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from sinks.delta.spark_jobs import first_line
from sinks.tables import KAFKA_LOG, LOG, metadata_table
from sinks.typed.definition import Definition
from sinks.typed.patterns import expression, is_pattern
from sinks.views.registration import register_views
from sinks.warehouse import absolute, empty_table, literal, spark_schema
from sources.errors import ConfigurationError
from sources.metadata import TOPICS
from sources.offsets import LogId, OffsetRange

_VIEWS: Final = {LOG.name: ("records", "messages"), KAFKA_LOG.name: ("kafka_records",)}
_TOPIC_ID: Final = "substring_index(log_id, '/', 3)"
_COLUMNS: Final = {
    LOG.name: "log_id, offset, batch_index, delivered_timestamp AS stored_at, CAST(NULL AS BINARY) AS record_key, "
    "body, sys_flag, stored_body, topic AS source",
    KAFKA_LOG.name: "log_id, offset, CAST(NULL AS INT) AS batch_index, timestamp AS stored_at, key AS record_key, "
    f"value AS body, CAST(NULL AS INT) AS sys_flag, CAST(NULL AS BINARY) AS stored_body, {_TOPIC_ID} AS source",
}


def view_of(wanted: Definition) -> str:
    return _VIEWS[wanted.source.name][-1]


def topic_names(wanted: Definition) -> tuple[str, ...]:
    """The topics of a definition, names or patterns, as records name them."""
    return wanted.topics or tuple(one.rpartition("/")[2] for one in wanted.kafka_topics)


def messages_of(session: SparkSession, log: DataFrame, wanted: Definition) -> DataFrame:
    """The messages of `wanted` among the records `log`, in the columns of `sinks.typed.step.parsing.MESSAGES`.

    `session` must be a new one: the log and its views become known to it by their names. Raises ConfigurationError for
    an invalid condition.
    """
    topics, name = metadata_table(TOPICS), wanted.source.name
    log.createOrReplaceTempView(name)
    session.sql(empty_table(topics)).to(spark_schema(topics.schema)).createOrReplaceTempView(topics.name)
    register_views(session, _VIEWS[name])
    view = view_of(wanted)
    try:
        return session.sql(f"SELECT {_COLUMNS[name]} FROM {view} WHERE {_condition(wanted)}")  # noqa: S608 - the operator's own
    except (PySparkException, Py4JError) as error:
        raise wrong_condition(wanted, first_line(error)) from error


def messages_in(
    spark: SparkSession, warehouse: str, wanted: Definition, ranges: Mapping[LogId, Sequence[OffsetRange]]
) -> DataFrame:
    """The messages of `wanted` in the newest version of the log whose records start in `ranges`.

    Raises ConfigurationError for an invalid condition.
    """
    session = spark.newSession()
    log = session.read.format("delta").load(wanted.source.path(absolute(warehouse)))
    return messages_of(session, log, wanted).where(in_ranges(ranges))


def records_of(
    spark: SparkSession, warehouse: str, wanted: Definition, ranges: Mapping[LogId, Sequence[OffsetRange]]
) -> DataFrame:
    """How many `records` the newest version of the log has in `ranges`, by `source`: a topic of `wanted`."""
    log = spark.read.format("delta").load(wanted.source.path(absolute(warehouse)))
    source = _TOPIC_ID if wanted.kafka_topics else "topic"
    found = log.where(in_ranges(ranges) & sql.expr(_meant(source, wanted.sources)))
    return found.groupBy(sql.expr(source).alias("source")).agg(sql.count("*").alias("records"))


def wrong_condition(wanted: Definition, found: str) -> ConfigurationError:
    view = view_of(wanted)
    return ConfigurationError(
        f"the messages of the typed table {wanted.name} cannot be read",
        expected=f"a condition over the columns of {view}, docs/views.md, that says the same of a message at any time",
        found=found,
        hint="Check where in its [[tables]].",
    )


def _condition(wanted: Definition) -> str:
    conditions = [_meant("topic", topic_names(wanted))]
    if wanted.tags:
        conditions.append(f"tags IN ({', '.join(map(literal, wanted.tags))})")
    if wanted.where is not None:
        conditions.append(f"({wanted.where})")
    return " AND ".join(conditions)


def _meant(column: str, texts: Iterable[str]) -> str:
    """The SQL condition that `column` is one of `texts`, or matches one (`sinks.typed.patterns`)."""
    texts = tuple(texts)
    names = [literal(one) for one in texts if not is_pattern(one)]
    of_names = [f"{column} IN ({', '.join(names)})"] if names else []
    of_patterns = [f"{column} RLIKE {literal(f'^(?:{expression(one)})$')}" for one in texts if is_pattern(one)]
    return f"({' OR '.join([*of_names, *of_patterns])})"


def in_ranges(ranges: Mapping[LogId, Sequence[OffsetRange]]) -> Column:
    """The condition that a row is in one of these logs, and its offset in one of the log's ranges, at least one."""
    offset = sql.col("offset")
    parts = (
        (sql.col("log_id") == str(log_id)) & (offset >= one.start) & (offset < one.end)
        for log_id, several in ranges.items()
        for one in several
    )
    return reduce(or_, parts)
