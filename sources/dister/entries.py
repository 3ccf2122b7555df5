r"""One entry of dister's log: a line of text <-> values. Pure.

::

    <id>,<act>,<items>\n

    id      decimal: index x 10000 + a random part below 10000. Ids ascend in the log with gaps; 0 is no id.
    act     decimal: 300 set, items are a JSON object of strings; 310 remove, items are a JSON array of strings.
            Any other act is an entry that changes no key; its items are any JSON.
    items   JSON as Go's encoder writes it: it escapes newlines, so an entry is one line, of any length.

A line has no checksum, length, header or time. It is as dister writes it: `saveLogEntryToFile`, `makeLogId`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from sources.errors import CorruptRecord

ACT_SET: Final = 300
ACT_REMOVE: Final = 310
RANDOM: Final = 10_000
"""The number of ids per index: an id's random part is below this."""
IDS_PER_FILE: Final = 10**9
"""The number of ids per batch file: 100,000 indexes."""
MAX_ID: Final = 2**31 * IDS_PER_FILE - 1
"""The last id of the last batch whose number fits into 32 bits."""
MAX_ACT: Final = 2**31 - 1
SHORTEST_BYTES: Final = 10
"""Shorter lines are ignored, as dister's reader does."""

Items = dict[str, str] | list[str]

_LINE = re.compile(rb"(?P<id>[0-9]+),(?P<act>[0-9]+),(?P<items>.*)", re.DOTALL)
_MAX_DIGITS = 40  # with leading zeros; longer ones cannot be meant as numbers
_SHOWN_BYTES = 60
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029\ud800-\udfff]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: `line` is its own bytes without the newline, `items` their meaning; None for an unknown act."""

    id: int
    act: int
    line: bytes
    items: Items | None

    @property
    def keys(self) -> list[str] | None:
        """The keys that it sets or removes, in its own order; None for an unknown act."""
        return None if self.items is None else list(self.items)

    @property
    def head(self) -> bytes:
        return self.line[: -len(self.items_json)]

    @property
    def items_json(self) -> bytes:
        return self.line.split(b",", 2)[2]


def index_of(entry_id: int) -> int:
    return entry_id // RANDOM


def shown(text: bytes) -> str:
    start = repr(text[:_SHOWN_BYTES])[1:]
    return start if len(text) <= _SHOWN_BYTES else f"{start}… ({len(text)} bytes)"


def canonical_head(entry_id: int, act: int) -> bytes:
    """Return a line up to its items, as dister writes it."""
    return b"%d,%d," % (entry_id, act)


def decode_line(line: bytes) -> Entry:
    """Return the entry in `line`, which has no newline.

    If a key occurs twice, the last one counts; half of a surrogate pair becomes U+FFFD, as in Go. Raises CorruptRecord,
    without an offset, for anything else than an entry: another form, numbers out of range, items that are not JSON, or
    not the strings that the act requires.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise _corrupt("the line is no entry", "<id>,<act>,<items>", line)
    entry_id = _number(match["id"], MAX_ID, "id", line)
    act = _number(match["act"], MAX_ACT, "act", line)
    return Entry(entry_id, act, line, decode_items(act, match["items"]))


def encode_line(entry_id: int, act: int, items: Mapping[str, str] | Sequence[str]) -> bytes:
    """Return the line with its newline, byte for byte as Go's encoder makes it: keys sorted, no spaces."""
    if isinstance(items, Mapping):
        pairs = (f"{_quoted(key)}:{_quoted(items[key])}" for key in sorted(items))
        json_text = "{" + ",".join(pairs) + "}"
    else:
        json_text = "[" + ",".join(map(_quoted, items)) + "]"
    return canonical_head(entry_id, act) + json_text.encode() + b"\n"


def _number(digits: bytes, most: int, what: str, line: bytes) -> int:
    if len(digits) > _MAX_DIGITS or int(digits) > most:
        raise _corrupt(f"the {what} is out of range", f"{most} at most", line)
    return int(digits)


def decode_items(act: int, text: bytes) -> Items | None:
    """Return the meaning of an entry's items; None for an unknown act. Raises CorruptRecord as `decode_line` does."""
    found = _json(text)
    if act == ACT_SET:
        if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
            return {_readable(key): _readable(value) for key, value in found.items()}
        raise _corrupt("the items of a set are no strings by key", "a JSON object of strings", text)
    if act == ACT_REMOVE:
        if isinstance(found, list) and all(isinstance(key, str) for key in found):
            return [_readable(key) for key in found]
        raise _corrupt("the items of a remove are no keys", "a JSON array of strings", text)
    return None


def _json(text: bytes) -> Any:
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError and a JSONDecodeError are ValueErrors
        raise _corrupt("the items are no JSON", f"JSON in UTF-8: {error}", text) from error


def loads(text: bytes) -> Any:
    """Parse JSON in UTF-8, without NaN and Infinity, which it has not. Raises ValueError, RecursionError."""
    return json.loads(text.decode(), parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _readable(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


def _quoted(text: str) -> str:
    escaped = _ESCAPED.sub(lambda found: _escape(found[0]), text)
    return f'"{escaped}"'


def _escape(character: str) -> str:
    if _LONE_SURROGATE.fullmatch(character):
        return "\\ufffd"
    return _SHORT_ESCAPES.get(character, f"\\u{ord(character):04x}")


def _corrupt(problem: str, expected: str, found: bytes) -> CorruptRecord:
    return CorruptRecord(problem, expected=expected, found=shown(found))
