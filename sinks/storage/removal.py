"""Remove many files of one folder: on S3 with few requests, elsewhere one by one. Driver only.

Arrow makes three requests to S3 for each file: whether it is there, to remove it, and to put a marker of the folder,
which may be empty now. S3 has a request for many names, which Hadoop uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sinks.delta.java_names import java_names
from sinks.storage.hadoop import renew_keys
from sinks.storage.place import Place, placed
from sinks.storage.settings import S3


def remove_files(
    spark: SparkSession | None, folder: str, names: Sequence[str], *, past_what_resists: bool = False
) -> None:
    """Remove the files `names` in `folder`, in their order; missing ones are skipped.

    On S3, with a session, a request removes some hundreds, in an order that the store decides. Raises OSError if a file
    cannot be removed, and leaves those after it; with `past_what_resists` it leaves only that file, and does not raise.
    """
    place = placed(folder)
    bulk = _Bulk(spark, place) if place.scheme in S3 and spark is not None else _OneByOne(place)
    for at in range(0, len(names), bulk.at_once):
        try:
            bulk.remove(names[at : at + bulk.at_once])
        except OSError:
            if not past_what_resists:
                raise


class _OneByOne:
    at_once = 1

    def __init__(self, place: Place) -> None:
        self._filesystem, inner = place.open()
        self._folder = inner.rstrip("/")

    def remove(self, names: Sequence[str]) -> None:
        """Remove `names`. Raises OSError."""
        for name in names:
            with suppress(FileNotFoundError):  # another process has removed it
                self._filesystem.delete_file(f"{self._folder}/{name}")


class _Bulk:
    def __init__(self, spark: SparkSession, place: Place) -> None:
        """Raises OSError."""
        renew_keys(spark.sparkContext)
        self._java: Any = java_names(spark)
        self._folder = str(place)
        with _as_os_error():
            base = self._path(self._folder)
            self._removal = base.getFileSystem(spark._jsc.hadoopConfiguration()).createBulkDelete(base)
            self.at_once = int(self._removal.pageSize())

    def remove(self, names: Sequence[str]) -> None:
        """Remove `names`. Raises OSError if some are left."""
        with _as_os_error():
            left = self._removal.bulkDelete([self._path(f"{self._folder}/{name}") for name in names])
        if not left.isEmpty():
            raise OSError(f"{left.size()} files of {self._folder} cannot be removed: {left.get(0).getValue()}")

    def _path(self, text: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(text)


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise OSError(str(error.java_exception.toString())) from error
