"""A stand-in for KernelTable: real versions of a table on a local disk, with Kernel's rules of conflict, and no JVM.

It reads with the project's own reader of Delta logs, and writes what Kernel would, but neither checkpoints nor
checksums, and it does not sync. tests/sinks/test_both_tables.py holds it to the real one.
"""

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import StructType

from sinks.delta.actions import Action, Partition, appended, exchanged, transaction_version
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import LoggedVersion, StoredFile, newest
from sinks.delta.kernel import KernelConflict, KernelTable, Overlap
from sinks.delta.log_checks import actions_of, engine_info
from sinks.storage.errors import reported_as
from sinks.storage.place import placed
from sources.errors import ReplicaError

_SUPPORTED: Final = "delta.feature."
_FEATURES: Final = ["clustering", "appendOnly", "domainMetadata", "invariants"]


@dataclass(slots=True)
class PlainSnapshot(LoggedVersion):
    """What kernel.Snapshot is of the real table."""

    log: Path = Path()

    def committed_at(self) -> datetime:
        return datetime.fromtimestamp(_file(self.log, self.version).stat().st_mtime_ns // 1_000_000 / 1000, UTC)

    def table_id(self) -> str:
        return str(self.metadata["id"])

    def properties(self) -> dict[str, str]:
        return dict(self.metadata["configuration"])


class PlainTable:
    """The table at `path`, as KernelTable has it: see there what each method promises."""

    existing = KernelTable.existing

    def __init__(self, _: object, path: str) -> None:
        folder = placed(path).local
        assert folder is not None, f"{path} is not on a local disk"
        self.path = path
        self._log = folder / "_delta_log"
        self._own: int | None = None

    def snapshot(self, *, to_commit: bool = False) -> PlainSnapshot | None:
        if to_commit and self._own is not None:  # as on an object store, whatever came since
            return self.snapshot_at(self._own)
        found = newest(self.path)
        return None if found is None else self._snapshot(found)

    def snapshot_at(self, version: int) -> PlainSnapshot:
        found = LoggedVersion(version)
        try:
            for action in chain.from_iterable(map(self._actions, range(version + 1))):
                found.take(action)
        except FileNotFoundError as error:
            raise ReplicaError(f"version {version} of the table {self.path} is not there", found=error) from error
        return self._snapshot(found)

    def oldest_version(self, on: PlainSnapshot) -> int:
        return min(int(path.stem) for path in self._log.glob("*.json"))

    def create(
        self,
        schema: StructType,
        properties: Mapping[str, str],
        clustering: Sequence[str],
        partitioning: Sequence[str] = (),
    ) -> None:
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.json(),
            "partitionColumns": list(partitioning),
            "configuration": {name: text for name, text in properties.items() if not name.startswith(_SUPPORTED)},
            "createdTime": _now_ms(),
        }
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": _FEATURES}
        layout = {"clusteringColumns": [[name] for name in clustering]}
        clustered = [] if partitioning else [_domain("delta.clustering", json.dumps(layout, separators=(",", ":")))]
        self._log.mkdir(parents=True, exist_ok=True)
        if not self._put(0, [{"protocol": protocol}, {"metaData": metadata}, *clustered]):
            raise KernelConflict(f"TableAlreadyExistsException: {self.path}")

    def set_properties(self, on: PlainSnapshot, properties: Mapping[str, str]) -> int:
        configuration = {**on.properties(), **properties}
        form = {**on.metadata["format"], "options": dict(on.metadata["format"]["options"])}  # pairs in a checkpoint
        return self._commit(
            on, [{"metaData": {**on.metadata, "format": form, "configuration": configuration}}], is_alone=True
        )

    def commit(
        self,
        on: PlainSnapshot,
        files: Sequence[DataFile] = (),
        *,
        transaction: tuple[str, int] | None = None,
        domains: Mapping[str, str | None] | None = None,
        transactions: Mapping[str, int] | None = None,
    ) -> int:
        return self._commit(on, appended(files, transactions or {}), domains or {}, transaction)

    def transaction_versions(self, on: PlainSnapshot, apps: Iterable[str]) -> dict[str, int | None]:
        return {app: on.transaction_version(app) for app in apps}

    def files(
        self, on: PlainSnapshot, equal: Mapping[str, str | bool], overlapping: Overlap | None = None
    ) -> list[StoredFile]:
        return [file for file in on.files.values() if _may_hold(file, equal, overlapping)]

    def replace(
        self,
        on: PlainSnapshot,
        removed: Sequence[StoredFile],
        added: Sequence[tuple[Partition, DataFile]],
        *,
        domains: Mapping[str, str],
        transaction: tuple[str, int] | None = None,
        over_appends: bool = False,
        schema: StructType | None = None,
    ) -> int:
        evolved = [] if schema is None else [{"metaData": {**on.metadata, "schemaString": schema.json()}}]
        actions = [*evolved, *exchanged(removed, added)]
        return self._commit(on, actions, domains, transaction, is_alone=schema is not None or not over_appends)

    def rearrange(
        self, on: PlainSnapshot, removed: Sequence[StoredFile], added: Sequence[tuple[Partition, DataFile]]
    ) -> int:
        return self._commit(on, exchanged(removed, added, is_change=False))

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        """Nothing: no commit here leaves a checksum or a checkpoint to write."""

    def _snapshot(self, found: LoggedVersion) -> PlainSnapshot:
        said = {one.name: getattr(found, one.name) for one in fields(found)}
        return PlainSnapshot(**said, log=self._log)

    def _actions(self, version: int) -> Sequence[Mapping[str, Any]]:
        return actions_of(_file(self._log, version).read_bytes())

    def _commit(
        self,
        on: PlainSnapshot,
        actions: Sequence[Action],
        domains: Mapping[str, str | None] | Mapping[str, str] | None = None,
        transaction: tuple[str, int] | None = None,
        *,
        is_alone: bool = False,
    ) -> int:
        """Put `actions` and the rest into the version after `on`, or after those that they do not contradict."""
        domains, self._own = domains or {}, None
        if transaction is not None and transaction[1] <= on.transactions.get(transaction[0], transaction[1] - 1):
            raise KernelConflict(f"ConcurrentTransactionException: {transaction[0]}")
        if gone := [name for name, text in domains.items() if text is None and on.domain(name) is None]:
            raise ReplicaError(f"no domain {gone[0]} of the table {self.path} is there to remove")
        named = [
            _domain(name, (on.domain(name) or "") if text is None else text, text is None)
            for name, text in domains.items()
        ]
        own = [*([] if transaction is None else [transaction_version(*transaction)]), *named, *actions]
        version = on.version + 1
        while not self._put(version, own):
            if is_alone:
                raise KernelConflict(f"ConcurrentWriteException: version {version} is there")
            _check(own, self._actions(version), transaction)
            version += 1
        self._own = version
        return version

    def _put(self, version: int, actions: Sequence[Action]) -> bool:
        """Whole, or, where another has put that version, not at all."""
        info = {"timestamp": _now_ms(), "engineInfo": engine_info(len(actions)), "operation": "WRITE"}
        text = "".join(
            f"{json.dumps(one)}\n" for one in ({"commitInfo": {**info, "txnId": str(uuid.uuid4())}}, *actions)
        )
        own = self._log / f".{uuid.uuid4()}"
        try:
            with reported_as(f"the table {self.path} cannot be written"):
                own.write_text(text)
            os.link(own, _file(self._log, version))
        except FileExistsError:
            return False
        finally:
            own.unlink(missing_ok=True)
        return True


def _check(own: Iterable[Action], other: Iterable[Mapping[str, Any]], transaction: tuple[str, int] | None) -> None:
    """Raises KernelConflict if commit `other`, which came first, forbids `own`."""
    domains = {one["domainMetadata"]["domain"] for one in own if "domainMetadata" in one}
    removed = {one["remove"]["path"] for one in own if "remove" in one}
    for action in other:
        for kind, said in action.items():
            match kind:
                case "protocol" | "metaData":
                    raise KernelConflict(f"{kind.capitalize()}ChangedException")
                case "domainMetadata" if said["domain"] in domains:
                    raise KernelConflict(f"ConcurrentWriteException: domain {said['domain']}")
                case "txn" if transaction is not None and said["appId"] == transaction[0]:
                    if said["version"] >= transaction[1]:
                        raise KernelConflict(f"ConcurrentTransactionException: {said['appId']}")
                case "remove" if said["path"] in removed:
                    raise KernelConflict(f"ConcurrentWriteException: file {said['path']}")


def _may_hold(file: StoredFile, equal: Mapping[str, str | bool], overlapping: Overlap | None) -> bool:
    """Whether partition and statistics allow a row that is `equal` to these, and within the range if there is one."""
    partition, statistics = file.partition(), file.statistics()
    least, greatest = statistics.get("minValues", {}), statistics.get("maxValues", {})
    for name, value in equal.items():
        if name in partition:
            if partition[name] != (str(value).lower() if isinstance(value, bool) else value):
                return False
        elif not (least.get(name, value) <= value <= greatest.get(name, value)):
            return False
    if overlapping is None:
        return True
    start, end, rows = overlapping.start_column, overlapping.end_column, overlapping.range
    if least.get(start, rows.end - 1) >= rows.end:
        return False
    return bool(greatest.get(end, rows.end) > rows.start if end else greatest.get(start, rows.start) >= rows.start)


def _domain(name: str, text: str, is_removed: bool = False) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": is_removed}}


def _file(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
