"""Starting on a log that is there: its end, its queues, and what a crash left behind."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sources.errors import CorruptRecord
from tests import truth
from tests.sources.rocketmq.embedded.stores import FILE_BYTES, log_bytes, open_store, put, put_of_size, records_of

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


@pytest.mark.parametrize(
    "cut",
    [
        cut if cut in (1, 2, 9, 52, 53, 132, 133, 136) else pytest.param(cut, marks=pytest.mark.soak)
        for cut in range(1, LAST_RECORD_BYTES - 3)
    ],
)
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


def test_the_only_record_of_a_queue_cut_off_leaves_no_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append([put()])
        end = store.max_offset
    overwrite(tmp_path, end - 1, b"\0")
    with open_store(tmp_path) as store:
        assert (store.max_offset, store.queues) == (0, ())


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


def test_the_log_of_a_real_broker_is_gone_on_with(fixture_log: truth.Fixture, tmp_path: Path) -> None:
    """Every queue's next offset is the number of entries in the broker's own consume queue."""
    store_path = tmp_path / "store"
    shutil.copytree(fixture_log.commitlog_path, store_path / "commitlog")
    with open_store(store_path) as store:
        assert store.file_size_bytes == 1024 * 1024
        assert store.max_offset == fixture_log.max_offset
        queues = {(queue["topic"], queue["queue_id"]): len(queue["entries"]) for queue in fixture_log.consume_queues}
        for (topic, queue_id), count in queues.items():
            (stored,) = store.append([put(topic=topic, queue_id=queue_id)])
            assert (topic, queue_id, stored.queue_offset) == (topic, queue_id, count)
        end = store.max_offset
    records = records_of(store_path, end)
    assert len(records) == len(fixture_log.rows) + len(queues)
    assert log_bytes(store_path)[: fixture_log.max_offset] == fixture_log.log
