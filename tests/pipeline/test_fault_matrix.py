"""Every fault that the proof has to stand: found, named, nothing wrong acknowledged; and after what the documents say
to do, the replica equals the master, or the loss is on record. Through the command line, as an operator meets it.

A master of files (`path`) takes the faults that no broker would start with; the embedded master, over HA, shows what
was acknowledged to it.
"""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sources.rocketmq.format.layout import LEAD
from tests.pipeline.faulty_log import FILE_SIZE_BYTES, FaultyLog
from tests.pipeline.group_in_process import also_with_spark
from tests.pipeline.masters import Served
from tests.pipeline.operator_at_work import Operator
from tests.pipeline.read_back import count_of, rebuilt, table_of
from tests.pipeline.running import job_config, replicate_now
from tests.sources.rocketmq.embedded.embedded import master_and_loop, settings_for
from tests.truth import Fixture

pytestmark = pytest.mark.timeout(300)

SEED = 20261121
MESSAGES = 120
BATCH_BYTES = 25_000  # three batches


@pytest.fixture(scope="module")
def replicated(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a master, about 70 kB in three files, and its replica. To be copied, not changed."""
    folder = tmp_path_factory.mktemp("replicated")
    log = FaultyLog(folder / "master")
    log.append(random.Random(SEED), MESSAGES)
    replicate_now(session, job_config(folder / "lake", path=str(log.path), max_bytes_per_trigger=BATCH_BYTES))
    return folder


@pytest.fixture
def log(replicated: Path, tmp_path: Path) -> FaultyLog:
    shutil.copytree(replicated, tmp_path, dirs_exist_ok=True)
    return FaultyLog(tmp_path / "master")


@pytest.fixture
def operator(log: FaultyLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
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


def goes_on(operator: Operator, log: FaultyLog) -> None:
    """More is replicated; then the table is what the master holds, and every proof there is says so."""
    log.append(random.Random(SEED + 2), 30)
    operator.configure(path=log.path)
    operator.replicates()
    assert rebuilt(operator.lake) == log.everything()
    operator.must("coverage")
    operator.must("verify", "--restart")


@pytest.mark.parametrize(
    ("fault", "code", "error"),
    [
        pytest.param(FaultyLog.lose_a_record, 3, "AboveMaximum", marks=pytest.mark.nightly),  # by path: test_repair.py
        pytest.param(FaultyLog.lose_a_file, 3, "AboveMaximum", marks=pytest.mark.nightly),
        (FaultyLog.rewrite_from_the_middle, 4, "Rewritten"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_diverged_master_is_told_nothing_wrong_and_the_replica_repaired(
    operator: Operator, log: FaultyLog, fault: Callable[[FaultyLog], int], code: int, error: str
) -> None:
    """Over HA. Below the common point it may be told that we have what both have. The rows that go are kept."""
    before = count_of(operator.lake)
    common = fault(log)
    with served(operator, log) as master, master.watched() as acknowledged:
        operator.fails(code, error)
        assert count_of(operator.lake) == before
        assert max(acknowledged, default=0) <= max(common, log.end if error == "Rewritten" else 0)
        operator.must("repair")
    assert table_of(operator.lake, "removed")["offset"].to_pylist()[0] == common
    assert count_of(operator.lake, "removed") + count_of(operator.lake) == before
    log.append(random.Random(SEED + 2), 30)
    with served(operator, log) as master, master.watched() as acknowledged:
        operator.replicates()
        assert rebuilt(operator.lake) == log.everything()
        assert max(acknowledged) == log.end
        operator.must("verify", "--restart")


def test_a_master_that_lost_one_byte(operator: Operator, log: FaultyLog) -> None:
    """A torn last record: by path it is no record, and a broker that starts cuts it off."""
    torn, kept = log.end - 1, log.boundaries[-2]
    log.cut_at(torn)
    operator.fails(3, "AboveMaximum")
    with served(operator, log) as master:
        assert master.end == kept
        operator.fails(3, "AboveMaximum")
        operator.must("repair")
    goes_on(operator, log)


def test_an_empty_master_is_not_believed(operator: Operator, log: FaultyLog) -> None:
    held = rebuilt(operator.lake)
    log.empty()
    with served(operator, log) as master, master.watched() as acknowledged:
        operator.fails(4, "Recreated")
        operator.fails(4, "Recreated", "repair", "--log", "rocketmq/test")
        assert rebuilt(operator.lake) == held
        operator.must("repair", "--accept-master")
        assert max(acknowledged, default=0) == 0
    goes_on(operator, log)
    assert sum(table_of(operator.lake, "removed")["size"].to_pylist()) == len(held)


@pytest.mark.parametrize(
    ("is_gone", "code", "error", "condition"),
    [(True, 3, "BelowMinimum", "below_minimum"), (False, 4, "MissingSegment", "gap")],
    ids=["retention overtook the replica", "a file in the middle is missing"],
)
def test_what_a_master_lost_is_passed_on_record_and_filled_from_an_archive(
    operator: Operator, log: FaultyLog, is_gone: bool, code: int, error: str, condition: str
) -> None:
    position = log.end
    log.append(random.Random(SEED + 2), MESSAGES)
    whole = log.everything()
    if is_gone:
        log.forget_front((position // FILE_SIZE_BYTES) + 2)
        start, end = int(position), int(log.start)
    else:
        start = int(log.lose(3).name)
        end = start + FILE_SIZE_BYTES
    said = operator.fails(code, error)
    assert str(start) in said.err
    assert not is_gone or str(end) in said.err
    assert rebuilt(operator.lake) == whole[:start]

    operator.configure(path=log.path, on_loss="record")
    operator.replicates()
    assert rebuilt(operator.lake) == whole[:start] + whole[end:]
    assert condition in operator.must("incidents list").out
    operator.must("coverage")  # not whole, and every byte that is not there is accounted for

    operator.must("backfill", "--log", "rocketmq/test", "--path", str(log.archive))
    assert rebuilt(operator.lake) == whole
    assert condition not in operator.must("incidents list").out
    operator.must("coverage")


FIELDS = {  # offset in a V1 record over IPv4; section 1.2 of the format
    "size": 3, "magic": 7, "body_crc": 9, "queue_id": 15, "flag": 19, "queue_offset": 27, "offset": 35, "sys_flag": 39,
    "born_timestamp": 47, "born_host": 50, "store_timestamp": 63, "store_host": 66, "reconsume_times": 75,
    "prepared_transaction_offset": 83, "body_length": 87, "body": 90,
}  # fmt: skip
STRUCTURE = {"size", "magic", "body_crc", "offset", "body_length", "body"}
"""What contradicts itself when one byte of it is another. The rest a master may say as it likes: it is the master."""


def _flip_each_field(log: FaultyLog, start: int = 0) -> dict[str, int]:
    """One byte of each field, each in a message of its own from `start` on, none in the newest file, where damage would
    be the end of the log so far. Where those messages start.
    """
    assert LEAD.size == 48
    messages = [at for at in log.messages if at >= start]
    chosen = dict(zip(FIELDS, messages[5::6], strict=False))
    assert chosen.keys() == FIELDS.keys()
    for field, at in chosen.items():
        log.flip(at + FIELDS[field], 0x01)
    return chosen


def test_a_byte_flipped_in_each_field_of_what_was_replicated(operator: Operator, log: FaultyLog) -> None:
    chosen = _flip_each_field(log)
    said = operator.fails(5, "Divergent", "verify", "--restart")
    for field, at in chosen.items():
        assert str(at) in said.out + said.err, field
    assert rebuilt(operator.lake) == log.everything()  # the archive is spared: that is what was replicated


def test_a_byte_flipped_in_each_field_of_what_is_to_come(operator: Operator, log: FaultyLog) -> None:
    position = log.end
    log.append(random.Random(SEED + 2), 2 * MESSAGES)
    whole = log.everything()
    before = [at for at in log.boundaries[:-1] if at < position]
    chosen = _flip_each_field(log, position)
    said = operator.fails(4, "CorruptRecord")
    assert {"expected", "found"} <= set(re.findall(r"\w+", said.err))
    assert table_of(operator.lake, "log")["offset"].to_pylist()[: len(before)] == before
    assert max(table_of(operator.lake, "log")["offset"].to_pylist()) < chosen["size"]

    operator.configure(path=log.path, on_loss="record")
    operator.replicates()
    operator.must("coverage")
    quarantined = table_of(operator.lake, "quarantine").to_pylist()
    assert {chosen[field] for field in STRUCTURE} <= {row["offset"] for row in quarantined}
    damaged = b"".join(file.read_bytes() for file in sorted(log.path.iterdir()))
    for row in quarantined:
        assert row["bytes"] == damaged[row["offset"] : row["end"]]

    operator.must("backfill", "--log", "rocketmq/test", "--path", str(log.archive))
    operator.must("coverage")
    found = rebuilt(operator.lake)
    assert len(found) == len(whole)
    for row in quarantined:
        assert found[row["offset"] : row["end"]] == whole[row["offset"] : row["end"]]


def refused(operator: Operator, code: int, *words: object) -> None:
    said = operator.fails(code, "")
    assert [word for word in words if str(word) not in said.err] == []
    assert count_of(operator.lake) == 0


def test_bad_input_is_named_and_nothing_is_written(fixture_550: Fixture, operator: Operator, tmp_path: Path) -> None:
    """A truncated file, a start beyond the end, a host that does not exist."""
    shutil.rmtree(operator.lake)
    log = shutil.copytree(fixture_550.commitlog_path, tmp_path / "commitlog")
    operator.configure(path=log, starting_offset=99999999)
    refused(operator, 3, 99999999, fixture_550.max_offset)
    last = max(log.iterdir())
    with last.open("r+b") as file:
        file.truncate(fixture_550.max_offset % 1048576 - 10)
    operator.configure(path=log)
    refused(operator, 4, last.name)
    host = "no-such-host.invalid"
    operator.configure(master=f"{host}:10912", remoting=f"{host}:10911", connect_attempts=1)
    refused(operator, 3, host)


def entries(operator: Operator) -> list[Path]:
    return sorted((operator.lake / "log" / "_delta_log").glob("*.json"))


@also_with_spark
def test_the_newest_entry_of_the_delta_log_is_missing(operator: Operator, log: FaultyLog) -> None:
    """The table is what it was before that commit, position included; its ledger knows better."""
    newest = entries(operator)[-1]
    for leftover in (newest, newest.with_name(f".{newest.name}.crc"), newest.with_suffix(".crc")):
        leftover.unlink(missing_ok=True)
    log.append(random.Random(SEED + 3), 30)
    operator.fails(5, "ReplicaError")
    operator.must("repair")
    goes_on(operator, log)


def test_an_entry_in_the_middle_of_the_delta_log_is_missing_or_has_lost_lines(
    operator: Operator, log: FaultyLog
) -> None:
    entry = entries(operator)[-2]
    whole = entry.read_bytes()
    entry.unlink()
    log.append(random.Random(SEED + 3), 30)
    operator.fails(5, "ReplicaError")
    for kept in (0, 1):
        entry.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
        for verb in ("coverage", "status"):
            said = operator.does(verb)
            assert (said.code, entry.name in said.err) == (5, True), said
    entry.write_bytes(whole)  # from a backup, as the documents say
    goes_on(operator, log)
