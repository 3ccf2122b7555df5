"""Every fault that the proof has to stand: found, named, nothing wrong acknowledged; and after what the documents say
to do, the replica equals the master, or the loss is on record. Through the command line, as an operator meets it.

A master of files (`path`) takes the faults that no broker would start with; the embedded master, over HA, shows what
was acknowledged to it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.rocketmq.format.layout import LEAD
from tests.pipeline.faulty_log import FILE_SIZE_BYTES, FaultyLog
from tests.pipeline.masters import Served
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.running import bytes_of, log_table
from tests.sources.rocketmq.embedded.embedded import master_and_loop, settings_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 20261121
MESSAGES = 300
BATCH_BYTES = 65_000  # three batches


@pytest.fixture
def moments() -> random.Random:
    return random.Random(SEED)


@pytest.fixture
def log(tmp_path: Path, moments: random.Random) -> FaultyLog:
    """About 180 kB in six files."""
    found = FaultyLog(tmp_path / "master")
    found.append(moments, MESSAGES)
    return found


@pytest.fixture
def operator(spark: SparkSession, tmp_path: Path, log: FaultyLog, capsys: pytest.CaptureFixture[str]) -> Operator:
    found = Operator(tmp_path, capsys)
    found.configure(path=log.path, max_bytes_per_trigger=BATCH_BYTES)
    return found


@contextmanager
def served(operator: Operator, log: FaultyLog) -> Iterator[Served]:
    """The log as a broker serves it, at addresses of its own each time."""
    with master_and_loop(settings_for(log.root)) as (master, loop):
        found = Served(master, loop)
        operator.configure(**found.options, max_bytes_per_trigger=BATCH_BYTES)
        yield found


def assert_equal(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    """The table is what the master holds, and was told so by every proof there is."""
    assert bytes_of(spark, operator.lake) == log.everything()
    operator.must("coverage")
    operator.must("verify", "--restart")


DIVERGED = [
    pytest.param(FaultyLog.lose_a_record, 3, "AboveMaximum", marks=pytest.mark.soak),  # by path: test_repair.py
    pytest.param(FaultyLog.lose_a_file, 3, "AboveMaximum", marks=pytest.mark.soak),
    (FaultyLog.rewrite_from_the_middle, 4, "Rewritten"),
]


@pytest.mark.soak
def test_a_master_of_files_that_was_rewritten_is_refused_and_repaired(
    spark: SparkSession, operator: Operator, log: FaultyLog
) -> None:
    """The rows that go are kept; those below the common record are not touched."""
    operator.replicates()
    before = log_table(spark, operator.lake).count()
    common = log.rewrite_from_the_middle()
    operator.fails(4, "Rewritten")
    assert log_table(spark, operator.lake).count() == before
    operator.must("repair")
    removed = spark.read.format("delta").load(f"{operator.lake}/removed")
    assert removed.agg({"offset": "min"}).head()[0] == common  # type: ignore[index]
    assert removed.count() + log_table(spark, operator.lake).count() == before
    log.append(random.Random(SEED + 2), 30)
    operator.replicates()
    assert_equal(spark, operator, log)


@pytest.mark.parametrize(("fault", "code", "error"), DIVERGED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_master_that_diverged_is_told_nothing_wrong_and_repaired_over_ha(
    spark: SparkSession, operator: Operator, log: FaultyLog, fault: Callable[[FaultyLog], int], code: int, error: str
) -> None:
    """Over HA. Below the common point it may be told that we have what both have."""
    with served(operator, log):
        operator.replicates()
    common = fault(log)
    with served(operator, log) as master, master.watched() as acknowledged:
        operator.fails(code, error)
        assert max(acknowledged, default=0) <= max(common, log.end if error == "Rewritten" else 0)
        operator.must("repair")
    log.append(random.Random(SEED + 2), 30)
    with served(operator, log) as master, master.watched() as acknowledged:
        operator.replicates()
        assert bytes_of(spark, operator.lake) == log.everything()
        assert max(acknowledged) == log.end
        operator.must("verify", "--restart")


def test_a_master_that_lost_one_byte(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    """A torn last record: by path it is no record, and a broker that starts cuts it off."""
    operator.replicates()
    torn, kept = log.end - 1, log.boundaries[-2]
    log.cut_at(torn)
    operator.fails(3, "AboveMaximum")
    with served(operator, log) as master:
        assert master.end == kept
        operator.fails(3, "AboveMaximum")
        operator.must("repair")
    log.append(random.Random(SEED + 2), 30)
    operator.configure(path=log.path)
    operator.replicates()
    assert_equal(spark, operator, log)


def test_an_empty_master_is_not_believed(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    with served(operator, log):
        operator.replicates()
    held = bytes_of(spark, operator.lake)
    log.empty()
    with served(operator, log) as master, master.watched() as acknowledged:
        operator.fails(4, "Recreated")
        operator.fails(4, "Recreated", "repair", "--log", "rocketmq/test")
        assert bytes_of(spark, operator.lake) == held
        operator.must("repair", "--accept-master")
        assert max(acknowledged, default=0) == 0
    log.append(random.Random(SEED + 2), 50)
    operator.configure(path=log.path)
    operator.replicates()
    assert_equal(spark, operator, log)
    removed = spark.read.format("delta").load(f"{operator.lake}/removed")
    assert removed.agg({"size": "sum"}).head()[0] == len(held)  # type: ignore[index]


def test_retention_overtook_the_replica(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    operator.replicates()
    position = log.end
    log.append(random.Random(SEED + 2), MESSAGES)
    whole = log.everything()
    log.forget_front((position // FILE_SIZE_BYTES) + 2)
    said = operator.fails(3, "BelowMinimum")
    assert str(position) in said.err
    assert str(log.start) in said.err

    operator.configure(path=log.path, on_loss="record")
    operator.replicates()
    assert bytes_of(spark, operator.lake) == whole[:position] + whole[log.start :]
    assert "below_minimum" in operator.must("incidents list").out
    operator.must("coverage")  # not whole, and every byte that is not there is accounted for

    operator.must("backfill", "--log", "rocketmq/test", "--path", str(log.archive))
    assert bytes_of(spark, operator.lake) == whole
    assert "below_minimum" not in operator.must("incidents list").out
    operator.must("coverage")


def test_a_file_in_the_middle_is_missing(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    whole = log.everything()
    missing = int(log.lose(2).name)
    said = operator.fails(4, "MissingSegment")
    assert f"{missing:020d}" in said.err

    operator.configure(path=log.path, on_loss="record")
    operator.replicates()
    assert bytes_of(spark, operator.lake) == whole[:missing] + whole[missing + FILE_SIZE_BYTES :]
    assert "gap" in operator.must("incidents list").out
    operator.must("coverage")

    operator.must("backfill", "--log", "rocketmq/test", "--path", str(log.archive))
    assert bytes_of(spark, operator.lake) == whole
    operator.must("coverage")


FIELDS = {  # offset in a V1 record over IPv4; section 1.2 of the format
    "size": 3, "magic": 7, "body_crc": 9, "queue_id": 15, "flag": 19, "queue_offset": 27, "offset": 35, "sys_flag": 39,
    "born_timestamp": 47, "born_host": 50, "store_timestamp": 63, "store_host": 66, "reconsume_times": 75,
    "prepared_transaction_offset": 83, "body_length": 87, "body": 90,
}  # fmt: skip
STRUCTURE = {"size", "magic", "body_crc", "offset", "body_length", "body"}
"""What contradicts itself when one byte of it is another. The rest a master may say as it likes: it is the master."""


def _flip_each_field(log: FaultyLog) -> dict[str, int]:
    """One byte of each field, each in a record of its own; where those records start."""
    assert LEAD.size == 48
    boundaries = log.boundaries
    chosen = dict(zip(FIELDS, boundaries[10::16], strict=False))
    for field, record in chosen.items():
        log.flip(record + FIELDS[field], 0x01)
    return chosen


def test_a_byte_flipped_in_each_field_of_what_was_replicated(
    spark: SparkSession, operator: Operator, log: FaultyLog
) -> None:
    operator.replicates()
    chosen = _flip_each_field(log)
    said = operator.fails(5, "Divergent", "verify", "--restart")
    for field, record in chosen.items():
        assert str(record) in said.out + said.err, field
    assert bytes_of(spark, operator.lake) == log.everything()  # the archive is spared: that is what was replicated


def test_a_byte_flipped_in_each_field_of_what_is_to_come(
    spark: SparkSession, operator: Operator, log: FaultyLog
) -> None:
    whole = log.everything()
    chosen = _flip_each_field(log)
    operator.fails(4, "CorruptRecord")
    assert not (operator.lake / "log").exists() or log_table(spark, operator.lake).count() < 40

    operator.configure(path=log.path, on_loss="record")
    operator.replicates()
    operator.must("coverage")
    quarantined = spark.read.format("delta").load(f"{operator.lake}/quarantine").collect()
    found = {row["offset"] for row in quarantined}
    assert {chosen[field] for field in STRUCTURE} <= found
    damaged = b"".join(file.read_bytes() for file in sorted(log.path.iterdir()))
    for row in quarantined:
        assert bytes(row["bytes"]) == damaged[row["offset"] : row["end"]]

    operator.must("backfill", "--log", "rocketmq/test", "--path", str(log.archive))
    operator.must("coverage")
    rebuilt = bytes_of(spark, operator.lake)
    assert len(rebuilt) == len(whole)
    for row in quarantined:
        assert rebuilt[row["offset"] : row["end"]] == whole[row["offset"] : row["end"]]


def test_a_byte_flipped_in_a_file_of_the_replica(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    operator.replicates()
    file = max((operator.lake / "log").glob("*.parquet"), key=lambda one: one.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    for crc in (operator.lake / "log").glob(f".{file.name}.crc"):
        crc.unlink()
    said = operator.fails(5, "Divergent", "verify", "--restart")
    assert "replica" in said.out + said.err
    assert "replica_damaged" in operator.must("incidents list").out
    operator.must("repair")
    operator.must("backfill", "--log", "rocketmq/test")
    operator.replicates()
    assert_equal(spark, operator, log)


def test_the_newest_entry_of_the_delta_log_is_missing(spark: SparkSession, operator: Operator, log: FaultyLog) -> None:
    """The table is what it was before that commit, position included; its ledger knows better."""
    operator.replicates()
    entries = sorted((operator.lake / "log" / "_delta_log").glob("*.json"))
    for leftover in (entries[-1], entries[-1].with_name(f".{entries[-1].name}.crc"), entries[-1].with_suffix(".crc")):
        leftover.unlink(missing_ok=True)
    log.append(random.Random(SEED + 2), 30)
    operator.fails(5, "ReplicaError")
    operator.must("repair")
    operator.replicates()
    assert_equal(spark, operator, log)


def test_an_entry_in_the_middle_of_the_delta_log_is_missing(
    spark: SparkSession, operator: Operator, log: FaultyLog
) -> None:
    operator.replicates()
    entry = operator.lake / "log" / "_delta_log" / f"{2:020d}.json"
    kept = entry.read_bytes()
    entry.unlink()
    log.append(random.Random(SEED + 2), 30)
    said = operator.does("replicate", "--available-now")
    assert said.code == 5
    assert "Kernel" in said.err
    entry.write_bytes(kept)  # from a backup, as the documents say
    operator.replicates()
    assert_equal(spark, operator, log)


@pytest.mark.parametrize("kept", [0, 1], ids=["emptied", "cut"])
def test_an_entry_in_the_middle_of_the_delta_log_has_lost_lines(
    spark: SparkSession, operator: Operator, log: FaultyLog, kept: int
) -> None:
    operator.replicates()
    log.append(random.Random(SEED + 2), 30)
    operator.replicates()
    entry = sorted((operator.lake / "log" / "_delta_log").glob("*.json"))[-2]
    whole = entry.read_bytes()
    entry.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
    for verb in ("coverage", "status"):
        said = operator.does(verb)
        assert (said.code, entry.name in said.err) == (5, True), said
    entry.write_bytes(whole)  # from a backup, as the documents say
    operator.must("coverage")
    assert_equal(spark, operator, log)
