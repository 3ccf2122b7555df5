"""Logs that real brokers wrote, and what Kafka's own consumer read in them: the archives of tests/fixtures/kafka-*."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.transactions import Aborted
from sources.offsets import Offset, OffsetRange
from tests.peers.kafka_fixture import FIXTURES
from tests.sources.kafka.batches import Row
from tests.truth import unpack

_ABORTED = struct.Struct(
    ">"
    "h"  # version, 0
    "q"  # producer id
    "q"  # first offset
    "q"  # last offset: of the mark
    "q"  # last stable offset, at that time
)
"""An entry of a .txnindex file (AbortedTxn.java)."""


@dataclass(frozen=True)
class BrokerLog:
    """Partition 0 of a topic: the files of `folder`, as the broker left them."""

    folder: Path

    @property
    def records(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.folder.glob("*.log")))

    def aborted(self, wanted: OffsetRange) -> list[Aborted]:
        """What a broker would list of a fetch of `wanted`, and of what lies behind it."""
        entries = b"".join(path.read_bytes() for path in sorted(self.folder.glob("*.txnindex")))
        return [
            Aborted(producer_id, Offset(first))
            for _, producer_id, first, last, _ in _ABORTED.iter_unpack(entries)
            if last >= wanted.start
        ]

    def truth(self, isolation: Isolation) -> list[Row]:
        """As `batches.rows_of` has them."""
        lines = (self.folder / f"{isolation.name.lower()}.jsonl").read_text().splitlines()
        return [_row(json.loads(line)) for line in lines]


def extract(version: str, folder: Path) -> Path:
    """A folder for each topic."""
    unpack(FIXTURES / f"kafka-{version}" / f"kafka-{version}.tar.gz", folder)
    return folder


def _row(said: dict[str, Any]) -> Row:
    types = {"CreateTime": "create_time", "LogAppendTime": "log_append_time"}
    return {
        "offset": said["offset"],
        "leader_epoch": said["leader_epoch"],
        "timestamp": None if said["timestamp_ms"] == -1 else said["timestamp_ms"],
        "timestamp_type": types[said["timestamp_type"]],
        "key": _bytes(said["key"]),
        "value": _bytes(said["value"]),
        "headers": [(bytes.fromhex(key).decode(), _bytes(value)) for key, value in said["headers"]],
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
