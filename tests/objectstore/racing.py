"""A job that commits to a log table as often as it is told, beside others that do the same.

``python -m tests.objectstore.racing WAREHOUSE NAME KIND COMMITS`` says ``ready`` and waits for a line. Then it says in
one line of JSON which commits it was told had succeeded, by what each holds and nothing else does.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from sinks.delta.data_file import DataFile
from sinks.delta.kernel import KernelConflict, KernelTable
from sinks.state.fence import this_writer
from sinks.storage.hadoop import reach
from sinks.storage.place import placed
from sinks.tables import LOG
from sinks.warehouse import ensure_tables
from sources.errors import ReplicaError, TakenOver
from sources.offsets import LogId, Offset
from tests.sinks.one_log import OneLog
from tests.spark_session import delta_session

SHARED: Final = LogId("rocketmq", "shared")
_MOVES: Final = 3
_READY: Final = "ready"


def append(spark: SparkSession, warehouse: str, name: str, commits: int) -> list[str]:
    """Each commit adds a file, under a domain of this job's own, which nobody else writes."""
    table = KernelTable(spark, LOG.path(warehouse))
    said = []
    for number in range(commits):
        file = f"{name}-{number}.parquet"
        while file not in said:
            try:
                table.commit(
                    table.existing(to_commit=True),
                    [_file(file)],
                    transactions={name: number + 1},
                    domains={name: str(number)},
                )
            except KernelConflict:
                continue
            said.append(file)
        table.run_hooks()
    return said


def own(spark: SparkSession, warehouse: str, name: str, commits: int) -> list[str]:
    """Claims one log, as the other does, moves it a few times, and claims it again: a file for each move."""
    table, writer = OneLog(spark, LOG.path(warehouse), SHARED), this_writer()
    said: list[str] = []
    while len(said) < commits:
        try:
            state = table.claim(writer)
            said.append(state.commit)
            for number in range(_MOVES):
                held = table.read()
                if held.state != state:
                    break
                state = state.moved_to(Offset((state.offset or 0) + 10), first=Offset(0), ledger=[])
                table.commit(held, state, [_file(f"{name}-{len(said)}-{number}.parquet")])
                said.append(state.commit)
        except TakenOver:
            continue
        except ReplicaError as error:
            if "refuses the commit" not in error.problem:  # the other was quicker each time
                raise
        table.run_hooks()
    return said


KINDS: Final[Mapping[str, Callable[[SparkSession, str, str, int], list[str]]]] = {"append": append, "own": own}


def _file(name: str) -> DataFile:
    """Nobody reads it."""
    return DataFile(name, size_bytes=1, modified_ms=1, records=0, statistics='{"numRecords":0}')


def contents(version: bytes) -> dict[str, Any]:
    """The actions of a version by their kind, the last one of each, and under `domains` the text of each domain."""
    actions = [action for line in version.splitlines() for action in json.loads(line).items()]
    domains = {fields["domain"]: fields["configuration"] for kind, fields in actions if kind == "domainMetadata"}
    return {**dict(actions), "domains": domains}


def main(warehouse: str, name: str, kind: str, commits: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = delta_session(Path(folder))
        reach(spark, placed(warehouse), folder)
        ensure_tables(spark, warehouse)
        print(_READY, flush=True)  # noqa: T201
        sys.stdin.readline()
        print(json.dumps(KINDS[kind](spark, warehouse, name, int(commits))), flush=True)  # noqa: T201
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
