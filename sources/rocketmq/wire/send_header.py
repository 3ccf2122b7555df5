"""The ext fields of a send request: one value in two spellings. Pure.

Request 10 spells the names out (`SendMessageRequestHeader`); 310 and 320 use one letter each
(`SendMessageRequestHeaderV2`). Every value is text; booleans are ``true`` and ``false``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sources.errors import ProtocolViolation
from sources.rocketmq.wire.remoting import RequestCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeader:
    """The ext fields of a send: long names in request 10, one letter each in 310 and 320.

    `properties` is the encoded block as text (name 0x01 value 0x02 …). `queue_id` −1 lets the broker choose.
    """

    producer_group: str
    topic: str
    queue_id: int = -1
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    flag: int = 0
    properties: str = ""
    reconsume_times: int = 0
    default_topic: str = "TBW102"
    default_topic_queue_nums: int = 8
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: str | None = None


_FIELDS: Final = (
    # attribute, name in 10, name in 310 and 320
    ("producer_group", "producerGroup", "a"),
    ("topic", "topic", "b"),
    ("default_topic", "defaultTopic", "c"),
    ("default_topic_queue_nums", "defaultTopicQueueNums", "d"),
    ("queue_id", "queueId", "e"),
    ("sys_flag", "sysFlag", "f"),
    ("born_timestamp_ms", "bornTimestamp", "g"),
    ("flag", "flag", "h"),
    ("properties", "properties", "i"),
    ("reconsume_times", "reconsumeTimes", "j"),
    ("unit_mode", "unitMode", "k"),
    ("max_reconsume_times", "maxReconsumeTimes", "l"),
    ("batch", "batch", "m"),
    ("broker_name", "brokerName", "n"),
)
_LONG_NAMES: Final = {attribute: long for attribute, long, _ in _FIELDS}
_SHORT_NAMES: Final = {attribute: short for attribute, _, short in _FIELDS}
_BOOLEANS: Final = frozenset({"unit_mode", "batch"})
_STRINGS: Final = frozenset({"producer_group", "topic", "default_topic", "properties", "broker_name"})


def encode_send_header(header: SendHeader, code: int) -> dict[str, str]:
    """Return the ext fields for a request of `code` 10, 310 or 320; a field that is None is left out."""
    values = ((name, getattr(header, attribute)) for attribute, name in _names(code).items())
    return {name: _to_text(value) for name, value in values if value is not None}


def decode_send_header(ext_fields: dict[str, str], code: int) -> SendHeader:
    """Decode ext fields, ignoring unknown ones. Raises ProtocolViolation naming one that is missing or not a number."""
    found = {attribute: ext_fields[name] for attribute, name in _names(code).items() if name in ext_fields}
    try:
        return SendHeader(**{attribute: _from_text(attribute, text) for attribute, text in found.items()})
    except (TypeError, ValueError) as error:
        raise ProtocolViolation(
            "not the ext fields of a send request", expected=f"those of request {code}", found=error
        ) from error


def _names(code: int) -> dict[str, str]:
    return _LONG_NAMES if code == RequestCode.SEND_MESSAGE else _SHORT_NAMES


def _to_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_text(attribute: str, text: str) -> Any:
    if attribute in _STRINGS:
        return text
    return text == "true" if attribute in _BOOLEANS else int(text)
