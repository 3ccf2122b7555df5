"""The record CRC that brokers from 5.2.0 on append with enabledAppendPropCRC (default: off), verified by few.

It is the last 20 bytes of the properties: name ``__CRC32#``, 0x01, ten decimal digits, 0x02. The digits are CRC-32, top
bit cleared, of the whole record without these 20 bytes but with its final size, **least significant digit first**.
Source: org.apache.rocketmq.store.CommitLog and .common.UtilAll (crc32, encode of it), 5.2.0 and later.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from isal.isal_zlib import crc32

from sources.offsets import Offset
from sources.rocketmq.format.commitlog import Message, decode, encode
from sources.rocketmq.format.layout import CRC_BITS, LEAD, Lead
from sources.rocketmq.format.properties import CRC32, PROPERTY_SEPARATOR

_RECORD_CRC = re.compile(CRC32.encode() + rb"\x01(\d{10})\x02")
RECORD_CRC_BYTES: Final = 20


def append_record_crc(record: bytes) -> bytes:
    """An encoded message record -> the same with its record CRC as last property. Raises ValueError where that does
    not fit."""
    message = decode(record, 0, Offset(Lead._make(LEAD.unpack_from(record)).offset))
    if not isinstance(message, Message):
        raise ValueError("only a whole message record can carry a record CRC")
    end = b"" if not message.properties or message.properties.endswith(PROPERTY_SEPARATOR) else PROPERTY_SEPARATOR
    grown = encode(replace(message, properties=message.properties + end + bytes(RECORD_CRC_BYTES)))[:-RECORD_CRC_BYTES]
    return grown + CRC32.encode() + b"\x01" + _crc_digits(grown) + PROPERTY_SEPARATOR


def verify_record_crc(record: bytes | memoryview) -> bool | None:
    """Whether an encoded message record has the record CRC it carries; None where it carries none."""
    match = _RECORD_CRC.fullmatch(record[-RECORD_CRC_BYTES:])
    return None if match is None else match[1] == _crc_digits(record[:-RECORD_CRC_BYTES])


def _crc_digits(record: bytes | memoryview) -> bytes:
    return f"{crc32(record) & CRC_BITS:010d}"[::-1].encode()
