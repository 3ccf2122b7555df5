"""Segment files that no client of today writes, handed out by real brokers: old formats, odd times, a bomb."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from sources.errors import CorruptRecord
from sources.kafka.format.columns import canonical
from sources.master import Chunk, Damage
from sources.offsets import Offset, OffsetRange
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_reading import partition_of, pieces_of
from tests.peers.kafka_traffic import create_topic
from tests.sources.kafka.batches import GZIP, SNAPPY, Sent, Written, decoded, written
from tests.sources.kafka.test_damage import of_headers
from tests.sources.kafka.test_old_messages import SENT, old

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

TOPIC = "odd"
NANOSECONDS = 1_795_000_000_000_000_000
SOUND = (
    old(0, magic=0) + old(4, magic=0, compression=GZIP) + old(8) + old(12, compression=SNAPPY)
    + bytes(Written(16, (Sent(value=b"before"), Sent(1, timestamp_ms=NANOSECONDS), Sent(2, value=b"behind"))))
)  # fmt: skip
BOMB = of_headers(10_000_000, base_offset=19)
LAST = bytes(written(20, b"last"))
ALL = OffsetRange(Offset(0), Offset(21))


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """With the log SOUND + BOMB + LAST."""
    with KafkaBroker(request.param, tmp_path_factory.mktemp(f"odd-{request.param}")) as running:
        create_topic(running, TOPIC)
        running.stop()
        folder = running.partition_folder(TOPIC, 0)
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        (folder / f"{0:020d}.log").write_bytes(SOUND + BOMB + LAST)
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (running.data / name).unlink(missing_ok=True)
        running.start()
        yield running


def test_old_formats_and_odd_times_are_rows_and_a_bomb_is_named_before_it_goes_off(broker: KafkaBroker) -> None:
    partition = partition_of(broker, TOPIC)
    assert partition.bounds() == ALL
    found = b""
    with pytest.raises(CorruptRecord, match=r"offset 19: .*10000000 headers at once"):
        for piece in pieces_of(partition, ALL):
            assert isinstance(piece, Chunk)
            found += bytes(piece.raw)
    expected = decoded(SOUND).records
    assert len(expected) == 4 * len(SENT) + 3
    assert found == canonical(expected)
    assert struct.pack(">q", NANOSECONDS) in found


def test_where_damage_may_be_passed_the_bomb_is_kept_as_it_is_stored(broker: KafkaBroker) -> None:
    *before, damage, last = pieces_of(partition_of(broker, TOPIC, past_damage=True), ALL)
    assert isinstance(damage, Damage)
    assert isinstance(last, Chunk)
    assert before[-1].covered.end == 19
    assert (damage.covered, bytes(damage.raw or b"")[8:]) == (OffsetRange(Offset(19), Offset(20)), BOMB[8:])
    assert last.records.column("value").to_pylist() == [b"last"]
