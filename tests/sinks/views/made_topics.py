"""Made rows of tables as they are where Kafka is replicated."""

from typing import Any

from tests.sinks.views.lake import Row
from tests.sinks.views.made_logs import NOON


def record(offset: int, partition: int = 0, topic: str = "orders", **fields: Any) -> Row:
    """A row of table kafka_log; `fields` are its columns. Headers are pairs."""
    usual = {
        "log_id": f"kafka/prod/{topic}/{partition}",
        "epoch": 0,
        "offset": offset,
        "leader_epoch": 0,
        "topic": topic,
        "partition": partition,
        "timestamp": NOON,
        "timestamp_type": "create_time",
        "value": b"",
    }
    headers = [{"key": key, "value": value} for key, value in fields.pop("headers", [])]
    return usual | fields | {"headers": headers}


def ranges_of(log_id: str, *edges: tuple[int, int], **fields: Any) -> list[Row]:
    usual = {"epoch": 0, "records": 1, "bytes": 1, "origin": "stream", "committed_at": NOON}
    return [usual | {"log_id": log_id, "start": start, "end": end} | fields for start, end in edges]


def loss(log_id: str, start: int, end: int, action: str) -> Row:
    """A row of table incidents, an open one."""
    place = {"log_id": log_id, "epoch": 0, "id": f"{log_id}-{start}", "condition": "below_minimum"}
    return place | {"start": start, "end": end, "action": action, "state": "open", "detected_at": NOON}
