"""A session without Spark: tables are PlainTables, and tasks run here, one after another.

It has what the code under test asks of a session, but no queries: who asks for one meets an AttributeError.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sinks.delta.kernel import KernelTable
from sinks.storage.place import placed
from tests.sinks.plain_table import PlainTable


class _Context:
    defaultParallelism = 2

    def setLocalProperty(self, name: str, value: str) -> None:
        """Tasks have no pools here."""

    def parallelize(self, shares: Sequence[Any], count: int) -> _Shares:
        assert len(shares) == count
        return _Shares(shares)


@dataclass(frozen=True, slots=True)
class _Shares:
    """An RDD of one partition for each share."""

    shares: Sequence[Any]
    work: Callable[[Any], Iterable[Any]] = iter

    def flatMap(self, work: Callable[[Any], Iterable[Any]]) -> _Shares:
        return _Shares(self.shares, work)

    def collect(self) -> list[Any]:
        """What the tasks make, each of a copy of what it is given, as in a worker. Raises PySparkException, which has
        the traceback of what ended a task.
        """
        try:
            return list(chain.from_iterable(copied(self.work)(copied(one)) for one in self.shares))
        except Exception:  # noqa: BLE001 - as a worker does
            raise PySparkException(traceback.format_exc()) from None


def copied(value: Any) -> Any:
    """As it is in a worker."""
    dumps: Any = cloudpickle.dumps
    return cloudpickle.loads(dumps(value))


@dataclass(frozen=True, slots=True)
class _Listed:
    """Hadoop's FileStatus, and the Path in it."""

    path: Path

    def getPath(self) -> _Listed:
        return self

    def getName(self) -> str:
        return self.path.name

    def isDirectory(self) -> bool:
        return self.path.is_dir()


class _Folder:
    """Hadoop's Path, and the file system that lists it."""

    def __init__(self, place: str) -> None:
        folder = placed(place).local
        assert folder is not None, f"{place} is not on this machine"
        self._listed = [_Listed(one) for one in folder.iterdir()] if folder.exists() else []

    def getFileSystem(self, _: object) -> _Folder:
        return self

    def listStatus(self, _: object) -> list[_Listed]:
        return self._listed


class PlainSession:
    sparkContext = _Context()
    _jsc = SimpleNamespace(hadoopConfiguration=lambda: None)


_JAVA = SimpleNamespace(
    org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=_Folder))))
)


def make_plain(patch: pytest.MonkeyPatch) -> SparkSession:
    """From now on every KernelTable is a PlainTable, until `patch` is undone; the session to make them with.

    Nothing is exchanged that a module imports by name: one that is imported meanwhile would keep it for good.
    """
    for name, value in vars(PlainTable).items():
        if not name.startswith("__") or name == "__init__":
            patch.setattr(KernelTable, name, value, raising=False)
    patch.setattr("sinks.warehouse.java_names", lambda _: _JAVA)
    return cast(SparkSession, PlainSession())


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """In place of `spark`, where no query is asked."""
    return make_plain(monkeypatch)
