"""Read a table's Delta log from its files, without a JVM, which takes seconds to start.

    _delta_log/<version>.json                         a commit: an action a line
    _delta_log/<version>.checkpoint.parquet           all that holds at that version, an action a row; or in parts,
    _delta_log/<version>.checkpoint.<n>.<of>.parquet  all of which have to be there

    _delta_log/<version>.crc                          the checksum of that version; not every version has one

(Delta's protocol, "Delta Log Entries" and "Checkpoints".) What is read is checked (`sinks/delta/log_checks.py`): a file
that was emptied, cut or exchanged is no version with less in it. Commits go through Kernel (`sinks/delta/kernel.py`),
which has its own view of the log. A table with a reader feature that is not listed in this module, which another writer
may have enabled, can be read only by Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from sinks.delta.log_checks import Action, actions_of, checksum_of, contradiction, disagreement, state_of
from sinks.storage.errors import failed_by
from sinks.storage.place import open_folder
from sources.errors import ReplicaError

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_CHECKSUM: Final = re.compile(r"(\d{20})\.crc")
_READER_FEATURES: Final = frozenset({"timestampNtz", "vacuumProtocolCheck"})
_READ: Final = [
    *("txn", "metaData", "protocol", "domainMetadata"),
    *(f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime", "stats")),
]
"""The columns to read of a checkpoint."""
_REMOVED: Final = ("remove.path", "remove.deletionTimestamp")
"""Further ones, which are only of use to clean-ups (`named_files`)."""
_RESTORE: Final = "Restore the file from a backup of the folder, or from storage versioning."
_ATTEMPTS: Final = 3
"""A clean-up of the log may remove files between the listing and the reading."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of a version: its `add` action, as the Delta log has it."""

    action: Action

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
        """The value of each partition column, as text. A checkpoint has them as pairs."""
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
    """A version read from the files of the Delta log: the actions that hold at it, with `files` by path.

    `removed` are files that were removed, by path, and when, in ms since 1970; not all, unless they were asked for.
    """

    version: int
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

    def domain(self, name: str) -> str | None:
        return self.texts.get(name)

    def domains(self) -> Mapping[str, str]:
        return self.texts

    def transaction_version(self, app_id: str) -> int | None:
        return self.transactions.get(app_id)

    def schema_json(self) -> str:
        return str(self.metadata["schemaString"])

    @property
    def size_bytes(self) -> int:
        """The bytes of all its files."""
        return sum(one.size_bytes for one in self.files.values())

    def said(self, what: tuple[str, Any]) -> Any:
        """What `sinks.delta.log_checks.State` has of it."""
        kind, key = what
        match kind:
            case "add":
                return key if key in self.files else None
            case "txn":
                return self.transactions.get(key)
            case "domainMetadata":
                return self.texts.get(key)
            case "protocol":
                return self.protocol.get("minWriterVersion")
            case _:
                return self.metadata.get("id")

    def take(self, action: Action) -> None:
        for kind, said in action.items():
            if said is None:
                continue
            match kind:
                case "add":
                    self.files[said["path"]] = StoredFile(said)
                case "remove":
                    self.files.pop(said["path"], None)
                    self.removed[said["path"]] = said.get("deletionTimestamp") or 0
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
    found = _reading(path, lambda filesystem, folder: _newest(filesystem, folder, known))
    if found is not None:
        _check(path, found)
    return found


def transactions_at(path: str, version: int) -> dict[str, int]:
    """The last transaction version of every application at a `version` of the table at `path`, by application.

    Raises as `newest` does.
    """
    return _reading(path, lambda filesystem, folder: _transactions(filesystem, folder, version))


def named_files(path: str, since_ms: int) -> set[str]:
    """The files that the newest version of the table at `path` has, and those that were removed `since_ms`, in ms since
    1970, or later. Raises as `newest` does, and ReplicaError if there is no table: then no file is known to be unnamed.
    """
    found = _reading(path, lambda filesystem, folder: _newest(filesystem, folder, None, (*_READ, *_REMOVED)))
    if found is None:
        raise ReplicaError(f"the Delta log of {path} is gone", found="a folder without one", hint=_RESTORE)
    _check(path, found)
    removed = (one for one, at_ms in found.removed.items() if at_ms >= since_ms)
    return {unquote(one) for one in (*found.files, *removed)}


def _reading(path: str, read: Callable[[pafs.FileSystem, str], _T]) -> _T:
    """What `read` finds in the Delta log of the table at `path`. Raises ReplicaError, naming the table."""
    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            return read(*open_folder(f"{path.rstrip('/')}/_delta_log"))
        except FileNotFoundError as error:
            if not left:
                raise _unread(path, error) from error
        except OSError as error:
            raise _unread(path, error) from error
        except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise _unread(path, error, _RESTORE) from error


def _newest(
    filesystem: pafs.FileSystem, folder: str, known: LoggedVersion | None, columns: Sequence[str] = _READ
) -> LoggedVersion | None:
    """Read the newest version, with these `columns` of its checkpoint; return `known` if it is that."""
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
    checksums = [int(found[1]) for found in map(_CHECKSUM.fullmatch, names) if found]
    log = _LogFiles(filesystem, folder)
    found = LoggedVersion(version)
    for action in log.checkpoint(parts, columns):
        found.take(action)
    checked = max((one for one in checksums if checkpoint <= one <= version), default=None)
    for number in range(max(checkpoint, 0), version + 1):
        actions = log.commit(number) if number in commits else []
        if number == checkpoint:
            _check_checkpoint(parts, found, actions)
        for action in actions if number > checkpoint else ():
            found.take(action)
        if number == checked:
            _check_sums(log.checksum(number, actions), number, found)
    return found


def _transactions(filesystem: pafs.FileSystem, folder: str, version: int) -> dict[str, int]:
    names = [one.base_name for one in filesystem.get_file_info(pafs.FileSelector(folder))]
    checkpoint, parts = _newest_checkpoint(name for name in names if name[:20] <= f"{version:020}")
    missing = {f"{number:020}.json" for number in range(checkpoint + 1, version + 1)}.difference(names)
    if missing:
        raise ValueError(f"{min(missing)} is missing below {version}")
    log = _LogFiles(filesystem, folder)
    found = {txn["appId"]: txn["version"] for txn in log.transactions_of(parts)}
    for number in range(checkpoint + 1, version + 1):
        found |= {txn["appId"]: txn["version"] for one in log.commit(number) if (txn := one.get("txn"))}
    return found


@dataclass(frozen=True, slots=True)
class _LogFiles:
    """The files of a ``_delta_log``. Every method raises OSError, and ValueError for what is damaged."""

    filesystem: pafs.FileSystem
    folder: str

    def commit(self, version: int) -> list[Action]:
        name = f"{version:020}.json"
        try:
            return actions_of(self._read(name))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def checkpoint(self, parts: Sequence[str], columns: Sequence[str]) -> Iterator[Action]:
        for batch in self._batches(parts, columns):
            yield from batch.to_pylist()

    def transactions_of(self, parts: Sequence[str]) -> Iterator[Action]:
        for batch in self._batches(parts, ["txn"]):
            yield from batch.column("txn").drop_null().to_pylist()

    def _batches(self, parts: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            file = pq.ParquetFile(self.filesystem.open_input_file(f"{self.folder}/{part}"))
            yield from file.iter_batches(columns=list(columns))

    def checksum(self, version: int, commit: Sequence[Action]) -> Mapping[str, Any]:
        """What the checksum of a version with that commit says, nothing if it is not of that."""
        return checksum_of(self._read(f"{version:020}.crc"), commit)

    def _read(self, name: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.folder}/{name}") as file:
            return bytes(file.read())


def _check_checkpoint(parts: Sequence[str], found: LoggedVersion, commit: Iterable[Action]) -> None:
    """Raise ValueError if what was `found` in a checkpoint is not the version that `commit` left."""
    if wrong := disagreement(state_of(commit), found.said):
        raise ValueError(f"{parts[0]} is not of its version: {wrong}")


def _check_sums(checksum: Mapping[str, Any], version: int, found: LoggedVersion) -> None:
    """Raise ValueError if what was `found` at a version is not what its checksum says."""
    if wrong := contradiction(checksum, len(found.files), found.size_bytes, found.texts):
        raise ValueError(f"version {version} is not that of its checksum: {wrong}")


def _newest_checkpoint(names: Iterable[str]) -> tuple[int, list[str]]:
    """The version of the newest complete checkpoint, and its parts in order; -1 and none if there is none."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        found = _CHECKPOINT.fullmatch(name)
        if found:
            parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(name)
    whole = {version: of for (version, count), of in sorted(parts.items()) if len(of) == count}
    return max(whole.items(), default=(-1, []))


def _check(path: str, found: LoggedVersion) -> None:
    """Raise ReplicaError if the table has a reader feature that this module does not know."""
    said = found.protocol
    if not said or not found.metadata:
        raise _unread(
            path, ValueError(f"version {found.version} has no {'metaData' if said else 'protocol'}"), _RESTORE
        )
    unknown = sorted({*(said.get("readerFeatures") or ())} - _READER_FEATURES)
    if unknown or (said["minReaderVersion"] > 1 and not said.get("readerFeatures")):
        raise ReplicaError(
            f"the table {path} has features that cannot be read without Spark",
            found=", ".join(unknown) or f"reader version {said['minReaderVersion']}",
            hint="Another writer has given it these; logtwin sql reads it.",
        )


def _unread(path: str, error: Exception, hint: str = "Check that its storage can be reached and read.") -> Exception:
    return failed_by(error)(f"the Delta log of {path} cannot be read", found=error, hint=hint)
