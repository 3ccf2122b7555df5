"""What the data source ``logtwin`` reads: the options decide which (`sources.datasource`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader


@dataclass(frozen=True, slots=True)
class RecordSource:
    """The columns of its rows, and its readers for ``spark.read`` and ``spark.readStream``."""

    schema: pa.Schema
    batch_reader: Callable[[], DataSourceReader]
    stream_reader: Callable[[], DataSourceStreamReader]
