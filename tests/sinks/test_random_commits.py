"""Whatever is committed to a table, Kernel, its stand-in and the reader of Delta logs say the same of it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sinks.delta.delta_log import newest
from sinks.delta.kernel import KernelConflict, KernelTable
from sinks.tables import LEDGER
from sinks.warehouse import spark_schema
from sources.errors import ReplicaError
from tests.sinks.plain_table import PlainTable
from tests.sinks.test_both_tables import A, bounded

NAMES = st.sampled_from("ab")
DOMAINS = st.dictionaries(NAMES, st.sampled_from([None, "1", "2"]), max_size=2)
TEXTS = st.dictionaries(NAMES, st.sampled_from(["1", "2"]), max_size=2)
TRANSACTION = st.none() | st.tuples(NAMES, st.integers(0, 3))
SOME = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), SOME, SOME, SOME, DOMAINS, TRANSACTION),
        st.tuples(st.just("replace"), SOME, SOME, SOME, TEXTS, TRANSACTION),
        st.tuples(st.just("replace over appends"), SOME, SOME, SOME, TEXTS, TRANSACTION),
        st.tuples(st.just("rearrange"), SOME, SOME, SOME, st.none(), st.none()),
        st.tuples(st.just("properties"), SOME, SOME, SOME, st.none(), st.none()),
        st.tuples(st.just("checkpoint"), SOME, SOME, SOME, st.none(), st.none()),
    ),
    min_size=4, max_size=8,
)  # fmt: skip
Step = tuple[str, int, int, int, Any, Any]


def take(table: Any, number: int, versions: list[Any], step: Step) -> int | str:
    """One step on a version of at most two commits ago: the version that it makes, or the kind of its error."""
    what, stale, removed, added, domains, transaction = step
    on = versions[max(0, len(versions) - 1 - stale)]
    files = [bounded(f"f{number}-{at}", {}, {}) for at in range(added)]
    gone = sorted(table.files(on, A), key=lambda file: str(file.path))[:removed]
    parts: list[Any] = [({}, file) for file in files]
    try:
        match what:
            case "commit":
                return int(table.commit(on, files, transaction=transaction, domains=domains))
            case "rearrange":
                return int(table.rearrange(on, gone, parts))
            case "checkpoint":
                return checkpointed(table)
            case "properties":
                return int(table.set_properties(on, {"delta.logRetentionDuration": f"interval {number + 1} days"}))
            case _:
                over = what.endswith("appends")
                return int(table.replace(on, gone, parts, domains=domains, transaction=transaction, over_appends=over))
    except (KernelConflict, ReplicaError) as error:
        return type(error).__name__


def checkpointed(table: Any) -> int:
    """With the checksums of the commits before, and what only Kernel has."""
    if isinstance(table, KernelTable):
        table.run_hooks()
        table.checkpoint(table.existing())
    return int(table.existing().version)


def said(table: Any) -> tuple[Any, ...]:
    on = table.existing()
    transactions = [on.transaction_version(name) for name in "ab"]
    files = {file.path: file.statistics() for file in table.files(on, A)}
    return on.version, on.domains(), files, json.loads(on.schema_json()), transactions, on.properties()


@pytest.mark.spark
@given(steps=STEPS)
def test_kernel_its_stand_in_and_the_reader_agree(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, steps: Sequence[Step]
) -> None:
    folder = tmp_path_factory.mktemp("both")
    tables: list[Any] = [KernelTable(spark, str(folder / "kernel")), PlainTable(spark, str(folder / "plain"))]
    for table in tables:
        table.create(spark_schema(LEDGER.schema), LEDGER.properties, LEDGER.clustering)
    versions = [[table.existing()] for table in tables]
    for number, step in enumerate(steps):
        done = [take(table, number, mine, step) for table, mine in zip(tables, versions, strict=True)]
        assert done[0] == done[1], step
        assert said(tables[0]) == said(tables[1]), step
        logged = newest(tables[0].path)
        assert logged is not None
        files = {path: file.statistics() for path, file in logged.files.items()}
        assert (logged.version, logged.domains(), files, json.loads(logged.schema_json())) == said(tables[0])[:4]
        for table, mine in zip(tables, versions, strict=True):
            mine.append(table.existing())
