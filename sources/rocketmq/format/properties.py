"""The properties block of a message: ``name 0x01 value 0x02`` repeated, UTF-8.

Source: org.apache.rocketmq.common.message.MessageDecoder, 4.9.1 and later; names: MessageConst. Whether a broker writes
the last separator depends on its version (before 4.9.1 and from 5.2.0 on it does), so the block is kept as stored and
never rebuilt from the map.
"""

from __future__ import annotations

import unicodedata

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_UNKNOWN_DELAY_MS = 1000
_INT32_MAX = 2**31 - 1


def decode(block: bytes) -> dict[str, str]:
    """Return the map that a consumer sees.

    The block is split at 0x02, each part at its first 0x01. A pair with an empty name or value is dropped, and the last
    value of a repeated name wins. Bytes that are not UTF-8 become U+FFFD, as in Java.
    """
    found: dict[str, str] = {}
    for pair in bytes(block).decode("utf-8", "replace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    return found


def encode(properties: dict[str, str]) -> bytes:
    """Return the block in the order of the map. Raises ValueError for a pair that `decode` would not give back."""
    return "".join(f"{_checked(name, value)}\x01{value}\x02" for name, value in properties.items()).encode()


def _checked(name: str, value: str) -> str:
    if not name or not value or "\x01" in name or "\x02" in name + value:
        raise ValueError(f"property {name!r} = {value!r} cannot be stored: a part is empty or holds a separator")
    return name


def java_hash(text: str) -> int:
    """Return java.lang.String.hashCode: over UTF-16 code units, wrapping at 32 bits, signed."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (hashed >> 31 << 32)


def tags_code(tags: str | None) -> int:
    """Return what the consume queue holds for `tags`: their hash, or 0 without tags."""
    return java_hash(tags) if tags else 0


def delay_ms(delay: str) -> int | None:
    """Return how long a message with property DELAY waits in SCHEDULE_TOPIC_XXXX, from its store timestamp on.

    A broker stores the resulting delivery time in the consume queue as the tags code. Source:
    CommitLog.checkMessageAndReturnSize and ScheduleMessageService.computeDeliverTimestamp of org.apache.rocketmq, with
    the default messageDelayLevel. None for level 0 and below, which brokers do not treat as a delay.
    """
    level = _java_int(delay)
    if level is None:
        return _UNKNOWN_DELAY_MS
    return 1000 * _DELAYS_S[min(level, len(_DELAYS_S)) - 1] if level > 0 else None


def _java_int(text: str) -> int | None:
    """Return java.lang.Integer.parseInt of `text`; None if that throws."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return None
    value, most = 0, _INT32_MAX + text.startswith("-")
    for character in digits:  # any length, any script; Java sees two halves above U+FFFF
        digit = unicodedata.decimal(character, None) if character <= "\uffff" else None
        if digit is None or (value := 10 * value + digit) > most:
            return None
    return -value if text.startswith("-") else value
