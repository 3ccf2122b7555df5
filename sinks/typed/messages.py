"""The messages that a typed table is made of, as Spark reads them: through the views, which say what a message is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from sinks.spark_jobs import first_line
from sinks.tables import KAFKA_LOG, LOG, metadata_table, spark_schema
from sinks.typed.definition import Definition
from sinks.views.empty import empty_table, literal
from sinks.views.registration import register_views
from sinks.warehouse import absolute
from sources.errors import ConfigurationError
from sources.metadata import TOPICS
from sources.offsets import LogId, OffsetRange

_VIEWS: Final = {LOG.name: ("records", "messages"), KAFKA_LOG.name: ("kafka_records",)}
_COLUMNS: Final = {
    LOG.name: "log_id, offset, batch_index, delivered_timestamp AS stored_at, CAST(NULL AS BINARY) AS record_key, body",
    KAFKA_LOG.name: "log_id, offset, CAST(NULL AS INT) AS batch_index, timestamp AS stored_at, "
    "key AS record_key, value AS body",
}


class Messages:
    """Those of one definition. Driver only."""

    def __init__(self, spark: SparkSession, warehouse: str, wanted: Definition) -> None:
        self._spark = spark
        self._place = absolute(warehouse)
        self._wanted = wanted

    @cached_property
    def _all(self) -> DataFrame:
        """All there are, in a session of its own, which knows the log and its views by their names, and nothing else.

        Once: to understand what the views say takes Spark a second of a processor. It sees the newest version of the
        log whenever it is read.
        """
        session = self._spark.newSession()
        source, topics = self._wanted.source, metadata_table(TOPICS)
        session.read.format("delta").load(source.path(self._place)).createOrReplaceTempView(source.name)
        session.sql(empty_table(topics)).to(spark_schema(topics.schema)).createOrReplaceTempView(topics.name)
        register_views(session, _VIEWS[source.name])
        columns, name = _COLUMNS[source.name], _VIEWS[source.name][-1]
        return session.sql(f"SELECT {columns} FROM {name} WHERE {self._condition}")  # noqa: S608 - the operator's own

    def read(self, ranges: Mapping[LogId, Sequence[OffsetRange]]) -> DataFrame:
        """Those whose records start in `ranges`, in the columns of `sinks.typed.parsing.MESSAGES`.

        Raises ConfigurationError for a condition that is none.
        """
        try:
            return self._all.where(in_ranges(ranges))
        except (PySparkException, Py4JError) as error:
            raise ConfigurationError(
                f"the messages of the typed table {self._wanted.name} cannot be read",
                expected=f"a condition over the columns of {_VIEWS[self._wanted.source.name][-1]}, docs/views.md",
                found=first_line(error),
                hint="Look at where in its [[tables]].",
            ) from error

    @property
    def _condition(self) -> str:
        wanted = self._wanted
        names = wanted.topics or tuple(one.rpartition("/")[2] for one in wanted.kafka_topics)
        conditions = [f"topic IN ({', '.join(map(literal, names))})"]
        if wanted.tags:
            conditions.append(f"tags IN ({', '.join(map(literal, wanted.tags))})")
        if wanted.where is not None:
            conditions.append(f"({wanted.where})")
        return " AND ".join(conditions)


def in_ranges(ranges: Mapping[LogId, Sequence[OffsetRange]]) -> Column:
    """That a row is of one of these logs, and its offset in one of the log's ranges; at least one is given."""
    offset = sql.col("offset")
    parts = (
        (sql.col("log_id") == str(log_id)) & (offset >= one.start) & (offset < one.end)
        for log_id, several in ranges.items()
        for one in several
    )
    return reduce(or_, parts)
