"""What goes into the log, and where: against the specification's rules and real brokers' bytes; and topics."""

import errno
import json
import logging
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from sources.errors import ConfigurationError, CorruptRecord
from sources.offsets import Offset
from sources.rocketmq.embedded.remoting_service import Refused
from sources.rocketmq.embedded.store import Put
from sources.rocketmq.embedded.topics import TopicTable
from sources.rocketmq.format.commitlog import Blank, Message
from tests import truth
from tests.sources.rocketmq.embedded.stores import (
    FILE_BYTES,
    log_bytes,
    open_store,
    put,
    put_of_size,
    records_of,
)
from tests.sources.rocketmq.records import BATCH_ITEM_533, HELLO_533, VECTORS, Vector

BLANK_MAGIC = 0xCBD43194


def freeze(monkeypatch: pytest.MonkeyPatch, now_ms: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)


def put_again(message: Message) -> Put:
    """What a producer sent for `message` to be stored as it is."""
    names = (
        "topic", "queue_id", "body", "properties", "born_host", "born_timestamp_ms", "flag", "sys_flag",
        "reconsume_times",
    )  # fmt: skip
    return Put(**{name: getattr(message, name) for name in names})


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if vector.stored in (HELLO_533, BATCH_ITEM_533)])
def test_the_bytes_are_a_real_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vector: Vector) -> None:
    """Records of a broker at port 20911, at offsets 0 and 0x4C9, the first ones of their queues."""
    message = vector.message
    freeze(monkeypatch, message.store_timestamp_ms)
    with open_store(tmp_path) as store:
        if message.offset:
            store.append([put_of_size(message.offset)])
        store.append([put_again(message)])
    assert log_bytes(tmp_path)[message.offset : message.offset + len(vector.stored)] == vector.stored


@pytest.mark.parametrize("left", [8, 9, 150, 207])
def test_a_record_that_does_not_fit_with_a_blank_behind_it_goes_to_the_next_file(tmp_path: Path, left: int) -> None:
    """`record length + 8 > bytes left`; the blank says how many bytes are left and has magic 0xCBD43194."""
    with open_store(tmp_path) as store:
        store.append([put_of_size(FILE_BYTES - left)])
        (stored,) = store.append([put_of_size(200)])
        end = store.max_offset
    with open_store(tmp_path / "other") as store:
        store.append([put_of_size(FILE_BYTES - 208)])
        assert store.append([put_of_size(200)])[0].offset == FILE_BYTES - 208  # a blank's head just fits behind it
    assert (stored.offset, end) == (FILE_BYTES, FILE_BYTES + 200)
    assert struct.unpack_from(">iI", log_bytes(tmp_path), FILE_BYTES - left) == (left, BLANK_MAGIC)
    assert records_of(tmp_path, end)[1] == Blank(Offset(FILE_BYTES - left), left, bytes(left - 8))


def test_files_too_small_for_the_messages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too small") as error, open_store(tmp_path, max_message_bytes=4000):
        pass
    assert (error.value.expected, error.value.found) == ("files of at least 4099 bytes", "4096 bytes")


@pytest.mark.parametrize(("broken", "filler"), [("pwrite", 1000), ("ftruncate", FILE_BYTES - 100)])
def test_a_full_disk_moves_nothing_and_a_later_attempt_succeeds(tmp_path: Path, broken: str, filler: int) -> None:
    """Whether the record does not get in, or the next file."""
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with open_store(tmp_path) as store:
        store.append([put_of_size(filler)])
        before = store.max_offset
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(os, broken, full)
            store.append([put_of_size(200)])
        assert store.max_offset in (before, FILE_BYTES)
        (stored,) = store.append([put_of_size(200)])
        assert stored.queue_offset == 1
        end = store.max_offset
    assert [record.size for record in records_of(tmp_path, end) if isinstance(record, Message)] == [filler, 200]


def test_flushed_is_what_was_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    with open_store(tmp_path) as store:
        store.append([put_of_size(FILE_BYTES - 100)])
        assert (store.flushed_offset, synced) == (0, [])
        store.append([put_of_size(200)])  # goes to the next file, so the first one is flushed
        assert (store.flushed_offset, len(synced)) == (FILE_BYTES, 1)
        store.flush()
        assert (store.flushed_offset, len(synced)) == (store.max_offset, 2)
        store.flush()
        assert len(synced) == 2
    assert len(set(synced)) == 2


def test_a_second_master_cannot_have_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(ConfigurationError, match="in use"), open_store(tmp_path):
        pass
    with open_store(tmp_path) as store:
        assert store.is_empty


# topics: created, refused, kept


def code_of(table: TopicTable, name: str, queues: int = 4) -> int:
    with pytest.raises(Refused) as refused:
        table.for_sending(name, queues)
    return refused.value.code


def test_the_topics_of_a_real_broker(fixture_550: truth.Fixture, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes((fixture_550.path / "config" / "topics.json").read_bytes())
    table = TopicTable(path)
    assert table.to_json() == json.loads(path.read_text())
    assert table.for_sending("telemetry", 1).queues == 8
    assert code_of(table, "inner-batch") == 13


# starting on a log that is there: its end, its queues, and what a crash left behind


LAST_RECORD_BYTES = 140


def overwrite(root: Path, offset: int, data: bytes) -> None:
    start = offset - offset % FILE_BYTES
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(offset - start)
        file.write(data)


def filled(root: Path, *, records: int = 3) -> int:
    """A log with a full file, a blank, and `records` records of 140 bytes in the next file; its end."""
    with open_store(root) as store:
        store.append([put_of_size(FILE_BYTES - 50)])
        for _ in range(records):
            store.append([put_of_size(LAST_RECORD_BYTES)])
        return store.max_offset


@pytest.mark.parametrize("cut", [1, 2, 9, 52, 53, 132, 133, 136])
def test_a_record_without_its_last_bytes_is_cut_off(tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    end = filled(tmp_path)
    whole = end - LAST_RECORD_BYTES
    overwrite(tmp_path, end - cut, bytes(cut))
    with caplog.at_level(logging.WARNING), open_store(tmp_path) as store:
        assert f"at offset {whole}" in caplog.text
        assert store.max_offset == whole
        assert not any(log_bytes(tmp_path)[whole:])
        (stored,) = store.append([put()])
        assert (stored.offset, stored.queue_offset) == (whole, 3)


def test_a_size_that_reaches_past_the_file_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = filled(tmp_path)
    overwrite(tmp_path, end - LAST_RECORD_BYTES, FILE_BYTES.to_bytes(4, "big"))
    with open_store(tmp_path) as store:
        assert store.max_offset == end - LAST_RECORD_BYTES
    assert "the record reaches past the end of its file" in caplog.text
    with open_store(tmp_path / "one") as store:
        store.append([put()])
        end = store.max_offset
    overwrite(tmp_path / "one", end - 1, b"\0")
    with open_store(tmp_path / "one") as store:
        assert (store.max_offset, store.queues) == (0, ())  # nor is a queue left


def flip(root: Path, offset: int) -> None:
    overwrite(root, offset, bytes((log_bytes(root)[offset] ^ 0xFF,)))


@pytest.mark.parametrize(
    ("damage", "offset"),
    [
        (lambda root: flip(root, FILE_BYTES + LAST_RECORD_BYTES + 100), FILE_BYTES + LAST_RECORD_BYTES),
        (lambda root: flip(root, FILE_BYTES + 5), FILE_BYTES),
        (lambda root: flip(root, 2000), 0),
        (lambda root: overwrite(root, FILE_BYTES - 50, bytes(8)), FILE_BYTES - 50),
    ],
    ids=[
        "a body before the last record",
        "a magic before the last record",
        "an earlier file",
        "the blank before a file",
    ],
)
def test_damage_with_sound_records_behind_it_is_not_cut_off(
    tmp_path: Path, damage: Callable[[Path], None], offset: int
) -> None:
    filled(tmp_path)
    damage(tmp_path)
    before = log_bytes(tmp_path)
    with pytest.raises(CorruptRecord) as error, open_store(tmp_path):
        pass
    assert error.value.offset == offset
    assert error.value.log == str(tmp_path / "commitlog")
    assert log_bytes(tmp_path) == before


def test_the_log_of_a_real_broker_is_gone_on_with(fixture_550: truth.Fixture, tmp_path: Path) -> None:
    """Every queue's next offset is the number of entries in the broker's own consume queue."""
    store_path = tmp_path / "store"
    shutil.copytree(fixture_550.commitlog_path, store_path / "commitlog")
    with open_store(store_path) as store:
        assert store.file_size_bytes == 1024 * 1024
        assert store.max_offset == fixture_550.max_offset
        queues = {(queue["topic"], queue["queue_id"]): len(queue["entries"]) for queue in fixture_550.consume_queues}
        for (topic, queue_id), count in queues.items():
            (stored,) = store.append([put(topic=topic, queue_id=queue_id)])
            assert (topic, queue_id, stored.queue_offset) == (topic, queue_id, count)
        end = store.max_offset
    records = records_of(store_path, end)
    assert len(records) == len(fixture_550.rows) + len(queues)
    assert log_bytes(store_path)[: fixture_550.max_offset] == fixture_550.log
