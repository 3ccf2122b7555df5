"""What a task does with its splits: read, write a file, report. Runs in Spark's Python workers, by `mapInArrow`.

In comes one row for each split (RANGES_SCHEMA), out goes one small row for each (REPORT_SCHEMA): what was covered, the
file, its statistics, the checksum of the master's bytes. Rows of the log never pass through the JVM.

An error that a retry cannot help travels as a value in the report, and the driver raises it again as what it was. One
that a retry can help is raised, so that Spark runs the task again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sinks.coverage import Covered, check_records, failure
from sinks.files import DataFile, FileWriter, new_name
from sinks.handshake import Append, clip, decide
from sinks.tables import LOG
from sources.errors import LogtwinError, ReplicaError, error_from
from sources.master import Chunk, MasterLog
from sources.offsets import Offset, OffsetRange

REPORT_SCHEMA = pa.schema(
    [
        ("split_start", pa.int64()),
        ("batch_start", pa.int64()),
        ("batch_end", pa.int64()),
        # null where no record starts in the split, as is all that follows
        ("covered_start", pa.int64()),
        ("covered_end", pa.int64()),
        ("last_record_start", pa.int64()),
        ("checksum", pa.string()),
        # microseconds since 1970, UTC: a timestamp would come back in the driver's time zone
        ("first_store_us", pa.int64()),
        ("last_store_us", pa.int64()),
        ("name", pa.string()),
        ("size_bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("records", pa.int64()),
        ("statistics", pa.string()),
        # JSON of LogtwinError.facts; nothing else is set then
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Written:
    """One split, read and written: what it covers, the checksum of those bytes, the file."""

    covered: Covered
    checksum: str
    first_store_us: int | None
    last_store_us: int | None
    file: DataFile


@dataclass(frozen=True, slots=True)
class SplitWriter:
    """The task function: everything it needs, picklable. `position` is the driver's, for the same handshake."""

    master: MasterLog
    epoch: int
    position: Offset | None
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`mapInArrow`'s shape: RANGES_SCHEMA in, REPORT_SCHEMA out."""
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([self._report(row)], schema=REPORT_SCHEMA)

    def _report(self, row: dict[str, Any]) -> dict[str, Any]:
        facts = {name: row[name] for name in ("split_start", "batch_start", "batch_end")}
        try:
            written = self.write_split(row)
        except LogtwinError as error:
            named = error.at(self.master.log_id)
            if named.is_transient:
                raise RuntimeError(named.token()) from error
            return {**facts, "error": json.dumps(named.facts())}
        return facts if written is None else {**facts, **_pack(written)}

    def write_split(self, row: dict[str, Any]) -> Written | None:
        """Read and write what the position leaves of one split; None where no record starts in that."""
        if row["log_id"] != str(self.master.log_id):
            raise ReplicaError("a batch of another log", expected=self.master.log_id, found=row["log_id"])
        decision = decide(self.position, OffsetRange(row["batch_start"], row["batch_end"]))
        if not isinstance(decision, Append):
            return None
        owned = clip(OffsetRange(row["split_start"], row["split_end"]), decision.range)
        if owned.is_empty:
            return None
        at_record = owned.start == decision.range.start or self.master.cuts_at_records
        return self._write(self.master.read(owned, committed=self.position, boundary=at_record), owned)

    def _write(self, chunks: Iterator[Chunk], owned: OffsetRange) -> Written | None:
        first = next((chunk for chunk in chunks if chunk.records.num_rows), None)
        if first is None:
            return None
        with FileWriter(LOG, self.folder, new_name(owned.start)) as writer:
            tally = _Tally(first.covered.start)
            self._add(first, tally, writer)
            for chunk in chunks:
                self._add(chunk, tally, writer)
            return tally.written(writer.finish())

    def _add(self, chunk: Chunk, tally: _Tally, writer: FileWriter) -> None:
        tally.add(chunk)
        if chunk.records.num_rows:
            writer.write(self._with_identity(chunk.records))

    def _with_identity(self, records: pa.RecordBatch) -> pa.RecordBatch:
        count = records.num_rows
        log_ids = pa.repeat(pa.scalar(str(self.master.log_id)), count)
        epochs = pa.repeat(pa.scalar(self.epoch, pa.int32()), count)
        return pa.RecordBatch.from_arrays([log_ids, epochs, *records.columns], schema=LOG.schema.remove_metadata())


class _Tally:
    """What the chunks of one split add up to. Checks that they join and that records fill what they claim to."""

    def __init__(self, start: Offset) -> None:
        self._start = start
        self._end = start
        self._last_record_start = start
        self._digest = hashlib.sha256()
        self._first_store: int | None = None
        self._last_store: int | None = None

    def add(self, chunk: Chunk) -> None:
        self._check(chunk)
        self._digest.update(chunk.raw)
        self._end = chunk.covered.end
        if chunk.records.num_rows:
            self._last_record_start = chunk.records.column("offset")[-1].as_py()
            self._add_times(chunk.records.column("store_timestamp"))

    def written(self, file: DataFile) -> Written:
        covered = Covered(OffsetRange(self._start, self._end), self._last_record_start)
        return Written(covered, f"sha256:{self._digest.hexdigest()}", self._first_store, self._last_store, file)

    def _add_times(self, times: pa.Array) -> None:
        found = pc.min_max(times.cast(pa.int64())).as_py()
        if found["min"] is not None:
            self._first_store = min(value for value in (found["min"], self._first_store) if value is not None)
            self._last_store = max(value for value in (found["max"], self._last_store) if value is not None)

    def _check(self, chunk: Chunk) -> None:
        if chunk.covered.start != self._end:
            raise failure("the master's chunks do not join", self._end, self._end, chunk.covered.start)
        if len(chunk.raw) != chunk.covered.size:
            raise failure(
                "a chunk holds other bytes than it covers", self._end, f"{chunk.covered.size} bytes", len(chunk.raw)
            )
        check_records(chunk.records, chunk.covered)


def _pack(written: Written) -> dict[str, Any]:
    return {
        "covered_start": written.covered.range.start,
        "covered_end": written.covered.range.end,
        "last_record_start": written.covered.last_record_start,
        "checksum": written.checksum,
        "first_store_us": written.first_store_us,
        "last_store_us": written.last_store_us,
        **asdict(written.file),
    }


def unpack(row: dict[str, Any]) -> Written | None:
    """A row of the report; None for a split in which no record starts. Raises the error that it carries."""
    if row["error"] is not None:
        raise error_from(json.loads(row["error"]))
    if row["covered_start"] is None:
        return None
    return Written(
        covered=Covered(OffsetRange(row["covered_start"], row["covered_end"]), row["last_record_start"]),
        checksum=row["checksum"],
        first_store_us=row["first_store_us"],
        last_store_us=row["last_store_us"],
        file=DataFile(row["name"], row["size_bytes"], row["modified_ms"], row["records"], row["statistics"]),
    )
