"""Tables whose rows follow a commit to the log table, exactly once.

They also follow the acknowledgement, because producers wait for data and not for bookkeeping. What a commit owes to
such a table is in the commit's domain metadata (`sinks.state.log_state.LogState`), from which the next start can write
it. An append is idempotent by the version of an application, which grows with every commit that owes something. It is
the text of a domain with the application's name: to find conflicts Kernel compares any number of domains, but only one
application's transaction.

A commit that is refused may have landed all the same, and an append that finds its version there cannot tell whether it
wrote that itself. So files that were written for an append stay, whatever became of it: what no commit names is left to
VACUUM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sinks.delta.commits import OwnChain, retrying
from sinks.delta.data_file import DataFile
from sinks.delta.files import FileWriter, new_name
from sinks.delta.kernel import KernelTable, Snapshot
from sinks.storage.errors import failed_by
from sinks.tables import TableSpec, in_numbers
from sinks.warehouse import ensure_table
from sources.errors import ReplicaError
from sources.offsets import Offset


class FollowingTable:
    """The table `spec` at `path`. Driver only; one thread at a time."""

    def __init__(self, spark: SparkSession, spec: TableSpec, path: str) -> None:
        self.path = path
        self._spec = spec
        self._table = KernelTable(spark, path)
        self._chain: OwnChain[str, int] = OwnChain()

    def ensure(self) -> None:
        """Create the table unless it is there. Raises ConfigurationError if it is not ours."""
        ensure_table(self._table, self._spec)

    def versions(self, apps: Iterable[str]) -> dict[str, int]:
        """The version of each of `apps` in this table, 0 before its first row. Raises ReplicaError."""
        return self._versions_on(self._table.existing(), apps)

    def append(self, app_id: str, version: int, files: Callable[[], Sequence[DataFile]]) -> bool:
        """`append_each` for one application: add what `files` returns in one commit that brings it to `version`.

        Returns whether this call added them; False also where its own commit landed unheard. Raises ReplicaError.
        """
        return bool(self.append_each({app_id: version}, lambda _: files()))

    def append_each(self, owed: Mapping[str, int], files: Callable[[Collection[str]], Sequence[DataFile]]) -> set[str]:
        """Add in one commit what `files` returns for the applications in `owed` that are not at their version yet.

        `files` is called only if needed, and again only where others have changed what is needed. Returns these
        applications, without those of a commit that landed unheard. Raises ReplicaError.
        """
        found: Sequence[DataFile] = ()
        wanted = asked = set[str]()
        for attempt in retrying(self.failure):
            with attempt:
                snapshot = self._table.existing(to_commit=True)
                there = self._versions_on(snapshot, owed)
                wanted = {app for app, version in owed.items() if there[app] < version}
                if not wanted:
                    break
                if wanted != asked:
                    found, asked = files(wanted), wanted
                versions = {app: owed[app] for app in wanted}
                domains = {app: str(version) for app, version in versions.items()}
                version = self._table.commit(snapshot, found, domains=domains)
                self._chain.committed(snapshot.version, version, versions)
        return wanted

    def _versions_on(self, snapshot: Snapshot, apps: Iterable[str]) -> dict[str, int]:
        """Read them from metadata, or from the transaction that an older version wrote."""

        def ask(unknown: Sequence[str]) -> dict[str, int]:
            said = snapshot.domains()
            found = {app: int(said[app]) for app in unknown if app in said}
            others = self._table.transaction_versions(snapshot, [app for app in unknown if app not in found])
            return found | {app: version or 0 for app, version in others.items()}

        return self._chain.values(snapshot.version, apps, ask)

    def written(self, rows: Sequence[Mapping[str, Any]], start: int) -> DataFile:
        """A file with `rows`, in which times are microseconds since 1970, UTC, and `start` in its name.

        Raises ReplicaError.
        """
        schema = self._spec.schema.remove_metadata()
        batch = pa.RecordBatch.from_pylist(rows, schema=in_numbers(schema)).cast(schema)
        try:
            with FileWriter(self._spec, self.path, new_name(Offset(start))) as writer:
                writer.write(batch)
                return writer.finish()
        except OSError as error:
            raise self.failure(error) from error

    def failure(self, found: object) -> ReplicaError:
        """The error that says that nothing can be written, because of what was `found`."""
        return failed_by(found)(
            f"what a commit owes to the table {self._spec.name} cannot be written",
            expected=f"to add rows to {self.path}",
            found=found,
            hint="The data itself is committed and acknowledged; the rows are restored at the next start.",
        )

    def run_hooks(self, *, checkpoint_aside: bool = False) -> None:
        self._table.run_hooks(checkpoint_aside=checkpoint_aside)
