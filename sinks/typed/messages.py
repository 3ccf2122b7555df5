"""The messages that a typed table is made of, as Spark reads them: through the views, which say what a message is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sinks.kernel import KernelTable, Overlap, Snapshot
from sinks.spark_jobs import first_line
from sinks.tables import KAFKA_LOG, LOG, metadata_table, spark_schema
from sinks.typed.definition import Definition
from sinks.views.definition import view
from sinks.views.empty import empty_table, literal
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

    def __init__(self, spark: SparkSession, source: KernelTable, wanted: Definition) -> None:
        """`source` is the table of records that they are in."""
        self._spark = spark
        self._source = source
        self._wanted = wanted

    @cached_property
    def _session(self) -> SparkSession:
        """One of its own, which knows the views of the log by their names, and nothing else."""
        session = self._spark.newSession()
        topics = metadata_table(TOPICS)
        session.sql(empty_table(topics)).to(spark_schema(topics.schema)).createOrReplaceTempView(topics.name)
        self._show(session, ())
        for name in _VIEWS[self._wanted.source.name]:
            session.sql(view(name).created(temporary=True))
        return session

    def _show(self, session: SparkSession, paths: Sequence[str]) -> None:
        """Let the log be these files, which are read as what they are: all of a version that may matter."""
        source, schema = self._wanted.source, spark_schema(self._wanted.source.schema)
        rows = session.read.schema(schema).parquet(*paths) if paths else session.createDataFrame([], schema)
        rows.createOrReplaceTempView(source.name)

    def read(
        self, on: Snapshot, ranges: Mapping[LogId, Sequence[OffsetRange]], epochs: Mapping[LogId, int]
    ) -> DataFrame:
        """Of version `on` those whose records start in `ranges`, in the columns of `sinks.typed.parsing.MESSAGES`; and
        others, which tasks leave out (`within`).

        No offset is in the query: Spark compiles each anew that has other numbers in it, which takes a second of a
        processor. Raises ConfigurationError for a condition that is none.
        """
        found = {
            file.path
            for log_id, several in ranges.items()
            for one in several
            for file in self._source.files(on, {"log_id": str(log_id)}, Overlap(one, "offset"))
        }
        name = _VIEWS[self._wanted.source.name][-1]
        logs = ", ".join(literal(str(log_id)) for log_id in ranges)
        source = f"SELECT {_COLUMNS[self._wanted.source.name]} FROM {name}"  # noqa: S608 - names of our own
        where = f"log_id IN ({logs}) AND {self._condition}"
        of_log = " ".join(f"WHEN {literal(str(log_id))} THEN {epochs[log_id]}" for log_id in ranges)
        columns = f"log_id, offset, batch_index, stored_at, CAST(CASE log_id {of_log} END AS INT) AS epoch, body"
        statement = f"SELECT {columns} FROM ({source} WHERE {where})"  # noqa: S608 - the operator's
        try:
            self._show(self._session, [f"{self._source.path.rstrip('/')}/{path}" for path in sorted(found)])
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
