"""What is written goes to the disk early, and what the disk refuses is never passed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sinks.delta import files
from sinks.delta.files import EVERY_BYTES, EarlySync
from tests.patience import wait_until


@contextmanager
def early(path: Path) -> Iterator[EarlySync]:
    path.touch()
    sync = EarlySync(path)
    try:
        yield sync
    finally:
        sync.close()


def test_a_file_is_synced_each_time_it_has_grown_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with early(tmp_path / "file") as sync:
        sync.grown(EVERY_BYTES - 1)
        assert synced == []
        for times in (1, 2):
            sync.grown(times * EVERY_BYTES)
            wait_until(lambda: len(synced) == times, "the sync")  # noqa: B023 - waited for here
            sync.grown((times + 1) * EVERY_BYTES - 1)
            assert len(synced) == times


def test_nobody_waits_for_the_disk_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        assert slow.wait(20)
        synced.append(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with early(tmp_path / "file") as sync:
        for times in range(1, 5):
            sync.grown(times * EVERY_BYTES)  # the first is still under way
        assert synced == []
        slow.set()
    assert len(synced) == 1


def test_what_the_disk_refused_is_an_error_at_the_latest_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    (tmp_path / "file").touch()
    sync = EarlySync(tmp_path / "file")
    sync.grown(EVERY_BYTES)
    with pytest.raises(OSError, match="Input/output error"):
        sync.close()
    sync.close()


def test_sync_reaches_a_file_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    (tmp_path / "file").touch()
    files.sync(tmp_path / "file")
    files.sync(tmp_path)
    assert synced == [str(tmp_path / "file"), str(tmp_path)]
