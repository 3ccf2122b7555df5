"""Starting on a log that is there: its end, its queues, and what a crash left behind."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sources.errors import CorruptRecord, SegmentError
from tests import truth
from tests.sources.rocketmq.embedded.stores import (
    FILE_BYTES,
    log_bytes,
    messages_of,
    open_store,
    put,
    put_of_size,
    records_of,
)

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


def test_everything_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for n in range(60):
            store.append([put(bytes(n), topic=f"T{n % 2}", queue_id=n % 3)])
        end, first_ms = store.max_offset, store.first_timestamp_ms
    with open_store(tmp_path) as store:
        assert (store.min_offset, store.max_offset, store.flushed_offset) == (0, end, end)
        assert store.first_timestamp_ms == first_ms
        assert sorted(store.queues) == [(f"T{t}", q) for t in range(2) for q in range(3)]
        (stored,) = store.append([put(topic="T1", queue_id=2)])
        assert (stored.offset, stored.queue_offset) == (end, 10)
        again = store.max_offset
    times = [m.store_timestamp_ms for m in messages_of(tmp_path, again)]
    assert times == sorted(times)


def test_a_clock_that_stands_behind_the_log_does_not_turn_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 5_000 * 1_000_000)
    filled(tmp_path)
    monkeypatch.setattr("time.time_ns", lambda: 4_000 * 1_000_000)
    with open_store(tmp_path) as store:
        store.append([put()])
        end = store.max_offset
    assert [m.store_timestamp_ms for m in messages_of(tmp_path, end)][-1] == 5_000


@pytest.mark.parametrize(
    "cut",
    [
        cut if cut < 9 or cut % 8 == 0 or cut > LAST_RECORD_BYTES - 9 else pytest.param(cut, marks=pytest.mark.soak)
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


@pytest.mark.parametrize("lost", range(4, LAST_RECORD_BYTES, 7))
def test_a_record_without_its_first_bytes_is_cut_off(tmp_path: Path, lost: int) -> None:
    """Pages reach the disk in any order. Its first three bytes are zeros anyway."""
    end = filled(tmp_path)
    whole = end - LAST_RECORD_BYTES
    overwrite(tmp_path, whole, bytes(lost))
    with open_store(tmp_path) as store:
        assert store.max_offset == whole
        assert not any(log_bytes(tmp_path)[whole:])


def test_a_size_that_reaches_past_the_file_is_cut_off(tmp_path: Path) -> None:
    end = filled(tmp_path)
    overwrite(tmp_path, end - LAST_RECORD_BYTES, FILE_BYTES.to_bytes(4, "big"))
    with open_store(tmp_path) as store:
        assert store.max_offset == end - LAST_RECORD_BYTES


def test_the_only_record_of_a_queue_cut_off_leaves_its_queue_empty(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.append([put(topic="new", queue_id=1)])
        end = store.max_offset
    overwrite(tmp_path, end - 1, b"\0")
    with open_store(tmp_path) as store:
        assert (store.max_offset, store.queues) == (0, ())
        assert store.append([put(topic="new", queue_id=1)])[0].queue_offset == 0


def test_a_log_of_one_blank_goes_on_in_the_next_file(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    overwrite(tmp_path, 0, FILE_BYTES.to_bytes(4, "big") + bytes.fromhex("cbd43194"))
    with open_store(tmp_path) as store:
        assert (store.max_offset, store.queues) == (FILE_BYTES, ())


@pytest.mark.parametrize("kept", range(1, 8))
def test_half_of_a_blanks_head_is_cut_off(tmp_path: Path, kept: int) -> None:
    with open_store(tmp_path) as store:
        store.append([put_of_size(FILE_BYTES - 300)])
        end = store.max_offset
    head = (300).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    overwrite(tmp_path, end, head[:kept])
    with open_store(tmp_path) as store:
        assert store.max_offset == end
        assert store.append([put_of_size(200)])[0].offset == end


def test_a_blank_without_a_next_file_is_the_end(tmp_path: Path) -> None:
    """The crash came between the blank and the file after it."""
    filled(tmp_path, records=1)
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    with open_store(tmp_path) as store:
        assert store.max_offset == FILE_BYTES
        assert store.append([put()])[0].offset == FILE_BYTES


def test_an_empty_last_file_is_no_file(tmp_path: Path) -> None:
    """The crash came while the file was made."""
    end = filled(tmp_path)
    (tmp_path / "commitlog" / f"{2 * FILE_BYTES:020d}").touch()
    with open_store(tmp_path) as store:
        assert store.max_offset == end
        (stored,) = store.append([put_of_size(FILE_BYTES - 8)])
        assert stored.offset == 2 * FILE_BYTES


def test_a_file_made_ahead_is_used(tmp_path: Path) -> None:
    end = filled(tmp_path)
    (tmp_path / "commitlog" / f"{2 * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    with open_store(tmp_path) as store:
        assert store.max_offset == end
        store.append([put_of_size(FILE_BYTES - 8)])
        end = store.max_offset
    assert len(records_of(tmp_path, end)) == 2 + 3 + 2


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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for _ in range(3):
            store.append([put_of_size(FILE_BYTES - 8)])
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    with pytest.raises(SegmentError, match=f"{FILE_BYTES:020d}"), open_store(tmp_path):
        pass


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
