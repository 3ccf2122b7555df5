"""Replicas written without Spark: rows as the decoders make them, and made ones; and what the views say of them.

A view is asked once for all logs: the columns that tests look at, of the real logs and of made ones, each of which has
a log id of its own. So what is in one log must not show in another. A test module's made rows are its `MADE_ROWS`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from sinks.tables import LEDGER, LOG, TableSpec, metadata_table, with_identity
from sources.metadata import CONSUMER_OFFSETS, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from sources.offsets import LogId, Offset
from sources.rocketmq.columns import codec
from sources.rocketmq.metadata import items_of
from tests.truth import Fixture

Row = dict[str, Any]

_FILES: Final = {
    TOPICS: "topics.json",
    SUBSCRIPTION_GROUPS: "subscriptionGroup.json",
    CONSUMER_OFFSETS: "consumerOffset.json",
    DELAY_OFFSETS: "delayOffset.json",
}
"""What a stopping broker leaves of each kind of metadata; it has the form of the answers."""


def write(warehouse: Path, spec: TableSpec, rows: pa.Table | Iterable[Row], *transactions: Transaction) -> None:
    """One more commit of that table. Columns that a row does not have are null."""
    schema = spec.schema  # with the comments
    table = rows.cast(schema) if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema)
    write_deltalake(
        spec.path(str(warehouse)),
        table,
        mode="append",
        partition_by=list(spec.partitioning) or None,
        commit_properties=CommitProperties(app_transactions=list(transactions)),
    )


def write_records(warehouse: Path, log_id: LogId, log: bytes) -> pa.RecordBatch:
    """The records of a log that begins at offset 0, in one commit, as a batch that has it all makes it."""
    end = Offset(len(log))
    decoded = codec.decode(log, Offset(0), end)
    assert decoded.end == end
    rows = pa.Table.from_batches([with_identity(LOG, log_id, 0, decoded.records)])
    write(warehouse, LOG, rows, Transaction(f"logtwin/{log_id}@0", end))
    return decoded.records


def write_log(warehouse: Path, log_id: LogId, fixture: Fixture, fetched: datetime) -> None:
    """The log of a real broker with its row of the ledger, and the metadata that the broker had."""
    end, records = fixture.max_offset, write_records(warehouse, log_id, fixture.log)
    times = [at for at in records["store_timestamp"].to_pylist() if at is not None]
    covered = {"start": 0, "end": end, "records": records.num_rows, "bytes": end, "origin": "stream"}
    covered |= {
        "first_store_timestamp": min(times),
        "last_store_timestamp": max(times),
        "committed_at": datetime.now(UTC),
    }
    write(warehouse, LEDGER, [{"log_id": str(log_id), "epoch": 0} | covered])
    for kind, name in _FILES.items():
        items = items_of(kind, (fixture.path / "config" / name).read_bytes()).to_pylist()
        write(warehouse, metadata_table(kind), [version(str(log_id), fetched, item) for item in items])


def version(log_id: str, since: datetime, item: Row, until: datetime | None = None) -> Row:
    """A version of an item, as a row of its metadata's table; without `until` the current one."""
    return item | {"log_id": log_id, "valid_from": since, "valid_to": until, "is_current": until is None}


_LOOKED_AT: Final = {
    "records": (
        *("log_id", "offset", "topic", "message_id", "store_host", "transaction_type", "is_system", "is_dispatched"),
        "is_dispatched AND NOT in_batch_queue AS is_queued",
    ),
    "messages": ("* EXCEPT (json)", "to_json(json) AS json"),
    "kafka_records": ("* EXCEPT (value_json)", "to_json(value_json) AS value_json"),
}
"""Of a view that is not taken as it is. Spark hands over no variant."""


@dataclass(frozen=True)
class Asked:
    """A session with the tables and views of a replica. What it has asked a view once it knows."""

    session: SparkSession
    _found: dict[str, list[Row]] = field(default_factory=dict)

    def rows(self, view: str, log_id: str, *order: str) -> list[Row]:
        """What `view` has of a log, without the log's id, by the first of the columns `order` that is there; or as it
        comes.
        """
        if view not in self._found:
            self._found[view] = rows(self.session.table(view).selectExpr(*_LOOKED_AT.get(view, ("*",))))
        found = [{**row} for row in self._found[view] if row["log_id"] == log_id]
        for row in found:
            del row["log_id"]
        return sorted(found, key=lambda row: next((row[name] for name in order if row[name] is not None), -1))


def rows(frame: DataFrame) -> list[Row]:
    found: list[Row] = frame.toArrow().to_pylist()
    return found
