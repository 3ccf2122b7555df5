"""What becomes of a log becomes of its typed tables: they are what the log table has, whatever was done to it."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.config.typed_tables import TypedTableConfig
from pipeline.inspect.selection import ConfiguredLog
from pipeline.job.typed_tables import TypedTables
from pipeline.operate.backfill import Wanted, run_backfill
from sinks.delta.delta_log import newest
from sinks.state.log_table import LogTable
from sinks.typed.definition import Reading
from sinks.typed.rebuild import TypedRebuild, rebuild
from sinks.typed.step.follower import TypedFollower
from sinks.typed.table import TypedTable
from sources.errors import ReplicaError, StorageUnreachable
from sources.offsets import Offset
from sources.options import parse_options
from sources.registry import open_log
from tests.pipeline.repair_bench import BATCH_BYTES, TEST, Bench
from tests.pipeline.small_disk import disk as disk
from tests.pipeline.small_disk import fill
from tests.pipeline.typed.in_process import in_process
from tests.pipeline.typed.world import bring, definition
from tests.sinks.batches import opened, ranges

pytestmark = pytest.mark.job


class InProcessBench(Bench):
    """Its batches are given to the sink by hand."""

    def replicate(self) -> None:
        log = open_log(self.config.logs[0])
        replica = opened(self.spark, self.lake, log)
        at, end = replica.position() or log.bounds().start, log.bounds().end
        while at < end:
            to = log.end_of_batch(at, end, BATCH_BYTES)
            replica(ranges(at, to, log_id=str(TEST)))
            at = to


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Bench]:
    with in_process() as session:
        yield InProcessBench(session, tmp_path)


@pytest.fixture
def bench(empty: Bench) -> Bench:
    empty.log.append(random.Random(1), 80, body)
    empty.replicate()
    return empty


def body(number: int) -> bytes:
    """An object, or now and then no text at all."""
    return b"\xff\xfe" if number % 7 == 3 else json.dumps({"id": number, "note": "x" * (number * 37 % 400)}).encode()


def followers(bench: Bench) -> list[TypedFollower]:
    how = ({"name": "notes", "reading": Reading(format="text")}, {"name": "objects"})
    return [TypedFollower(bench.spark, str(bench.lake), definition(**one)) for one in how]


def assert_are_the_log(bench: Bench, tables: list[TypedFollower]) -> None:
    """Brought on, each message of the topic that the log table has, in its history, once; and nothing else."""
    for one in tables:
        bring(one)
    log = {(row["offset"], row["epoch"]) for row in bench.rows("log") if row["topic"] == "orders"}
    assert log
    for name in ("notes", "objects"):
        unfit = [row for row in bench.rows("unfit") if row["table"] == name]
        rows = [row["offset"] for row in bench.rows(f"tables/{name}")]
        assert sorted([*rows, *(row["offset"] for row in unfit)]) == sorted(offset for offset, _ in log)
        assert {(row["offset"], row["epoch"]) for row in unfit} <= log


def test_a_log_that_went_back_takes_its_tables_along(bench: Bench) -> None:
    tables = followers(bench)
    assert_are_the_log(bench, tables)
    bench.log.rewrite_from_the_middle()
    bench.repair()
    bench.log.append(random.Random(4), 40, body)
    bench.replicate()
    assert_are_the_log(bench, [tables[0], followers(bench)[1]])


def test_on_a_full_disk_a_step_is_done_again(disk: Path) -> None:
    """It says that this may pass; and what was written of it is gone."""
    with in_process() as session:
        bench = InProcessBench(session, disk)
        bench.log.append(random.Random(1), 80, body)
        bench.replicate()
        for one in followers(bench):
            bring(one)
        bench.log.append(random.Random(2), 80, body)
        bench.replicate()
        filling, tables = fill(disk), followers(bench)
        for one in tables:
            with pytest.raises(StorageUnreachable, match="No space left"):
                bring(one)
        filling.unlink()
        assert_are_the_log(bench, tables)
        for name in ("notes", "objects"):
            assert (version := newest(f"{bench.lake}/tables/{name}"))
            assert {one.name for one in (bench.lake / "tables" / name).glob("*.parquet")} == set(version.files)


def test_retention_and_backfill_are_followed(bench: Bench) -> None:
    tables = followers(bench)
    for one in tables:
        bring(one)
    table = LogTable(bench.spark, f"{bench.lake}/log", TEST)
    table.forget(Offset(bench.log.boundaries[30]))
    assert_are_the_log(bench, tables)
    run_backfill(bench.spark, bench.config, ConfiguredLog.alone(bench.config.logs[0]), Wanted.parse(None, None))
    assert_are_the_log(bench, tables)


BY_KEY = {"name": "by_key", "from": ["orders"], "format": "text", "mode": "upsert", "key": ["text"]}


def keyed(bench: Bench) -> TypedTables:
    table = parse_options(TypedTableConfig, BY_KEY, where="test")
    return TypedTables(bench.spark, bench.config.model_copy(update={"tables": (table,)}))


def assert_is_the_newest_of_each(bench: Bench) -> None:
    """Of what the log table has: a row for each text, the newest; and dead letters for what is no text."""
    newest: dict[str, int] = {}
    no_text = []
    for row in bench.rows("log"):
        if row["topic"] != "orders":
            continue
        try:
            newest[row["body"].decode()] = row["offset"]
        except UnicodeDecodeError:
            no_text.append(row["offset"])
    assert {row["text"]: row["offset"] for row in bench.rows("tables/by_key")} == newest
    assert [row["offset"] for row in bench.rows("unfit") if row["table"] == "by_key"] == no_text


def test_by_key_the_rows_that_a_log_took_back_had_replaced_return(empty: Bench) -> None:
    bench = empty
    bench.log.append(random.Random(1), 80, lambda at: b"\xff" if at % 9 == 4 else b"key %d" % (at % 7))
    bench.replicate()
    tables = keyed(bench)
    assert tables.bring(lambda: True) == []
    assert_is_the_newest_of_each(bench)
    before = bench.offsets("tables/by_key")
    branched_at = bench.log.rewrite_from_the_middle()
    bench.repair()
    assert tables.bring(lambda: True) == []
    assert_is_the_newest_of_each(bench)
    after = bench.offsets("tables/by_key")
    assert max(after) < branched_at
    assert {*after} - {*before}  # rows that had been replaced
    bench.replicate()
    assert tables.bring(lambda: True) == []
    assert_is_the_newest_of_each(bench)


def test_a_rebuild_that_another_overtook_is_refused(bench: Bench, tmp_path: Path) -> None:
    lake, wanted = str(bench.lake), definition(name="notes", reading=Reading(format="text"))
    bring(TypedFollower(bench.spark, lake, wanted))
    late = TypedRebuild.begun(bench.spark, lake, wanted)
    assert late is not None
    late.follower.bring_to_end()
    anew = bench.lake / "tables" / "notes.anew"
    shutil.copytree(anew, tmp_path / "kept")
    quicker = rebuild(bench.spark, lake, wanted)
    assert quicker is not None
    shutil.copytree(tmp_path / "kept", anew)
    with pytest.raises(ReplicaError, match="made anew meanwhile; expected generation 1, found 2"):
        late.exchange()
    on = TypedTable(bench.spark, lake, "notes").look()
    assert on is not None
    assert on.state == quicker
    bring(TypedFollower(bench.spark, lake, wanted))
    rows = bench.offsets("tables/notes")
    unfit = [row["offset"] for row in bench.rows("unfit")]
    assert sorted([*rows, *unfit]) == [row["offset"] for row in bench.rows("log") if row["topic"] == "orders"]
