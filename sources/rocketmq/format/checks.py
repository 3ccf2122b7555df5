"""What must hold of a record, and the errors if it does not. Each check raises CorruptRecord or nothing.

All readers of records, one at a time or many, take their errors' words from here.
"""

from __future__ import annotations

from sources.errors import ChecksumMismatch, CorruptRecord
from sources.rocketmq.format.bodies import body_crc
from sources.rocketmq.format.layout import BLANK, DEFAULT_LIMITS, HEAD, V1, V2, Limits, minimum_size

_DAMAGED = "Compare with the broker's own file: either it is damaged too, or the bytes changed on their way here."


_NO_BOUNDARY = (
    "The offset is not a record boundary, or the log is not a plain commit log (DLedger's is not), or the file is "
    "damaged: compare it with the broker's own."
)


def _corrupt(problem: str, offset: int, expected: str, found: str, hint: str = _DAMAGED) -> CorruptRecord:
    return CorruptRecord(problem, offset=offset, expected=expected, found=found, hint=hint)


def check_head(size: int, magic: int, offset: int, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise CorruptRecord unless a record of this size and magic may start at `offset`."""
    if magic not in (V1, V2, BLANK):
        raise _no_record(size, magic, offset)
    # A blank may be larger than the record it made way for, by less than the 8 bytes of its own head.
    least, most = HEAD.size, limits.max_record_bytes + HEAD.size
    if magic != BLANK:
        least, most = minimum_size(magic, 0), limits.max_record_bytes
    found = f"{size} bytes"
    if size < least:
        raise _corrupt("the record's size is below the least a record has", offset, f"at least {least} bytes", found)
    if size > most:
        hint = "Raise max_record_bytes if the broker's maxMessageSize allows such records."
        raise _corrupt("the record exceeds the reader's size limit", offset, f"at most {most} bytes", found, hint)
    if magic == BLANK and limits.files is not None:
        left = limits.files.end_after(offset) - offset
        if size != left:
            raise _corrupt("the blank record does not end at the end of its file", offset, f"{left} bytes", found)


def _no_record(size: int, magic: int, offset: int) -> CorruptRecord:
    found, hint = f"magic 0x{magic & 0xFFFFFFFF:08X}", _NO_BOUNDARY
    if size == 0 and magic == 0:
        found, hint = "zeros, so nothing was written", "The log ends at or before this offset; ask for less."
    expected = "magic 0xDAA320A7 (V1), 0xDAA320AB (V2) or 0xCBD43194 (blank)"
    return _corrupt("no record starts here", offset, expected, found, hint)


def check_place(place: int, offset: int) -> None:
    if place != offset:
        hint = "A file has the wrong name or stands in the wrong log, or the record is damaged."
        expected, found = f"physical offset {offset}", f"physical offset {place}"
        raise _corrupt("the record is not in its place", offset, expected, found, hint)


def check_size(size: int, least: int, offset: int) -> None:
    if size < least:
        problem = "the record is too small for the hosts its sys_flag names"
        raise _corrupt(problem, offset, f"at least {least} bytes", f"{size} bytes")


def check_room(name: str, size: int, left: int, offset: int) -> None:
    if not 0 <= size <= left:
        raise _corrupt(f"the {name} does not fit into its record", offset, f"0 to {left} bytes", f"{size} bytes")


def check_sum(size: int, parts: int, offset: int) -> None:
    if size != parts:
        raise _corrupt("the record's size is not the sum of its parts", offset, f"{parts} bytes", f"{size} bytes")


def check_crc(body: bytes, crc: int, offset: int) -> None:
    """Raise ChecksumMismatch unless `body` has this CRC."""
    computed = body_crc(body)
    if computed != crc:
        raise ChecksumMismatch(
            "the body does not match its CRC",
            offset=offset,
            expected=f"CRC-32 {crc} as stored",
            found=f"CRC-32 {computed}",
            hint=_DAMAGED,
        )


def checked_topic(topic: bytes, offset: int) -> str:
    """Return the topic's text. Raises CorruptRecord if it is not UTF-8."""
    try:
        return topic.decode()
    except UnicodeDecodeError as error:
        problem = "the topic is no UTF-8"
        raise CorruptRecord(problem, offset=offset, expected="UTF-8", found=repr(topic), hint=_DAMAGED) from error
