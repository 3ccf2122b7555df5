"""The version files of a Delta log, on a local disk and on another file system."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sinks.delta import version_files
from sinks.delta.version_files import VersionFiles
from sinks.storage.place import Place

pytestmark = pytest.mark.spark


@pytest.fixture(params=["local", "remote"])
def files(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> VersionFiles:
    """Of a table that is not there: on the local disk, and on what only Hadoop reads."""
    if request.param == "remote":
        monkeypatch.setattr(version_files, "placed", lambda path: Place("hdfs", "nn", path))
    return VersionFiles(spark, f"file://{tmp_path}/a table")


def written(folder: Path, version: int, text: str) -> Path:
    path = folder / f"a table/_delta_log/{version:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_version_is_there_when_its_file_is(files: VersionFiles, tmp_path: Path) -> None:
    assert (files.stamp(7), files.is_there(7)) == (None, False)
    path = written(tmp_path, 7, "{}")
    assert files.is_there(7)
    assert files.stamp(7) is not None
    assert (files.stamp(8), files.is_there(8)) == (None, False)
    path.unlink()
    assert (files.stamp(7), files.is_there(7)) == (None, False)
    path.parent.rmdir()
    path.parent.touch()
    assert (files.stamp(7), files.is_there(7)) == (None, False)


def test_a_stamp_tells_a_file_from_another_in_its_place(files: VersionFiles, tmp_path: Path) -> None:
    path = written(tmp_path, 7, "{}")
    os.utime(path, (1000, 1000))
    stamp = files.stamp(7)
    assert files.stamp(7) == stamp
    os.utime(path, (1000, 1001))
    assert files.stamp(7) not in (None, stamp)
    (tmp_path / "copy").write_text("{ }")
    (tmp_path / "copy").rename(path)
    os.utime(path, (1000, 1000))
    assert files.stamp(7) not in (None, stamp)


def test_what_cannot_be_asked_is_not_taken_for_absent(spark: SparkSession) -> None:
    files = VersionFiles(spark, "gs://bucket/twin")
    for look in (files.stamp, files.is_there):
        with pytest.raises(Py4JJavaError, match="GoogleHadoopFileSystem not found"):
            look(7)


def test_one_at_a_time_on_a_local_disk(spark: SparkSession, tmp_path: Path) -> None:
    """Also where each has files of its own, as two processes have."""
    entered = threading.Event()

    def enter() -> None:
        with VersionFiles(spark, str(tmp_path)).alone():
            entered.set()

    with ThreadPoolExecutor(1) as pool:
        with VersionFiles(spark, str(tmp_path)).alone():
            second = pool.submit(enter)
            assert not entered.wait(0.3)
        second.result(20)


def test_a_file_its_checksum_and_their_folder_are_synced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(version_files, "sync", lambda path: synced.append(path.name))
    path = written(tmp_path, 7, "{}")
    files = VersionFiles(spark, f"{tmp_path}/a table")
    files.sync(7)
    assert synced == [path.name, "_delta_log"]
    path.with_name(f".{path.name}.crc").touch()
    files.sync(7)
    assert synced[2:] == [path.name, f".{path.name}.crc", "_delta_log"]


def test_on_another_file_system_nothing_is_locked_or_synced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_files, "placed", lambda path: Place("hdfs", "nn", path))
    files = VersionFiles(spark, f"file://{tmp_path}/a table")
    with files.alone():
        files.sync(7)
    assert list(tmp_path.iterdir()) == []
