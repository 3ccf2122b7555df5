"""Made rows of table log: for what the real logs do not hold."""

from datetime import UTC, datetime
from typing import Any

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


def message(offset: int, topic: str | None = "orders", **fields: Any) -> dict[str, Any]:
    """A row of table log; `fields` are its columns, the properties a dict. Tags, keys and unique key follow from it."""
    properties = fields.pop("properties", {})
    keys = properties.get("KEYS")
    usual = {
        "log_id": "rocketmq/broker-a",
        "epoch": 0,
        "size": 100,
        "kind": "message",
        "queue_id": 0,
        "queue_offset": 0,
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "unique_key": properties.get("UNIQ_KEY"),
        "store_timestamp": NOON,
        "born_timestamp": NOON,
        "body": b"",
        "magic": -626843481,
        "body_crc": 0,
        "flag": 0,
        "sys_flag": 0,
        "born_host": "10.0.0.7:49152",
        "store_host": "127.0.0.1:10911",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "tags_code": 0,
    }
    return usual | {"offset": offset, "topic": topic, "properties": list(properties.items())} | fields
