"""The messages that a typed table is made of, as Spark reads them: through the views, which say what a message is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinks.spark_jobs import first_line
from sinks.tables import KAFKA_LOG, LOG, metadata_table, spark_schema
from sinks.typed.definition import Definition
from sinks.views.definition import view
from sinks.views.empty import empty_table, literal
from sinks.warehouse import absolute
from sources.errors import ConfigurationError
from sources.metadata import TOPICS
from sources.offsets import LogId, OffsetRange

_VIEWS: Final = {LOG.name: ("records", "messages"), KAFKA_LOG.name: ("kafka_records",)}
_COLUMNS: Final = {
    LOG.name: "log_id, offset, batch_index, delivered_timestamp AS stored_at, body",
    KAFKA_LOG.name: "log_id, offset, CAST(NULL AS INT) AS batch_index, timestamp AS stored_at, value AS body",
}


class Messages:
    """Those of one definition. Driver only."""

    def __init__(self, spark: SparkSession, warehouse: str, wanted: Definition) -> None:
        self._spark = spark
        self._place = absolute(warehouse)
        self._wanted = wanted

    @cached_property
    def _session(self) -> SparkSession:
        """One of its own, which knows the log and the views of it, by their names, and nothing else."""
        session = self._spark.newSession()
        source, topics = self._wanted.source, metadata_table(TOPICS)
        session.read.format("delta").load(source.path(self._place)).createOrReplaceTempView(source.name)
        session.sql(empty_table(topics)).to(spark_schema(topics.schema)).createOrReplaceTempView(topics.name)
        for name in _VIEWS[source.name]:
            session.sql(view(name).created(temporary=True))
        return session

    def read(self, ranges: Mapping[LogId, Sequence[OffsetRange]], epochs: Mapping[LogId, int]) -> DataFrame:
        """Those whose records start in `ranges`, in the columns of `sinks.typed.parsing.MESSAGES`.

        Raises ConfigurationError for a condition that is none.
        """
        places = " OR ".join(
            f"log_id = {literal(str(log_id))} AND offset >= {one.start} AND offset < {one.end}"
            for log_id, several in ranges.items()
            for one in several
        )
        epoch = " ".join(f"WHEN {literal(str(log_id))} THEN {epochs[log_id]}" for log_id in ranges)
        name = _VIEWS[self._wanted.source.name][-1]
        source = f"SELECT {_COLUMNS[self._wanted.source.name]} FROM {name}"  # noqa: S608 - names of our own
        where = f"({places}) AND {self._condition}"
        epochs_of = f"CAST(CASE log_id {epoch} END AS INT) AS epoch"
        columns = "log_id, offset, batch_index, stored_at"
        statement = f"SELECT {columns}, {epochs_of}, body FROM ({source} WHERE {where})"  # noqa: S608 - the operator's
        try:
            return self._session.sql(statement)
        except (PySparkException, Py4JError) as error:
            raise ConfigurationError(
                f"the messages of the typed table {self._wanted.name} cannot be read",
                expected=f"a condition over the columns of {name}, docs/views.md",
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
