"""The files of a Delta log's versions, `_delta_log/N.json`: lock them, sync them, and tell one from another.

On a local disk the lock and the sync are done here. On any other file system, which Hadoop reaches, neither is needed.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sinks.delta.files import sync
from sinks.delta.java_names import is_not_found, java_names
from sinks.storage.place import placed

LOCK_FILE = "_logtwin.lock"  # VACUUM leaves names alone that begin with an underscore
_LOG_FOLDER = "_delta_log"


class VersionFiles:
    """The version files of the table at `path` (absolute, or a URI). Driver only; one thread at a time.

    Errors of Hadoop are raised as py4j and PySpark raise them, those of a local disk as OSError.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._path = path.rstrip("/")
        self._folder = placed(path).local
        self._context = spark.sparkContext
        self._names = java_names(spark)
        self._configuration = spark._jsc.hadoopConfiguration()

    @property
    def are_remote(self) -> bool:
        return self._folder is None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """On a local disk, hold the lock that allows one commit at a time, across processes.

        Kernel writes a version there as Hadoop does: it checks whether the file exists, renames it into place, and
        renames its checksum, if it has one. Two writers that interleave leave one's file with the other's checksum,
        which nobody can read. S3 puts if absent when told to (`conditional_commits.py`), other stores and HDFS do so by
        themselves.
        """
        if self._folder is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / LOCK_FILE).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield  # closing the file gives the lock back, as does a kill

    def sync(self, version: int) -> None:
        """On a local disk, sync the commit, and Hadoop's checksum if it has one, before anything is acknowledged."""
        if self._folder is None:
            return
        log = self._folder / _LOG_FOLDER
        for name in (_name(version), f".{_name(version)}.crc"):
            if (log / name).exists():
                sync(log / name)
        sync(log)

    def stamp(self, version: int) -> tuple[int, ...] | None:
        """A value that tells the file of a version from another one in its place; None if there is no file."""
        if self._folder is None:
            return self._remote_stamp(version)
        try:
            found = (self._folder / _LOG_FOLDER / _name(version)).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_mtime_ns

    def is_there(self, version: int) -> bool:
        """Whether a version has a file. For versions that rarely exist: `stamp` would cost a JVM exception, 8 ms."""
        if self._folder is not None:
            return self.stamp(version) is not None
        path = self._remote(version)
        return bool(path.getFileSystem(self._configuration).exists(path))

    def _remote_stamp(self, version: int) -> tuple[int, ...] | None:
        path = self._remote(version)
        try:
            found = path.getFileSystem(self._configuration).getFileStatus(path)
        except Py4JJavaError as error:
            if is_not_found(error, self._context):
                return None
            raise
        return int(found.getModificationTime()), int(found.getLen())

    def _remote(self, version: int) -> Any:
        return self._names.org.apache.hadoop.fs.Path(f"{self._path}/{_LOG_FOLDER}/{_name(version)}")


def _name(version: int) -> str:
    return f"{version:020d}.json"
