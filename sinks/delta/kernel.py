"""One Delta table through Delta Kernel. The only file that knows `io.delta.kernel`.

Kernel is a public Java API that comes with delta-spark's own jars; it is driven from the driver through the gateway
of the Spark session. A commit takes 50-100 ms, against a second for an append of a DataFrame. What it promises, and
what everything here rests on:

* a transaction is built on one snapshot, and what was read of that snapshot is what the commit is compared with;
* of the commits that came in between, one that carries the same domain's metadata, or the same application's
  transaction version or a later one, makes the commit fail (`KernelConflict`); any other append is stepped over;
* a version is written by put-if-absent: it is there whole, once, or not at all (on a local disk, see `version_files`).

The newest version is found by listing the Delta log, which takes time for each file in it: on a local disk 20 ms a
thousand. After a commit of its own a KernelTable knows it without (`_OwnCommit`).

What Kernel leaves to do after a commit is kept for `run_hooks` (`hooks.py`): nobody who waits for an acknowledgement
should wait for it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, reduce
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sinks.delta.actions import Action, Partition, appended, exchanged
from sinks.delta.conditional_commits import conditional_committer
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import StoredFile, transactions_at
from sinks.delta.hooks import Hooks
from sinks.delta.java_names import each, java_names
from sinks.delta.log_checks import ENGINE, engine_info
from sinks.delta.version_files import VersionFiles
from sinks.storage.check import check_one_place
from sinks.storage.errors import failed_by, java_causes
from sinks.storage.hadoop import renew_keys
from sources.errors import ReplicaError
from sources.offsets import OffsetRange

_NOT_FOUND = "TableNotFoundException"
_ALREADY_THERE = "TableAlreadyExistsException"
_CHECKPOINT_THERE = "CheckpointAlreadyExistsException"
# Another writer got in between in a way that Kernel does not step over, or Kernel cannot tell whether its own try took.
_CONFLICTS = frozenset(
    (
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "MetadataChangedException",
        "ProtocolChangedException",
        "CommitStateUnknownException",
        _ALREADY_THERE,
    )
)
# Kernel tries a commit 200 times, whatever its storage says; a conflict it is where the version was there each time.
_TRIED_OFTEN = "MaxCommitRetryLimitReachedException"
_THERE = "FileAlreadyExistsException"
_LISTED_EVERY = 100
_ASKED_ONE_BY_ONE = 8
_TRUSTED_S = 60.0
_LOOKED_AT_EVERY_S = 5.0
_log = logging.getLogger(__name__)


class KernelConflict(Exception):
    """The commit was refused, or Kernel cannot tell whether it took. The text is Kernel's."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows whose offsets lie in `range`: by one column, or by those of a start and of an exclusive end."""

    range: OffsetRange
    start_column: str
    end_column: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """One version of a table, as the JVM holds it."""

    version: int
    java: Any
    session: _OfSession

    @property
    def engine(self) -> Any:
        return self.session.engine

    def domain(self, name: str) -> str | None:
        """The metadata kept under `name`, as it was written."""
        found = self.java.getDomainMetadata(name)
        return str(found.get()) if found.isPresent() else None

    def domains(self) -> Mapping[str, str]:
        return self._domains

    @cached_property
    def _domains(self) -> Mapping[str, str]:
        """Kernel's own map, in one text: its public API wants to know the names, and takes a call for each."""
        found = json.loads(str(self.session.mapper.writeValueAsString(self.java.getActiveDomainMetadataMap())))
        return {name: said["configuration"] for name, said in found.items()}

    def transaction_version(self, app_id: str) -> int | None:
        found = self.java.getLatestTransactionVersion(self.engine, app_id)
        return int(found.get()) if found.isPresent() else None

    def committed_at(self) -> datetime:
        """When it was committed, by the clock of the storage or of the writer, whichever the table uses."""
        return datetime.fromtimestamp(self.java.getTimestamp(self.engine) / 1000, UTC)

    def table_id(self) -> str:
        """The id of this table; one that is created in its place has another."""
        return str(self.java.getMetadata().getId())

    def schema_json(self) -> str:
        return str(self.java.getSchema().toJson())

    def properties(self) -> dict[str, str]:
        found = self.java.getTableProperties()
        return {str(name): str(found.get(name)) for name in each(found.keySet().iterator())}


@dataclass(slots=True)
class _OwnCommit:
    """A version that this run wrote, and Kernel made a snapshot of from memory.

    It is the newest one for as long as its file is the very one that was written (a table can be restored from a copy)
    and there is none of the version after it: versions have no gaps, as long as it is not so old that a clean-up of the
    Delta log may have come by. `age` is how many commits ago the Delta log was listed: the snapshot reads each of them
    again, so now and then it is listed anew.

    Where the commit itself finds out what has come since, nobody has to look before it; but now and then whether the
    table is the same: `stamp` is of the first look then, and `looked_at_s` when the last one was.
    """

    snapshot: Snapshot
    stamp: tuple[int, ...] | None
    age: int
    made_at_s: float
    looked_at_s: float


@dataclass(frozen=True, slots=True)
class _OfSession:
    """Objects of the JVM that all tables share, because each log of a job has fifteen tables."""

    engine: Any
    mapper: Any
    list_class: Any
    map_class: Any
    each_class: Any


@lru_cache(maxsize=1)
def _of_session(context: SparkContext) -> _OfSession:
    names = java_names(context)
    return _OfSession(
        names.io.delta.kernel.defaults.engine.DefaultEngine.create(context._jsc.hadoopConfiguration()),
        names.com.fasterxml.jackson.databind.ObjectMapper(),
        names.java.lang.Class.forName("java.util.ArrayList"),
        names.java.lang.Class.forName("java.util.LinkedHashMap"),
        names.java.lang.Class.forName("java.util.function.BiConsumer"),
    )


@lru_cache(maxsize=1)
def _adding(context: SparkContext) -> Any:
    """The method of a transaction that adds a domain's metadata, as a value of the JVM."""
    names = java_names(context)
    invoke, loader = names.java.lang.invoke, _of_session(context).engine.getClass().getClassLoader()
    kind = invoke.MethodType.fromMethodDescriptorString("(Ljava/lang/String;Ljava/lang/String;)V", loader)
    of = loader.loadClass("io.delta.kernel.Transaction")
    return invoke.MethodHandles.publicLookup().findVirtual(of, "addDomainMetadata", kind)


class KernelTable:
    """A Delta table at `path` (absolute, or a URI). Driver only; one thread at a time.

    The constructor raises ConfigurationError where the path is another one for Hadoop than for us.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        check_one_place(spark, path)
        self.path = path
        names, java = java_names(spark), _of_session(spark.sparkContext)
        self._kernel, self._java = names.io.delta.kernel, names.java
        self._session, self._engine, self._mapper = java, java.engine, java.mapper
        self._versions = VersionFiles(spark, path)
        self._context = spark.sparkContext
        self._committer = conditional_committer(self._context, path)
        self._hooks = Hooks(self._engine, path, are_remote=self._versions.are_remote)
        self._own: _OwnCommit | None = None

    def snapshot(self, *, to_commit: bool = False) -> Snapshot | None:
        """The newest version; None where there is no table.

        `to_commit`, for who builds a commit on it: where the commit itself finds out what has come since, this does not
        ask for it.
        """
        with self._translated():
            if self._hooks.take_news():
                self._own = None
            if self._own is not None and self._is_newest(self._own, to_commit and self._committer is not None):
                return self._own.snapshot
            self._own = None
            try:
                java = self._with_committer(self._kernel.TableManager.loadSnapshot(self.path)).build(self._engine)
            except Py4JJavaError as error:
                if _java_class(error) == _NOT_FOUND:
                    return None
                raise
            return Snapshot(java.getVersion(), java, self._session)

    def snapshot_at(self, version: int) -> Snapshot:
        """Read a version from `oldest_version` to the newest."""
        with self._translated():
            builder = self._kernel.TableManager.loadSnapshot(self.path).atVersion(version)
            java = self._with_committer(builder).build(self._engine)
            return Snapshot(version, java, self._session)

    def oldest_version(self, on: Snapshot) -> int:
        """The oldest version of which the Delta log still has everything."""
        with self._translated():
            history, anywhere = self._kernel.internal.DeltaHistoryManager, self._java.util.Optional.empty()
            return int(history.getEarliestRecreatableCommit(self._engine, on.java.getLogPath(), anywhere))

    def existing(self, log: object = None, *, to_commit: bool = False) -> Snapshot:
        """Read the newest version of a table that has to exist. Raises ReplicaError, naming `log`, if it does not."""
        found = self.snapshot(to_commit=to_commit)
        if found is None:
            raise ReplicaError(
                f"the table {self.path} is gone", log=log, hint="Restore it, or start with a new warehouse."
            )
        return found

    def create(
        self,
        schema: StructType,
        properties: Mapping[str, str],
        clustering: Sequence[str],
        partitioning: Sequence[str] = (),
    ) -> None:
        """Create the table. Raises KernelConflict if it exists, or another writer creates it now."""
        with self._translated():
            kernel_schema = self._kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(schema.json())
            columns = [self._kernel.expressions.Column(name) for name in partitioning or clustering]
            layouts = self._kernel.transaction.DataLayoutSpec
            layout = layouts.partitioned(columns) if partitioning else layouts.clustered(columns)
            builder = self._kernel.TableManager.buildCreateTableTransaction(self.path, kernel_schema, ENGINE)
            builder = builder.withTableProperties(dict(properties)).withDataLayoutSpec(layout)
            self._commit(self._with_committer(builder).build(self._engine))
            self.run_hooks()

    def set_properties(self, on: Snapshot, properties: Mapping[str, str]) -> int:
        """Change the table's properties. Returns the version. Raises KernelConflict if `on` is not the newest."""
        with self._translated():
            builder = on.java.buildUpdateTableTransaction(ENGINE, self._kernel.Operation.MANUAL_UPDATE)
            builder = builder.withTablePropertiesAdded(dict(properties)).withMaxRetries(0)
            return self._commit(builder.build(self._engine))

    def commit(
        self,
        on: Snapshot,
        files: Sequence[DataFile] = (),
        *,
        transaction: tuple[str, int] | None = None,
        domains: Mapping[str, str | None] | None = None,
        transactions: Mapping[str, int] | None = None,
    ) -> int:
        """Add `files`, an application's transaction version and domains' metadata in one commit built on `on`.

        A domain with None is removed.

        Any number of further `transactions`, application to version, goes with it; Kernel does not compare these with
        what others have committed, so one of `domains` has to stand for each.
        Returns the version, durable where the table is local. Raises KernelConflict; nothing else may have happened
        to the domains or the application since `on`, other appends may.
        """
        # Kernel's public API takes one application a commit
        return self._changed(on, appended(files, transactions or {}), domains or {}, transaction)

    def transaction_versions(self, on: Snapshot, apps: Collection[str]) -> dict[str, int | None]:
        """The last transaction version of each of `apps` at version `on`.

        Kernel reads the Delta log for each that it is asked for. So many are read by ourselves, all at once, unless
        the log is in a form that only Kernel knows. Raises ReplicaError.
        """
        if len(apps) > _ASKED_ONE_BY_ONE:
            try:
                found = transactions_at(self.path, on.version)
            except ReplicaError as error:
                _log.info("%s: %s; asking Kernel for %d applications, one by one", self.path, error, len(apps))
            else:
                return {app: found.get(app) for app in apps}
        with self._translated():
            return {app: on.transaction_version(app) for app in apps}

    def files(
        self, on: Snapshot, equal: Mapping[str, str | bool], overlapping: Overlap | None = None
    ) -> list[StoredFile]:
        """The data files that may hold rows whose columns are `equal` to these, by partition or statistics; with ``{}``
        all of them.

        With `overlapping` only those that may also hold a row in that range.
        """
        with self._translated():
            wanted = [self._compared("=", name, value) for name, value in equal.items()]
            wanted += [] if overlapping is None else [self._overlaps(overlapping)]
            builder = on.java.getScanBuilder()
            builder = builder.withFilter(reduce(self._and, wanted)) if wanted else builder
            batches = builder.build().getScanFiles(self._engine, True)
            as_json = self._kernel.defaults.internal.json.JsonUtils.rowToJson
            with closing(batches):
                rows = (json.loads(as_json(row)) for batch in each(batches) for row in each(batch.getRows()))
                return [StoredFile(row["add"]) for row in rows]

    def replace(
        self,
        on: Snapshot,
        removed: Sequence[StoredFile],
        added: Sequence[tuple[Partition, DataFile]],
        *,
        domains: Mapping[str, str],
        transaction: tuple[str, int] | None = None,
        over_appends: bool = False,
        schema: StructType | None = None,
    ) -> int:
        """Exchange files, and rewrite domains' metadata and a transaction version, in one commit built on `on`.

        With `schema` that is the table's from this version on: its files must be readable by it.

        A table that is not partitioned has one partition, ``{}``. Returns the version.
        Raises KernelConflict where anything at all was committed since: the files that are there now may be others.
        With `over_appends` only where a commit since then wrote one of `domains` or removed one of `removed`.
        """
        evolved = [] if schema is None else [self._metadata(on, schema)]
        actions = [*evolved, *exchanged(removed, added)]
        return self._changed(on, actions, domains, transaction, is_alone=schema is not None or not over_appends)

    def _metadata(self, on: Snapshot, schema: StructType) -> Action:
        """The table's metadata with another schema. Kernel itself changes none without column mapping, which delta-rs
        and Polars do not read.
        """
        with self._translated():
            as_json = self._kernel.defaults.internal.json.JsonUtils.rowToJson
            found: dict[str, Any] = json.loads(as_json(on.java.getMetadata().toRow()))
        return {"metaData": {**found, "schemaString": schema.json()}}

    def rearrange(
        self, on: Snapshot, removed: Sequence[StoredFile], added: Sequence[tuple[Partition, DataFile]]
    ) -> int:
        """Exchange files for others with the very same rows, which who follows the table as a stream does not see.

        Steps over the commits since `on` that leave `removed` in the table. Returns the version.
        Raises KernelConflict where one of `removed` is gone.
        """
        return self._changed(on, exchanged(removed, added, is_change=False))

    def checkpoint(self, on: Snapshot) -> bool:
        """Write the checkpoint of `on`; False where it is there, or is what the committer's own hook writes.

        Two who write one at once could leave a file with the other's checksum on a local disk (`VersionFiles.alone`).
        """
        if on.version % int(on.properties().get("delta.checkpointInterval", "10")) == 0:
            return False
        with self._translated():
            try:
                on.java.writeCheckpoint(self._engine)
            except Py4JJavaError as error:
                if _java_class(error) == _CHECKPOINT_THERE:
                    return False
                raise
            return True

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        """Run the hooks of commits; with `checkpoint_aside` a checkpoint in a thread of its own. Raises nothing."""
        self._hooks.run(checkpoint_aside=checkpoint_aside)

    def _changed(
        self,
        on: Snapshot,
        actions: Sequence[Action],
        domains: Mapping[str, str | None] = MappingProxyType({}),
        transaction: tuple[str, int] | None = None,
        *,
        is_alone: bool = False,
    ) -> int:
        """Commit `actions`, and those that Kernel makes of the rest, on `on`; if `is_alone`, only right behind it."""
        with self._translated():
            self._hooks.domains = max(int(on.java.getActiveDomainMetadataMap().size()), len(domains))
            count = len(actions) + len(domains) + (transaction is not None)
            builder = on.java.buildUpdateTableTransaction(engine_info(count), self._kernel.Operation.WRITE)
            if transaction is not None:
                builder = builder.withTransactionId(*transaction)
            java = (builder.withMaxRetries(0) if is_alone else builder).build(self._engine)
            self._add_domains(java, domains)
            return self._commit(java, actions)

    def _add_domains(self, java: Any, domains: Mapping[str, str | None]) -> None:
        """Add them to a transaction in one call of the gateway: one for each takes longer than all the rest."""
        texts = {name: text for name, text in domains.items() if text is not None}
        for name in domains.keys() - texts.keys():
            java.removeDomainMetadata(name)
        if texts:
            add = _adding(self._context).bindTo(java)
            as_each = self._java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._session.each_class, add)
            self._mapper.readValue(json.dumps(texts), self._session.map_class).forEach(as_each)

    def _with_committer(self, builder: Any) -> Any:
        return builder if self._committer is None else builder.withCommitter(self._committer)

    def _commit(self, java: Any, actions: Sequence[Action] = ()) -> int:
        if self._committer is not None:
            self._committer.check_store()
        rows = self._rows(actions)
        with self._versions.alone():
            result = java.commit(self._engine, rows)
        version = int(result.getVersion())
        self._sync(version)
        if any("metaData" in action for action in actions):
            self._own = None  # the transaction, its snapshot and its checksum know the schema before this one
            return version
        self._hooks.add(version, each(result.getPostCommitHooks().iterator()))
        self._own = self._own_commit(result, version)
        return version

    def _own_commit(self, result: Any, version: int) -> _OwnCommit | None:
        """None where Kernel has no snapshot of it, that has become long, or the file cannot be looked at.

        The commit has landed: a failure here costs a listing of the Delta log, and is logged.
        """
        age = 1 if self._own is None else self._own.age + 1
        try:
            found = result.getPostCommitSnapshot()
            stamp = self._versions.stamp(version) if self._committer is None else None
            if not found.isPresent() or (stamp is None and self._committer is None) or age > _LISTED_EVERY:
                return None
            found.get().getActiveDomainMetadataMap()  # the next commit wants it; `maintain` may take files before
            now_s, looked_at_s = time.monotonic(), 0.0 if self._own is None else self._own.looked_at_s
            return _OwnCommit(Snapshot(version, found.get(), self._session), stamp, age, now_s, looked_at_s)
        except (PySparkException, Py4JError, OSError) as error:
            # %r: the text of a Java exception is a question to a JVM that may be gone
            _log.warning("%s: version %d cannot be noted as the newest: %r", self.path, version, error)
            return None

    def _is_newest(self, own: _OwnCommit, is_found_out: bool) -> bool:
        now_s = time.monotonic()
        if now_s - own.made_at_s > _TRUSTED_S:
            return False
        if is_found_out and now_s - own.looked_at_s < _LOOKED_AT_EVERY_S:
            return True
        version = own.snapshot.version
        stamp = self._versions.stamp(version)
        if stamp is None or own.stamp not in (None, stamp):
            return False
        own.stamp, own.looked_at_s = stamp, now_s
        return is_found_out or not self._versions.is_there(version + 1)

    def _rows(self, actions: Sequence[Action]) -> Any:
        """Kernel's own rows of actions, whose public API makes fewer of them than the protocol has.

        They go over as one text: a call through the gateway takes 0.1 ms, and one action takes several.
        """
        texts = self._mapper.readValue(json.dumps([json.dumps(action) for action in actions]), self._session.list_class)
        vector = self._kernel.defaults.internal.data.vector.DefaultGenericVector
        column = vector.fromList(self._kernel.types.StringType.STRING, texts)
        schema, all_of_them = self._kernel.internal.actions.SingleAction.FULL_SCHEMA, self._java.util.Optional.empty()
        rows = self._engine.getJsonHandler().parseJson(column, schema, all_of_them).getRows()
        return self._kernel.utils.CloseableIterable.inMemoryIterable(rows)

    def _overlaps(self, rows: Overlap) -> Any:
        return self._and(
            self._compared("<", rows.start_column, rows.range.end),
            self._compared(">" if rows.end_column else ">=", rows.end_column or rows.start_column, rows.range.start),
        )

    def _and(self, one: Any, other: Any) -> Any:
        return self._kernel.expressions.Predicate("AND", one, other)

    def _compared(self, operator: str, column: str, value: str | bool | int) -> Any:
        expressions = self._kernel.expressions
        return expressions.Predicate(operator, expressions.Column(column), self._literal(value))

    def _literal(self, value: str | bool | int) -> Any:
        literals = self._kernel.expressions.Literal
        if isinstance(value, bool):
            return literals.ofBoolean(value)
        return literals.ofString(value) if isinstance(value, str) else literals.ofLong(value)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Java's exceptions as ours: conflicts are the caller's to judge, all else is the replica's failure."""
        renew_keys(self._context)
        try:
            yield
        except Py4JJavaError as error:
            *outer, inner = java_causes(error.java_exception)
            message = f"{_java_class(error)}: {error.java_exception.getMessage()}" + (f" ({inner})" if outer else "")
            if _java_class(error) in _CONFLICTS or (_java_class(error) == _TRIED_OFTEN and _THERE in inner):
                raise KernelConflict(message) from error
            raise self._failure(error, message) from error
        except (PySparkException, Py4JError, OSError) as error:
            # PySpark turns some of Java's exceptions into its own; OSError is a commit that cannot be synced
            raise self._failure(error, str(error)) from error

    def _failure(self, error: Exception, message: str) -> ReplicaError:
        return failed_by(error)(
            f"Delta Kernel failed on the table {self.path}",
            found=message,
            hint="Check that the table's storage can be reached and written, then start again.",
        )

    def _sync(self, version: int) -> None:
        """Never to be waited out: an operating system tells of bytes that it lost once, and who reads them back from
        its memory would promise what is on no disk.
        """
        try:
            self._versions.sync(version)
        except OSError as error:
            raise ReplicaError(
                f"version {version} of the table {self.path} was committed, and cannot be forced to its disk",
                found=error,
                hint="Check the disk, and the table (logtwin verify), before starting again.",
            ) from error


def _java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())
