"""Actions of the Delta protocol, as JSON has them: what a commit says of data files and of applications."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile

Partition = Mapping[str, str | bool]
"""A value for each partition column of a table; a table without has one partition, ``{}``."""

Action = dict[str, dict[str, Any]]
"""Its kind, and its fields."""


LATELY_MS: Final = 2 * 3_600_000
"""Clean-ups add it to the age from which on they take a file (`sinks/upkeep/vacuum.py`)."""


def appended(files: Iterable[DataFile], transactions: Mapping[str, int]) -> list[Action]:
    """Add `files` of a table without partitions, and set versions of applications."""
    versions = [transaction_version(*one) for one in transactions.items()]
    return [*versions, *(_add({}, file) for file in files)]


def exchanged(
    removed: Iterable[StoredFile], added: Iterable[tuple[Partition, DataFile]], *, is_change: bool = True
) -> list[Action]:
    """Put files in place of others. If `is_change` is False, the rows are the same, in other files."""
    return [*(_remove(file, is_change) for file in removed), *(_add(*one, is_change) for one in added)]


def transaction_version(app_id: str, version: int) -> Action:
    return {"txn": {"appId": app_id, "version": version}}


def _add(partition: Partition, file: DataFile, is_change: bool = True) -> Action:
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in partition.items()}
    facts = {"size": file.size_bytes, "modificationTime": file.modified_ms, "stats": file.statistics}
    return {"add": {"path": quote(file.name), "partitionValues": values, "dataChange": is_change, **facts}}


def _remove(file: StoredFile, is_change: bool) -> Action:
    """Without its statistics: what is removed stays in every checkpoint until nobody may want the file any more.

    A day of commits that are merged would be 86,400 such files, and each checkpoint as long to write as if there had
    been no merge. But a clean-up leaves a file alone until it is old. So of one that was written lately and is merged,
    the time of its removal, which is optional, is left out: then no checkpoint has it.
    """
    facts = {"path": file.action["path"], "partitionValues": file.partition(), "size": file.size_bytes}
    now_ms = time.time_ns() // 1_000_000
    if is_change or now_ms - file.modified_ms > LATELY_MS:
        facts["deletionTimestamp"] = now_ms
    return {"remove": {**facts, "dataChange": is_change, "extendedFileMetadata": True}}
