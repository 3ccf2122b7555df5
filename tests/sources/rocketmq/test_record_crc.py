from __future__ import annotations

import pytest

from sources.errors import CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.format import commitlog
from tests import truth
from tests.sources.rocketmq.record_crc import append_record_crc, verify_record_crc
from tests.sources.rocketmq.records import HELLO_533, RECORD_CRC_533, VECTORS, message

WITHOUT = VECTORS[-1].message.properties[:-20]


def test_a_brokers_record_crc_is_verified() -> None:
    assert RECORD_CRC_533.endswith(b"__CRC32#\x017438826290\x02")  # 926288347, least significant digit first
    assert verify_record_crc(RECORD_CRC_533) is True


@pytest.mark.parametrize("at", [15, 47, 100, -21, -11])
def test_a_change_anywhere_shows(at: int) -> None:
    damaged = bytearray(RECORD_CRC_533)
    damaged[at] ^= 1
    assert verify_record_crc(bytes(damaged)) is False


def test_a_record_without_one() -> None:
    assert verify_record_crc(HELLO_533) is None


@pytest.mark.parametrize("properties", [WITHOUT, WITHOUT[:-1]], ids=["with", "without a last separator"])
def test_appending_makes_the_brokers_record(properties: bytes) -> None:
    without = message(**{**_fields(VECTORS[-1].message), "properties": properties})
    assert append_record_crc(commitlog.encode(without)) == RECORD_CRC_533


def test_no_separator_before_the_first_property() -> None:
    record = commitlog.decode(append_record_crc(commitlog.encode(message(properties=b""))), 0, Offset(0))
    assert isinstance(record, commitlog.Message)
    assert len(record.properties) == 20
    assert record.properties.startswith(b"__CRC32#\x01")


def test_every_record_crc_of_a_broker(fixture_log: truth.Fixture) -> None:
    log = fixture_log.log
    verdicts = [
        verify_record_crc(log[row["physical_offset"] : row["physical_offset"] + row["size"]])
        for row in fixture_log.rows
    ]
    assert verdicts.count(False) == 0
    assert verdicts.count(True) == {"4.9.7": 0, "5.5.0": 107}[fixture_log.version]


@pytest.mark.parametrize("record", [commitlog.encode(commitlog.Blank(Offset(0), 60, bytes(52))), HELLO_533[:-1]])
def test_only_a_whole_message_can_carry_one(record: bytes) -> None:
    with pytest.raises((ValueError, CorruptRecord)):
        append_record_crc(record)


def test_properties_without_room() -> None:
    with pytest.raises(ValueError, match="passes its width"):
        append_record_crc(commitlog.encode(message(properties=bytes(32760))))


def _fields(record: commitlog.Message) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__slots__}
