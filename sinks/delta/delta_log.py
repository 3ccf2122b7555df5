"""Read a table's Delta log from its files, without a JVM, which takes seconds to start.

    _delta_log/<version>.json                         a commit: an action a line
    _delta_log/<version>.checkpoint.parquet           all that holds at that version, an action a row; or in parts,
    _delta_log/<version>.checkpoint.<n>.<of>.parquet  all of which have to be there

(Delta's protocol, "Delta Log Entries" and "Checkpoints".) Commits go through Kernel (`sinks/delta/kernel.py`), which
has its own view of the log. A table with a reader feature that is not listed in this module, which another writer may
have enabled, can be read only by Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sinks.storage.errors import failed_by
from sinks.storage.place import open_folder
from sources.errors import ReplicaError

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_READER_FEATURES: Final = frozenset({"timestampNtz", "vacuumProtocolCheck"})
_READ: Final = [
    *("txn", "metaData", "protocol", "domainMetadata"),
    *(f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime", "stats")),
]
"""The columns to read of a checkpoint. Its `remove` actions are only of use to clean-ups."""
_ATTEMPTS: Final = 3
"""A clean-up of the log may remove files between the listing and the reading."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of a version: its `add` action, as the Delta log has it."""

    action: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The path within the table's folder."""
        return unquote(self.action["path"])

    @property
    def size_bytes(self) -> int:
        return int(self.action["size"])

    @property
    def modified_ms(self) -> int:
        """When the file was written, in ms since 1970."""
        return int(self.action["modificationTime"])

    def partition(self) -> dict[str, str]:
        """The value of each partition column, as text."""
        return dict(self.action["partitionValues"])

    def statistics(self) -> dict[str, Any]:
        """The statistics in the Delta log: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``."""
        statistics: dict[str, Any] = json.loads(self.action.get("stats") or "{}")
        return statistics


class Version(Protocol):
    """A version of a table, read by Kernel or by this module."""

    @property
    def version(self) -> int:
        """The version's number."""

    def domain(self, name: str) -> str | None:
        """The domain metadata kept under `name`, as it was written; None if there is none."""

    def domains(self) -> Mapping[str, str]:
        """The metadata of every domain, by the domain's name."""

    def transaction_version(self, app_id: str) -> int | None:
        """The last transaction version of an application; None if it has none."""

    def schema_json(self) -> str:
        """The table's schema, as JSON."""


@dataclass(slots=True)
class LoggedVersion:
    """A version read from the files of the Delta log: the actions that hold at it, with `files` by path."""

    version: int
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)

    def domain(self, name: str) -> str | None:
        return self.texts.get(name)

    def domains(self) -> Mapping[str, str]:
        return self.texts

    def transaction_version(self, app_id: str) -> int | None:
        return self.transactions.get(app_id)

    def schema_json(self) -> str:
        return str(self.metadata["schemaString"])

    def take(self, action: Mapping[str, Any]) -> None:
        """Apply one action of the Delta log."""
        for kind, said in action.items():
            if said is None:
                continue
            match kind:
                case "add":
                    self.files[said["path"]] = StoredFile(said)
                case "remove":
                    self.files.pop(said["path"], None)
                case "txn":
                    self.transactions[said["appId"]] = said["version"]
                case "domainMetadata" if said["removed"]:
                    self.texts.pop(said["domain"], None)
                case "domainMetadata":
                    self.texts[said["domain"]] = said["configuration"]
                case "metaData":
                    self.metadata = dict(said)
                case "protocol":
                    self.protocol = dict(said)


def newest(path: str, known: LoggedVersion | None = None) -> LoggedVersion | None:
    """The newest version of the table at `path`; None if there is no table.

    `known` is a version that was read before: if it is still the newest, it is returned, and no file is read.

    Raises ReplicaError, ConfigurationError, StorageUnreachable.
    """
    for attempt in range(_ATTEMPTS):
        try:
            found = _newest(*open_folder(f"{path.rstrip('/')}/_delta_log"), known)
        except FileNotFoundError as error:
            if attempt == _ATTEMPTS - 1:
                raise _unread(path, error) from error
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise _unread(path, error) from error
        else:
            if found is not None:
                _check(path, found)
            return found
    return None


def _newest(filesystem: pafs.FileSystem, folder: str, known: LoggedVersion | None) -> LoggedVersion | None:
    listed = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    names = [one.base_name for one in listed]
    commits = sorted(int(found[1]) for found in map(_COMMIT.fullmatch, names) if found)
    checkpoint, parts = _newest_checkpoint(names)
    if not commits and not parts:
        return None
    version = max(commits[-1] if commits else checkpoint, checkpoint)
    if known is not None and known.version == version:
        return known
    missing = {*range(checkpoint + 1, version + 1)}.difference(commits)
    if missing:
        raise ValueError(f"version {min(missing)} is missing below {version}")
    found = LoggedVersion(version)
    for action in _actions_of(filesystem, [f"{folder}/{name}" for name in parts]):
        found.take(action)
    for number in range(checkpoint + 1, version + 1):
        with filesystem.open_input_file(f"{folder}/{number:020}.json") as file:
            for line in file.read().splitlines():
                found.take(json.loads(line))
    return found


def _newest_checkpoint(names: Iterable[str]) -> tuple[int, list[str]]:
    """The version of the newest complete checkpoint, and its parts in order; -1 and none if there is none."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        found = _CHECKPOINT.fullmatch(name)
        if found:
            parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(name)
    whole = {version: of for (version, count), of in sorted(parts.items()) if len(of) == count}
    return max(whole.items(), default=(-1, []))


def _actions_of(filesystem: pafs.FileSystem, parts: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for part in parts:
        for batch in pq.ParquetFile(filesystem.open_input_file(part)).iter_batches(columns=_READ):
            yield from batch.to_pylist()


def _check(path: str, found: LoggedVersion) -> None:
    """Raises ReplicaError if the table has a reader feature that this module does not know."""
    said = found.protocol
    unknown = sorted({*(said.get("readerFeatures") or ())} - _READER_FEATURES)
    if unknown or (said["minReaderVersion"] > 1 and not said.get("readerFeatures")):
        raise ReplicaError(
            f"the table {path} has features that cannot be read without Spark",
            found=", ".join(unknown) or f"reader version {said['minReaderVersion']}",
            hint="Another writer has given it these; logtwin sql reads it.",
        )


def _unread(path: str, error: Exception) -> Exception:
    return failed_by(error)(
        f"the Delta log of {path} cannot be read", found=error, hint="Check that its storage can be reached and read."
    )
