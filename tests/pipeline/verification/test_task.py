"""What a task makes of what cannot be read: a verdict on the claims it concerns, and on no others; and its limit of
speed.
"""

import errno
import hashlib
import pickle
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from pipeline.verify.sections import At, ClaimSection, SectionComparer, Throttle
from sinks.delta.files import FileWriter, new_name
from sinks.proof import stored
from sinks.proof.stored import Part
from sinks.proof.verdicts import Claim, Compared, Verdict
from sinks.tables import LOG
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    LogtwinError,
    MasterUnreachable,
    MissingSegment,
    ReplicaError,
    StorageUnreachable,
    find_error,
)
from sources.offsets import Offset, OffsetRange
from tests.pipeline.waiting_clock import WaitingClock
from tests.sinks.memory_master import BROKER_A, MemoryMaster, raw_bytes

SIZES = (100,) * 30


@dataclass(frozen=True, slots=True)
class Lacking(MemoryMaster):
    """Cannot give what overlaps [1000, 2000): `error`."""

    error: LogtwinError = field(default_factory=lambda: ReplicaError("replaced by each test"))

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        assert committed == 3000
        yield from ()
        if wanted.start < 2000 and wanted.end > 1000:
            raise self.error
        yield from MemoryMaster.raw(self, wanted, committed=committed)


MASTER = MemoryMaster(SIZES)
ROWS = MASTER.records()


def claim(start: int, end: int) -> Claim:
    raw = b"".join(raw_bytes(row) for row in ROWS if start <= row["offset"] < end)
    checksum = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    return Claim(OffsetRange(Offset(start), Offset(end)), checksum, len(raw) // 100)


CLAIMS = (claim(0, 1000), claim(1000, 2000), claim(2000, 3000))


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Part, ...]:
    found = []
    for one in CLAIMS:
        rows = [{"log_id": str(BROKER_A), "epoch": 0, **row} for row in ROWS if row["offset"] in one.range]
        with FileWriter(LOG, str(tmp_path), new_name(one.range.start)) as writer:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=LOG.schema.remove_metadata()))
            file = writer.finish()
        found.append(Part(file.name, one.range, file.records, file.size_bytes))
    return tuple(found)


def compared(
    folder: Path, parts: tuple[Part, ...], master: MemoryMaster = MASTER, at: At = At.MASTER
) -> list[Compared]:
    compare = SectionComparer(master=master, folder=str(folder), position=Offset(3000), bytes_per_s=None)
    section = ClaimSection(CLAIMS, at, parts)
    ((told, found),) = pickle.loads(pickle.dumps(compare))([section])  # noqa: S301 - ours
    assert told == section
    assert tuple(one.claim for one in found) == CLAIMS
    return list(found)


def test_a_file_that_cannot_be_read_concerns_its_own_claims(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    (tmp_path / parts[1].path).write_bytes(b"no Parquet")
    found = compared(tmp_path, parts)
    assert [one.verdict for one in found] == [Verdict.EQUAL, Verdict.UNREADABLE, Verdict.EQUAL]
    assert parts[1].path in str(found[1].error)


def test_a_storage_that_is_away_is_no_verdict(
    tmp_path: Path, parts: tuple[Part, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "open_parquet", Mock(side_effect=OSError(errno.EIO, "away")))
    with pytest.raises(RuntimeError) as caught:
        compared(tmp_path, parts)
    assert isinstance(find_error(str(caught.value)), StorageUnreachable)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MissingSegment("gone", offset=1000), Verdict.MASTER_UNREADABLE),
        (BelowMinimum("gone"), Verdict.EQUAL),  # held against the ledger
        (AboveMaximum("gone"), Verdict.MASTER_LACKS),
    ],
)
def test_what_the_master_lacks_concerns_its_own_claims(
    tmp_path: Path, parts: tuple[Part, ...], error: LogtwinError, verdict: Verdict
) -> None:
    found = compared(tmp_path, parts, Lacking(SIZES, error=error))
    assert [one.verdict for one in found] == [Verdict.EQUAL, verdict, Verdict.EQUAL]
    assert [one.with_master for one in found] == [True, False, True]
    assert ("gone" in str(found[1].error)) == (verdict is not Verdict.EQUAL)


def test_a_master_that_ends_before(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    planned = compared(tmp_path, parts, at=At.BEYOND)
    assert {one.verdict for one in planned} == {Verdict.MASTER_LACKS}


def test_a_damaged_replica_is_worse_than_a_master_without_it(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    found = compared(tmp_path, parts[:2], Lacking(SIZES, error=AboveMaximum("cut")), at=At.BEYOND)
    assert [one.verdict for one in found] == [Verdict.MASTER_LACKS, Verdict.MASTER_LACKS, Verdict.REPLICA_DAMAGED]


def test_a_master_that_is_away_ends_the_task(tmp_path: Path, parts: tuple[Part, ...]) -> None:
    with pytest.raises(RuntimeError) as caught:
        compared(tmp_path, parts, Lacking(SIZES, error=MasterUnreachable("no connection")))
    error = find_error(str(caught.value))
    assert isinstance(error, MasterUnreachable)
    assert error.log == str(BROKER_A)


@pytest.mark.parametrize("size_bytes", [1, 30, 250])
def test_no_more_than_the_limit(size_bytes: int) -> None:
    clock = WaitingClock()
    throttle = Throttle(100, clock=clock.monotonic, sleep=clock.sleep)
    for times in range(1, 51):
        throttle.spend(size_bytes)
        assert clock.monotonic() == pytest.approx(times * size_bytes / 100)


def test_slow_work_is_not_slowed_down() -> None:
    clock = WaitingClock()
    throttle = Throttle(100, clock=clock.monotonic, sleep=clock.sleep)
    throttle.spend(10)
    clock.sleep(5.0)
    before_s = clock.monotonic()
    throttle.spend(100)
    assert clock.monotonic() == before_s
