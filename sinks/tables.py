"""The tables of a replica: schemas, comments, properties. The analysts' contract, defined once.

``<warehouse>/log`` holds every record of every log, ``kafka_log`` those of Kafka's topics, and ``ledger`` one row for
each committed range. ``incidents``, ``quarantine`` and ``removed`` hold what went wrong, and the bytes and rows that
were kept of it, ``epochs`` which elected master has written what, ``dister_kv`` the map that a log makes.
``schema_changes`` has the changes of typed tables' columns (`sinks/typed`), ``unfit`` what typed tables could not take,
and one table for each kind of metadata has every version of its items. All are Delta tables by path. The record columns
come from `sources.records`, those of metadata from `sources.metadata`; Spark's schema, with the comments, is derived
from the Arrow one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sources.metadata import KINDS, MetadataKind
from sources.offsets import LogId
from sources.records import KAFKA_SCHEMA, RECORD_SCHEMA, TIMESTAMP


def _field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


LOG_ID = _field("log_id", pa.string(), "which log, for example rocketmq/broker-a")
EPOCH = _field("epoch", pa.int32(), "history of the log; it grows when the master's log is found rewritten")

LOG_SCHEMA = pa.schema([LOG_ID, EPOCH, *RECORD_SCHEMA])

LEDGER_SCHEMA = pa.schema(
    [
        LOG_ID,
        EPOCH,
        _field("start", pa.int64(), "offset of the first record of the range; (log_id, epoch, start) is the key"),
        _field("end", pa.int64(), "first offset after the range; the next range of the log starts there"),
        _field("records", pa.int64(), "records in the range, blanks included"),
        _field("bytes", pa.int64(), "bytes of the master's log in the range"),
        _field("checksum", pa.string(), "sha256: and the hex digest of the master's bytes of the range"),
        _field("first_store_timestamp", TIMESTAMP, "earliest store_timestamp in the range"),
        _field("last_store_timestamp", TIMESTAMP, "latest store_timestamp in the range"),
        _field("committed_at", TIMESTAMP, "when the replica committed the range, by the driver's clock"),
        _field(
            "origin",
            pa.string(),
            "what wrote it: stream, the live job; backfill; repair, the rest of a cut range; joined, of the stream",
        ),
        _field(
            "deleted_at", TIMESTAMP, "when the replica's own retention deleted its records; null while they are there"
        ),
    ]
)

INCIDENTS_SCHEMA = pa.schema(
    [
        LOG_ID,
        EPOCH,
        _field("id", pa.string(), "names the incident: the same loss, found again, has the same"),
        _field("condition", pa.string(), "what came apart: gap, below_minimum, rewritten, …; sources/loss.py has all"),
        _field("start", pa.int64(), "the range that is lost, damaged or doubtful, half-open"),
        _field("end", pa.int64(), "its end"),
        _field("cause", pa.string(), "what was expected and found"),
        _field("action", pa.string(), "what was done: skipped, quarantined, reported, repaired"),
        _field("detected_at", TIMESTAMP, "when it was found, by the driver's clock"),
        _field("state", pa.string(), "open; healed, the range is whole again; closed, an operator accepted it"),
        _field("ended_at", TIMESTAMP, "when it was healed or closed; null while open"),
        _field("note", pa.string(), "why it was closed, or how it was healed; null while open"),
    ]
)

QUARANTINE_SCHEMA = pa.schema(
    [
        LOG_ID,
        EPOCH,
        _field("offset", pa.int64(), "offset of the first byte in the master's log"),
        _field("end", pa.int64(), "first offset after the bytes"),
        _field("condition", pa.string(), "why they are no record: checksum_failure, undecodable, gap"),
        _field("cause", pa.string(), "what was expected and found"),
        _field("bytes", pa.binary(), "the master's own bytes, as they came"),
    ]
)

EPOCHS_SCHEMA = pa.schema(
    [
        LOG_ID,
        EPOCH,
        _field("number", pa.int32(), "number of the election; (log_id, epoch, number) is the key"),
        _field("start", pa.int64(), "where the elected master began to write; the next epoch's start is its end"),
        _field("master", pa.string(), "its HA address; null where it was known from a later master only"),
        _field("since", TIMESTAMP, "when the replica first saw it, by the driver's clock"),
    ]
)

REMOVAL = (
    _field("removed_by_epoch", pa.int32(), "the history that the repair began, which removed the row"),
    _field("removed_at", TIMESTAMP, "when, by the driver's clock"),
)
REMOVED_SCHEMA = pa.schema([*LOG_SCHEMA, *REMOVAL])

BUCKET = _field("bucket", pa.string(), "part of the map that the key is in: two digits, by its CRC-32")

KEY_VALUES_SCHEMA = pa.schema(
    [
        LOG_ID,
        _field("key", pa.string(), "key; (log_id, key) is the key of the table"),
        _field("value", pa.string(), "what the log says of it last; null of a deleted one"),
        _field("id", pa.int64(), "id of the entry that set or deleted it"),
        _field("deleted", pa.bool_(), "whether the last entry that names the key removed it"),
        _field("epoch", pa.int32(), "history of the log that the map is a replay of"),
        BUCKET,
    ]
)

VALID_FROM = _field("valid_from", TIMESTAMP, "when this version was first fetched, by the driver's clock")
VALID_TO = _field("valid_to", TIMESTAMP, "when it was first found gone or changed: exclusive; null while current")
IS_CURRENT = _field("is_current", pa.bool_(), "whether valid_to is null")

LOG_LEFT_TO_MAINTAIN: Final = {"delta.enableExpiredLogCleanup": "false"}
_COMMON_PROPERTIES = {
    # The position travels in domain metadata, in the same commit as the data.
    "delta.feature.domainMetadata": "supported",
    # Rows are rarely deleted, with whole files or by rewriting some; many readers do not know deletion vectors.
    "delta.enableDeletionVectors": "false",
    # Kernel's hook writes a checkpoint at each tenth commit, after the acknowledgement, so a start reads few commits.
    "delta.checkpointInterval": "10",
    # Kernel and Spark trust a checkpoint by its name and delete the commits below it, even if it is empty after a power
    # failure. So only `maintain` deletes, below a checkpoint that it has read (`sinks/upkeep/log_entries.py`).
    **LOG_LEFT_TO_MAINTAIN,
    # Failed batches leave files that no commit names. A week is longer than any batch may run.
    "delta.deletedFileRetentionDuration": "interval 7 days",
    # delta.setTransactionRetentionDuration stays unset: if a position expired, the log would be read twice.
}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its folder in the warehouse, its columns, and the columns that queries filter on."""

    name: str
    comment: str
    schema: pa.Schema
    statistics: tuple[str, ...]  # columns with minimum, maximum and null count in the Delta log: queries skip files
    clustering: tuple[str, ...] = ()  # at most four, each with statistics; OPTIMIZE sorts by them
    partitioning: tuple[str, ...] = ()  # instead of clustering; without statistics of their own
    # If rows are only added, readers may stream the table, and UPDATE or DELETE is refused; OPTIMIZE works.
    append_only: bool = True
    stored_at: str = ""  # for a table of records: the column that says when the master stored a record
    folder: str = ""  # in the warehouse; by default its name
    growing: tuple[str, ...] = ()  # columns that older files may lack
    # Columns that are written with a dictionary, by default `sinks.delta.files.DICTIONARY_COLUMNS`.
    dictionaries: tuple[str, ...] | None = None

    def path(self, warehouse: str) -> str:
        return f"{warehouse.rstrip('/')}/{self.folder or self.name}"

    @property
    def properties(self) -> dict[str, str]:
        return {
            **_COMMON_PROPERTIES,
            "delta.appendOnly": str(self.append_only).lower(),
            "delta.dataSkippingStatsColumns": ",".join(self.statistics),
        }


LOG = TableSpec(
    "log",
    "every record of every replicated log, with all physical fields",
    LOG_SCHEMA,
    statistics=(
        "log_id",
        "epoch",
        "offset",
        "topic",
        "queue_id",
        "queue_offset",
        "unique_key",
        "store_timestamp",
        "born_timestamp",
        "sys_flag",
    ),
    clustering=("topic", "store_timestamp"),
    # a repair and the replica's own retention take rows out
    append_only=False,
    stored_at="store_timestamp",
)
KAFKA_LOG = TableSpec(
    "kafka_log",
    "every record of every replicated Kafka topic, by partition and offset",
    pa.schema([LOG_ID, EPOCH, *KAFKA_SCHEMA]),
    statistics=("log_id", "epoch", "topic", "partition", "offset", "timestamp"),
    clustering=("topic", "timestamp"),
    # as for log
    append_only=False,
    stored_at="timestamp",
)
"""Created with the first topic that is replicated."""
LEDGER = TableSpec(
    "ledger",
    "one row for each range that a commit to the log table contains",
    LEDGER_SCHEMA,
    # includes the columns that completeness needs: a file of one row never has to be opened for it
    statistics=(
        "log_id",
        "epoch",
        "start",
        "end",
        "first_store_timestamp",
        "last_store_timestamp",
        "committed_at",
        "deleted_at",
    ),
    clustering=("log_id", "start"),
    append_only=False,
)
INCIDENTS = TableSpec(
    "incidents",
    "every gap, loss, damage and divergence that was found, and what became of it",
    INCIDENTS_SCHEMA,
    statistics=("log_id", "epoch", "id", "condition", "start", "end", "detected_at"),
    append_only=False,
)
QUARANTINE = TableSpec(
    "quarantine",
    "the master's bytes that are no sound records, and why",
    QUARANTINE_SCHEMA,
    statistics=("log_id", "epoch", "offset", "end"),
    clustering=("log_id", "offset"),
)
EPOCHS = TableSpec(
    "epochs",
    "which elected master has written what, of each log whose group elects its master",
    EPOCHS_SCHEMA,
    statistics=("log_id", "epoch", "number", "start"),
)
"""Created with the first such log."""
REMOVED = TableSpec(
    "removed",
    "rows that a repair took out of the table log, because the master's log had changed",
    REMOVED_SCHEMA,
    statistics=("log_id", "epoch", "offset", "removed_by_epoch"),
    clustering=("log_id", "offset"),
)
KAFKA_REMOVED = TableSpec(
    "kafka_removed",
    "rows that a repair took out of the table kafka_log, because the topic had changed",
    pa.schema([*KAFKA_LOG.schema, *REMOVAL]),
    statistics=REMOVED.statistics,
    clustering=REMOVED.clustering,
)
KEY_VALUES = TableSpec(
    "dister_kv",
    "what each dister log says of each key, up to a position",
    KEY_VALUES_SCHEMA,
    statistics=("key", "id"),
    partitioning=(LOG_ID.name, BUCKET.name),
    append_only=False,
)
"""Created with the first log that makes a map."""

SCHEMA_CHANGES = TableSpec(
    "schema_changes",
    "what became of the columns of each typed table, and which message brought it",
    pa.schema(
        [
            _field("table", pa.string(), "the typed table; (table, number, changed_at) is the key"),
            _field("number", pa.int32(), "its changes in order, from 1; anew after it was dropped"),
            _field("changed_at", TIMESTAMP, "when, by the driver's clock"),
            _field("column", pa.string(), "which column"),
            _field(
                "change",
                pa.string(),
                "added; widened, each value as it was; grown, by parts that are null in older rows",
            ),
            _field("was", pa.string(), "type before; null of a column that is new"),
            _field("type", pa.string(), "type since"),
            LOG_ID,
            _field("offset", pa.int64(), "the message that brought it"),
        ]
    ),
    statistics=("table", "number", "changed_at"),
)
"""Created with the first column that a typed table finds."""
UNFIT = TableSpec(
    "unfit",
    "what a typed table could not take of a message: the dead letters of each",
    pa.schema(
        [
            _field("table", pa.string(), "which one; (table, log_id, epoch, offset, batch_index, column) is the key"),
            _field("generation", pa.int32(), "how often the table was made anew: of one that is, the newest are its"),
            LOG_ID,
            EPOCH,
            _field("offset", pa.int64(), "where the record of the message begins"),
            _field("batch_index", pa.int32(), "place in its inner batch; null of any other message"),
            _field("stored_at", TIMESTAMP, "when the master stored it, by the clock of the master"),
            _field("column", pa.string(), "null there in its row; null here where the message has no row"),
            _field("reason", pa.string(), "one of those in docs/typed-tables.md: not_ and a type or format, no_key, …"),
            _field("found", pa.string(), "what was found: the text of the field, or where the body breaks off"),
            _field("body", pa.binary(), "the whole body, as it was sent"),
        ]
    ),
    statistics=("table", "log_id", "epoch", "offset", "stored_at"),
    # rows go if their log no longer has the message, or if the table is rebuilt
    append_only=False,
)
"""Created with the first typed table."""

LOSS_TABLES = (INCIDENTS, QUARANTINE, REMOVED, KAFKA_REMOVED)
"""Tables that are created when there is something to write to them, as those of metadata are."""


def metadata_table(kind: MetadataKind) -> TableSpec:
    """The table with every version of every item of a kind of metadata.

    It is partitioned, so that a change rewrites only the current versions of its own log.
    """
    return TableSpec(
        kind.name,
        kind.comment,
        pa.schema([LOG_ID, *kind.schema, VALID_FROM, VALID_TO, IS_CURRENT]),
        statistics=(*(field.name for field in kind.key), VALID_FROM.name, VALID_TO.name),
        partitioning=(LOG_ID.name, IS_CURRENT.name),
        append_only=False,
    )


METADATA_TABLES = tuple(map(metadata_table, KINDS))


TABLES: Final = (LOG, KAFKA_LOG, LEDGER, *LOSS_TABLES, EPOCHS, KEY_VALUES, SCHEMA_CHANGES, UNFIT, *METADATA_TABLES)
"""All tables that a replica may have, without typed ones."""


def log_table(log_id: LogId) -> TableSpec:
    return KAFKA_LOG if log_id.unit == "offsets" else LOG


def removed_table(log_id: LogId) -> TableSpec:
    """The table that keeps what a repair takes out of `log_table`."""
    return KAFKA_REMOVED if log_table(log_id) is KAFKA_LOG else REMOVED


def with_identity(table: TableSpec, log_id: LogId, epoch: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """Make rows of `table` from `records` of a log; its first columns are the log and its epoch."""
    return with_identities(table, [(log_id, epoch)], [records.num_rows], records)


def with_identities(
    table: TableSpec, owners: Sequence[tuple[LogId, int]], counts: Sequence[int], records: pa.RecordBatch
) -> pa.RecordBatch:
    """Like `with_identity`, for the records of several logs: `counts` are how many are of each of `owners`, in order.

    ``sum(counts) == records.num_rows``.
    """
    names = pa.array([str(log_id) for log_id, _ in owners], LOG_ID.type)
    log_ids = names.take(pa.array(np.repeat(np.arange(len(owners)), counts)))
    epochs = pa.array(np.repeat([epoch for _, epoch in owners], counts), EPOCH.type)
    return pa.RecordBatch.from_arrays([log_ids, epochs, *records.columns], schema=table.schema.remove_metadata())


def in_numbers(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times as microseconds since 1970, as the driver's values have them."""
    kinds = (pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in schema)
    return pa.schema([pa.field(field.name, kind) for field, kind in zip(schema, kinds, strict=True)])
