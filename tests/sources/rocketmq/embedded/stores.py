"""Stores for tests, and their files read without the store's own code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sources.offsets import Offset
from sources.rocketmq.embedded.store import CommitLogStore, Put
from sources.rocketmq.format import commitlog
from sources.rocketmq.format.commitlog import Blank, Message
from sources.rocketmq.format.layout import Host

STORE_HOST = Host(bytes((127, 0, 0, 1)), 20911)
BORN_HOST = Host(bytes((127, 0, 0, 1)), 60828)
FILE_BYTES = 4096


def put(body: bytes = b"hello", **changes: Any) -> Put:
    """A small message for queue 0 of topic T1."""
    plain: dict[str, Any] = {
        "topic": "T1",
        "queue_id": 0,
        "body": body,
        "properties": b"TAGS\x01t\x02",
        "born_host": BORN_HOST,
        "born_timestamp_ms": 1_795_000_000_000,
    }
    return Put(**plain | changes)


def put_of_size(record_bytes: int) -> Put:
    """A message whose record has exactly this size: 91 bytes + body + topic + properties (specification 1.2)."""
    return put(bytes(record_bytes - 91 - len("T1") - len(b"TAGS\x01t\x02")))


@contextmanager
def open_store(root: Path, **options: Any) -> Iterator[CommitLogStore]:
    store = CommitLogStore(root, STORE_HOST, **{"file_size_bytes": FILE_BYTES, **options})
    try:
        yield store
    finally:
        store.close()


def log_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def records_of(root: Path, end: int) -> list[Message | Blank]:
    """Every record below `end`, each checked; they join."""
    data, at = log_bytes(root), 0
    records: list[Message | Blank] = []
    while at < end:
        record = commitlog.decode(data, at, Offset(at))
        assert record is not None
        records.append(record)
        at += record.size
    assert at == end
    return records


def messages_of(root: Path, end: int) -> list[Message]:
    return [record for record in records_of(root, end) if isinstance(record, Message)]
