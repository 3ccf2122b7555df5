"""A partition in memory, as a master log as far as comparisons ask: its records, and what it is asked for."""

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.kafka.format.columns import UNLOCATED_SCHEMA, canonical, canonical_lengths
from sources.kafka.log import TRAITS
from sources.master import Chunk, Traits
from sources.offsets import LogId, Offset, OffsetRange

Row = dict[str, object]
ORDERS = LogId("kafka", "prod/orders/0")


def row(offset: int, value: bytes | None = b"v") -> Row:
    return {
        "offset": offset, "leader_epoch": 0, "timestamp": None, "timestamp_type": "create_time", "key": b"k",
        "value": value, "headers": [],
    }  # fmt: skip


def records(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=UNLOCATED_SCHEMA)


def checksum(rows: Sequence[Row]) -> str:
    return f"sha256:{hashlib.sha256(canonical(records(rows))).hexdigest()}"


@dataclass(frozen=True)
class CompactedLog:
    """`rows` are what the broker has left. `asked` are ranges that were fetched, `policy` is how often it was asked."""

    rows: tuple[Row, ...]
    is_compacted: bool = True
    chunk_rows: int = 3
    log_id: LogId = ORDERS
    traits: Traits = TRAITS
    asked: list[OffsetRange] = field(default_factory=list, compare=False)
    policy: list[None] = field(default_factory=list, compare=False)

    def drops_records(self) -> bool:
        self.policy.append(None)
        return self.is_compacted

    def common_offset(self, records: object) -> None:
        """It has no rule."""

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk]:
        self.asked.append(owned)
        mine = [one for one in self.rows if one["offset"] in owned]
        for at in range(0, len(mine), self.chunk_rows):
            part = records(mine[at : at + self.chunk_rows])
            yield Chunk(owned, part, memoryview(bytearray(canonical(part))))

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        for piece in self.read(wanted, committed=committed, boundary=True):
            yield piece.raw

    def restore(self, rows: pa.RecordBatch) -> bytes:
        return canonical(rows)

    def lengths(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return canonical_lengths(rows)
