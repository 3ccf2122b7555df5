"""Registers a job's tables by name in the catalog of its Spark session, as ``[catalog]`` asks.

They are registered again whenever there is a new table. A failure here stops no log and no typed table: registration is
tried again, after a longer wait each time. Of several shards one registers them.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from sinks.delta.commits import FIRST_WAIT_S, doubled_s
from sinks.tables import KAFKA_LOG, LOG, TABLES
from sinks.typed.table import typed_names
from sinks.views.registration import register, table_names
from sinks.warehouse import absolute, names_in
from sources.errors import LogtwinError, of_log

log = logging.getLogger(__name__)

_LOOK_S: Final = 10.0
_JOIN_S: Final = 30.0
_TABLES: Final = frozenset(spec.name for spec in TABLES)


class Catalogued:
    """Keeps a job's tables registered. Driver only.

    Call either `start` and `stop`, or `bring`. Does nothing without ``[catalog]``.
    """

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._place = absolute(config.warehouse)
        self._schema = config.catalog.schema_ if config.serves("catalog") else None
        self._retry_wait_max_s = config.retry_wait_max_s
        self._registered: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look for new tables every few seconds from now on, in a thread of its own."""
        if self._schema is not None:
            self._thread = threading.Thread(target=self._run, name="catalog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop between two registrations. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def bring(self) -> LogtwinError | None:
        """Register the tables that exist, unless that was done before. Returns the error that prevented it, if any."""
        try:
            self._bring()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the replica is sound
            return of_log(failure, "catalog")
        return None

    def _bring(self) -> None:
        if self._schema is None:
            return
        folders = names_in(self._spark, self._place)
        if folders.isdisjoint((LOG.name, KAFKA_LOG.name)):
            return  # nothing has been replicated yet
        folders = folders & _TABLES | set(typed_names(self._spark, self._place))
        if folders == self._registered:
            return  # two listings are enough to see this; a folder alone does not prove that there is a table
        found = table_names(self._spark, self._place)
        if found != self._registered:
            register(self._spark, self._place, self._schema)
            self._registered = found

    def _run(self) -> None:
        error, tries, wait_s = None, 0, 0.0
        while not self._stop.wait(wait_s):
            before, error = error, self.bring()
            if error is None:
                tries, wait_s = 0, _LOOK_S
                continue
            if str(before) != str(error):
                log.error("%s; replication goes on, and the catalog will be tried again", error)
            tries, wait_s = tries + 1, doubled_s(FIRST_WAIT_S, tries, self._retry_wait_max_s)
