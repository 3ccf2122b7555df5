"""Read the log's rows for a step of a typed table from data files, in tasks. pyarrow only, no JVM.

A step is cut into shares by offset, so that each task reads few files, and writes rows that are next to each other in
the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.delta.data_file import bounds
from sinks.delta.delta_log import StoredFile
from sinks.delta.files import batches_of, group_bounds, in_columns, open_parquet
from sinks.storage.errors import reported_as
from sinks.tables import LOG_ID, TableSpec
from sinks.typed.patterns import is_meant
from sources.offsets import LogId, Offset, OffsetRange

_OFFSET = "offset"
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Share:
    """What one task reads: from `files`, the rows whose offset is in one of the `ranges` of their log, by log id.

    The ranges of a log are in order, and do not overlap.
    """

    files: tuple[str, ...]
    ranges: Mapping[str, tuple[OffsetRange, ...]]


def shares(
    files: Mapping[LogId, Sequence[StoredFile]], ranges: Mapping[LogId, Sequence[OffsetRange]], count: int
) -> list[Share]:
    """Cut `ranges` into at most `count` shares of about the same number of offsets, none of them empty."""
    offsets = sum(one.size for several in ranges.values() for one in several)
    each = -(-offsets // count)
    found: list[dict[str, list[OffsetRange]]] = []
    room = 0
    for log_id, several in ranges.items():
        for one in sorted(several):
            start = one.start
            while start < one.end:
                if room == 0:
                    found.append({})
                    room = each
                end = Offset(min(one.end, start + room))
                found[-1].setdefault(str(log_id), []).append(OffsetRange(start, end))
                room -= end - start
                start = end
    files_of = {log_id: [(one.path, _bounds_in(one)) for one in several] for log_id, several in files.items()}
    return [
        Share(
            tuple(
                dict.fromkeys(
                    path
                    for log_id, several in files_of.items()
                    for path, within in several
                    if _may_overlap(within, parts.get(str(log_id), ()))
                )
            ),
            {log_id: tuple(several) for log_id, several in parts.items()},
        )
        for parts in found
    ]


def _bounds_in(file: StoredFile) -> tuple[int, int] | None:
    """The least and the greatest offset in a file; None if the Delta log does not say."""
    least, greatest = bounds(file.statistics(), _OFFSET)
    return None if least is None or greatest is None else (least, greatest)


def _may_overlap(within: tuple[int, int] | None, wanted: Sequence[OffsetRange]) -> bool:
    """Whether rows between a least and a greatest offset (None: not known) may be in `wanted`."""
    if within is None:
        return bool(wanted)
    least, greatest = within
    before = bisect_right(wanted, greatest, key=lambda one: one.start)
    return before > 0 and wanted[before - 1].end > least


@dataclass(frozen=True, slots=True)
class LogRows:
    """Reads shares, picklable: rows of the table `spec` in `folder`, and only those of `topics`.

    Topics are names or patterns (`sinks.typed.patterns`).
    """

    spec: TableSpec
    folder: str
    topics: tuple[str, ...]

    def __call__(self, share: Share, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a share. Batches have all columns of the table; those not in `columns` are null. Raises ReplicaError."""
        log_id, several = next(iter(share.ranges.items()))
        for name in share.files:
            unread = reported_as(
                f"a data file of {self.spec.name} cannot be read",
                log=log_id,
                offset=several[0].start,
                expected=f"the file {self.folder.rstrip('/')}/{name}, which the Delta log names",
                hint="Nothing was changed. Where it stays so logtwin verify finds what is damaged, and logtwin repair "
                "mends it.",
            )
            with unread, open_parquet(self.folder, name) as parquet:
                yield from self._of_file(parquet, share, columns)

    def _of_file(self, parquet: pq.ParquetFile, share: Share, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = self.spec.schema.remove_metadata()
        read = pa.schema([one for one in schema if one.name in {LOG_ID.name, _OFFSET, "topic", *columns}])
        groups = [
            number
            for number, within in enumerate(group_bounds(parquet, _OFFSET))
            if any(_may_overlap(within, several) for several in share.ranges.values())
        ]
        for batch in batches_of(parquet, _ROWS_AT_ONCE, read.names, groups):
            rows = batch.filter(self._wanted(batch, share))
            if rows.num_rows:
                yield in_columns(in_columns(rows, read, self.spec.growing), schema, schema.names)

    def _wanted(self, batch: pa.RecordBatch, share: Share) -> pa.Array:
        topics = [
            one for one in pc.unique(batch["topic"]).to_pylist() if one is not None and is_meant(one, self.topics)
        ]
        is_wanted = pc.is_in(batch["topic"], pa.array(topics, pa.string()))
        offsets = batch[_OFFSET].to_numpy()
        in_ranges = np.zeros(len(offsets), dtype=bool)
        for log_id, several in share.ranges.items():
            starts, ends = (np.array([getattr(one, side) for one in several]) for side in ("start", "end"))
            before = np.searchsorted(starts, offsets, side="right") - 1
            is_inside = (before >= 0) & (offsets < ends[before])
            in_ranges |= is_inside & pc.equal(batch[LOG_ID.name], log_id).to_numpy(zero_copy_only=False)
        return pc.and_(is_wanted, pa.array(in_ranges))
