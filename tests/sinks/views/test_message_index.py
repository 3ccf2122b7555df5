"""The index as the brokers built it, entry for entry; and messages found by it."""

import struct
from collections.abc import Iterator

import pytest

from sinks.tables import LOG
from tests.sinks.views.lake import Asked
from tests.sinks.views.made_logs import message
from tests.truth import Fixture

pytestmark = pytest.mark.spark

HEADER = struct.Struct(">qqqqii")  # first and last store time, first and last offset, slots in use, entries and one
ENTRY = struct.Struct(">iqii")  # hash of the key, offset, seconds since the first store time, the entry before it
SLOTS = 5000  # as the fixtures' brokers were configured


def index_entries(file: bytes) -> Iterator[tuple[int, int, int]]:
    """Hash, offset and store time in seconds after the first one, of every entry that is found through its slot."""
    for slot in range(SLOTS):
        (number,) = struct.unpack_from(">i", file, HEADER.size + 4 * slot)
        while number:
            hashed, offset, seconds, number = ENTRY.unpack_from(file, HEADER.size + 4 * SLOTS + ENTRY.size * number)
            assert hashed % SLOTS == slot
            yield hashed, offset, seconds


def key_hash(topic: str, key: str) -> int:
    """Math.abs of java.lang.String.hashCode of topic#key; 0 where that is negative."""
    units = memoryview(f"{topic}#{key}".encode("utf-16-le")).cast("H")
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) % 2**32
    return min(hashed, 2**32 - hashed) if hashed != 2**31 else 0


def tag_entries(fixture: Fixture) -> Iterator[tuple[int, int, int]]:
    """What a broker's index has beside keys, as hash, offset and store time: 5.5.0 puts T#tags of a topic there, too.

    That says nothing that the column tags does not say, and the view leaves it out.
    """
    for record in fixture.rows if fixture.version == "5.5.0" else ():
        if "TAGS" in record.get("properties", {}):
            hashed = key_hash(record["topic"], f"T#{record['properties']['TAGS']}")
            yield hashed, record["physical_offset"], record["store_timestamp"]


def test_it_equals_the_file_of_the_broker(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    (path,) = (fixture_log.path / "index").iterdir()
    file = path.read_bytes()
    begin_ms, _, _, _, _, count = HEADER.unpack_from(file)
    entries = sorted(index_entries(file))
    assert len(entries) == count - 1 > 5000
    found = [
        (key_hash(row["topic"], row["key"]), row["offset"], round(row["store_timestamp"].timestamp() * 1000))
        for row in asked.rows("message_index", log_id)
    ]
    found += tag_entries(fixture_log)
    assert sorted((hashed, offset, (ms - begin_ms) // 1000) for hashed, offset, ms in found) == entries


INDEXED = "rocketmq/indexed"
MADE_ROWS = {
    LOG: [
        message(0, log_id=INDEXED, properties={"KEYS": "a  b a", "UNIQ_KEY": "U0"}),
        message(100, log_id=INDEXED, sys_flag=4, properties={"UNIQ_KEY": "U1"}),
        message(200, log_id=INDEXED, sys_flag=8, properties={"KEYS": "c"}),
        message(300, log_id=INDEXED, sys_flag=12, properties={"KEYS": "d", "UNIQ_KEY": "U3"}),
        message(400, "SCHEDULE_TOPIC_XXXX", log_id=INDEXED, properties={"KEYS": "e"}),
        message(500, log_id=INDEXED),
    ]
}


def test_what_is_in_the_index(asked: Asked) -> None:
    """Half messages are, rollbacks are not; a key that is given twice has two entries."""
    rows = asked.rows("message_index", INDEXED)
    found = sorted((row["offset"], row["key"], row["is_unique_key"]) for row in rows)
    expected = [(0, "U0", True), (0, "a", False), (0, "a", False), (0, "b", False)]
    assert found == [*expected, (100, "U1", True), (200, "c", False), (400, "e", False)]
