"""Many files of one folder removed: on S3 by few requests, elsewhere one by one. Driver only.

Arrow asks S3 three times for each: whether it is there, to remove it, and to put a marker of the folder that may be
empty now. S3's own request takes many names, and Hadoop knows it.
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
    """Remove what is there of `names`, in their order; on S3, with a session, some hundreds in a request, within which
    the order is the store's own.

    Raises OSError where one cannot be removed, and leaves what comes after it; `past_what_resists` leaves only that.
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
        """Raises OSError."""
        for name in names:
            with suppress(FileNotFoundError):  # somebody else was faster
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
        """Raises OSError where some are left."""
        some = self._java.java.util.ArrayList()
        for name in names:
            some.add(self._path(f"{self._folder}/{name}"))
        with _as_os_error():
            left = self._removal.bulkDelete(some)
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
