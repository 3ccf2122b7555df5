"""The upkeep of a job: when it is due, killed or overtaken at each piece, and what is told of it."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from pipeline.monitoring.upkeep import Done, Telling, Upkeep, UpkeepFile, sentence
from pipeline.operate import maintain
from pipeline.operate.maintain import Maintenance, MaintenanceStep
from pipeline.operate.upkeep import TableUpkeep
from sinks.delta.delta_log import newest
from sinks.delta.kernel import KernelTable
from sinks.storage.settings import Storage
from sinks.upkeep import ledger_plan
from sinks.upkeep.compaction import Compactor
from sources.errors import ConfigurationError, MasterUnreachable, ReplicaError, StorageUnreachable
from tests.patience import eventually
from tests.pipeline.edited_rows import edit_rows
from tests.sinks.batches import Solo, offsets, ranges, rows
from tests.sinks.killed import Killed, killed
from tests.sinks.memory_master import BROKER_A, MemoryMaster
from tests.sinks.plain_session import make_plain

BATCHES = 4
MASTER = MemoryMaster((100,) * BATCHES)
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    session = make_plain(monkeypatch)
    checkpoint = lambda self, _: DeltaTable(self.path).create_checkpoint()  # noqa: E731
    monkeypatch.setattr(KernelTable, "checkpoint", checkpoint)
    return session


@pytest.fixture
def lake(plain: SparkSession, tmp_path: Path) -> Path:
    replica = Solo(plain, str(tmp_path / "lake"), MASTER)
    replica.open()
    for start in range(0, 100 * BATCHES, 100):
        replica(ranges(start, start + 100))
    return tmp_path / "lake"


def config(lake: Path, **maintain: float) -> Config:
    log = {"id": str(BROKER_A), "path": str(lake)}
    return parse({"warehouse": str(lake), "maintain": {"min_files": 3, **maintain}, "logs": [log]}, where="test")


def done(plain: SparkSession, config: Config, pace: Callable[[], None] | None = None) -> None:
    for _ in Maintenance(plain, config, dry_run=False, pace=pace).run():
        pass


def told(lake: Path) -> Upkeep:
    """As its file has it."""
    found = UpkeepFile(config(lake)).read(datetime.now(UTC))
    assert found is not None
    return found


def sound(lake: Path, before: list[dict[str, Any]]) -> bool:
    """Whether each row is there once, and each file that the tables name."""
    for name in ("log", "ledger"):
        assert (version := newest(f"{lake}/{name}"))
        assert [file for file in version.files if not (lake / name / file).exists()] == []
    same = sorted(map(str, rows(f"{lake}/ledger"))) == sorted(map(str, before))
    return same and offsets(lake) == list(range(0, 100 * BATCHES, 100))


@pytest.mark.job
@pytest.mark.parametrize("way", ["killed", "overtaken"])
def test_at_each_piece_nothing_is_lost_and_the_next_one_finishes(
    plain: SparkSession, lake: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two at once both finish. It is before each piece, and after a merged file is written, before its commit."""
    before, merge = rows(f"{lake}/ledger"), Compactor._merge
    for piece in range(1, 100):
        here, counted = lake.with_name(f"lake {piece}"), count(1)
        shutil.copytree(lake, here)
        settings = config(here)
        act = killed if way == "killed" else partial(done, plain, settings)

        def reach(counted: Iterator[int] = counted, at: int = piece, act: Callable[[], object] = act) -> None:
            if next(counted) == at:
                act()

        monkeypatch.setattr(Compactor, "_merge", lambda *given, reach=reach: (merge(*given), reach())[0])
        with suppress(Killed):
            done(plain, settings, reach)
        assert sound(here, before), piece
        for file in (one for name in ("log", "ledger") for one in (here / name).glob("*.parquet")):
            os.utime(file, (0, 0))
        done(plain, settings)
        assert sound(here, before), piece
        assert [len(list((here / name).glob("*.parquet"))) for name in ("log", "ledger")] == [1, 1], piece
        if next(counted) <= piece:
            break
    assert piece > 12


@pytest.mark.parametrize(
    ("before", "next_s"),
    [
        (None, 3600.0),
        ({}, 3000.0),  # ten minutes ago, by whomever
        ({"error": "x", "failures": 1}, 3600.0),
        ({"ended_at": None}, 60.0),  # under way
        ({"ended_at": None, "pid": 2**22 + 1}, 3600.0),  # killed
        ({"began_at": (NOW - timedelta(hours=2)).isoformat()}, 3600.0),
        ({"began_at": (NOW + timedelta(days=2)).isoformat()}, 3600.0),  # a clock went back
    ],
)
def test_when_it_is_due(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any] | None, next_s: float
) -> None:
    at = NOW + timedelta(seconds=600)
    clock = SimpleNamespace(now=lambda _: at, fromisoformat=datetime.fromisoformat)
    for module in ("pipeline.monitoring.upkeep", "pipeline.operate.upkeep"):
        monkeypatch.setattr(f"{module}.datetime", clock)
    if before is not None:
        one = Upkeep(run="r", host="h", pid=os.getpid(), began_at=NOW.isoformat(), ended_at=NOW.isoformat())
        UpkeepFile(config(lake)).write(replace(one, **before))
    upkeep = TableUpkeep(plain, config(lake))
    assert upkeep._look() == next_s
    found = upkeep.progress()
    assert found is not None
    assert (found.merged_files, found.merged_into) == ((2 * BATCHES, 2) if next_s == 3600.0 else (0, 0))


def test_a_step_that_fails_is_told_and_the_others_are_done(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job's thread does it, soon again; then all is well."""
    merge = Compactor._merge
    monkeypatch.setattr(Compactor, "_merge", Mock(side_effect=ReplicaError("a damaged file")))
    with TableUpkeep(plain, config(lake, every_s=1.2)) as upkeep:

        def now() -> Upkeep:
            found = upkeep.progress()
            assert found is not None
            return found

        eventually(lambda: now().ended_at is not None)
        assert (now().failures, now().error, now().merged_files, now().steps > 4) == (2, "a damaged file", 0, True)
        monkeypatch.setattr(Compactor, "_merge", merge)
        eventually(lambda: now().merged_files == 2 * BATCHES and now().ended_at is not None)
        assert (now().error, now().whole_at) == (None, now().ended_at)
    found = told(lake)
    assert (found.running, found.pid, found.merged_into) == (False, os.getpid(), 2)
    assert "the logs go on" in caplog.text
    assert "works again" in caplog.text


def test_what_a_join_finds_damaged_is_an_open_incident_and_said_once(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a_day_later = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(days=1))
    its_log = SimpleNamespace(log_id=BROKER_A, open_any=lambda: MASTER)
    monkeypatch.setattr(ledger_plan, "HOUR_US", 1 << 60)
    monkeypatch.setattr(maintain, "datetime", a_day_later)
    monkeypatch.setattr(maintain, "subjects", lambda _: [its_log])
    edit_rows(lake / "log", {100: lambda row: [{**row, "size": row["size"] - 1}]})
    for records in (1, 0):
        (step,) = (one for one in Maintenance(plain, config(lake), dry_run=False).run() if one.step == "join")
        assert step.records == records
        found = [(row["condition"], row["start"], row["end"], row["state"]) for row in rows(f"{lake}/incidents")]
        assert found == [("replica_damaged", 100, 200, "open")]
        (said,) = caplog.messages
        assert said.startswith(f"{BROKER_A}: ")


def test_on_a_full_disk_it_still_deletes(plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a disk that is full of what was merged gets room by itself."""
    (lake / "log" / "left.parquet").touch()
    os.utime(lake / "log" / "left.parquet", (0, 0))

    full = StorageUnreachable("it cannot be written", found=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(Compactor, "_merge", Mock(side_effect=full))
    with pytest.raises(StorageUnreachable, match="No space left"):
        done(plain, config(lake))
    assert not (lake / "log" / "left.parquet").exists()


def test_that_the_logs_are_not_found_is_told_too(
    plain: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.operate.upkeep.found_now", Mock(side_effect=MasterUnreachable("no broker answers")))
    assert TableUpkeep(plain, config(lake))._look() == 600.0
    found = told(lake)
    assert (found.running, found.error) == (False, "no broker answers")
    assert found.ended_at is not None


def test_in_a_long_step_it_is_told_that_it_goes_on(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or others would take it for dead, and begin beside it."""
    heard = list[Upkeep]()
    telling = Telling(UpkeepFile(config(lake)), heard.append)
    telling.goes_on()
    assert len(heard) == 1
    monkeypatch.setattr("pipeline.monitoring.upkeep._TOLD_EVERY_S", -1.0)
    telling.goes_on()
    assert len(heard) == 2


def failing() -> Iterator[MaintenanceStep]:
    yield MaintenanceStep(table="log", step="vacuum", files_before=3)
    raise ReplicaError("no file")


def test_what_is_told_of_it(plain: SparkSession, lake: Path) -> None:
    file = UpkeepFile(config(lake))
    assert sentence(None, 0, NOW) == "none so far; a job does none ([maintain] every_s = 0)"
    telling = Telling(file)
    telling.did(Done(merged_files=3600, merged_into=2, deleted_files=7))
    assert sentence(told(lake), 3600, datetime.now(UTC)).startswith("under way, begun ")
    telling.failed(ReplicaError("no room"))
    telling.ended()
    found = replace(told(lake), ended_at=NOW.isoformat(), seconds=61.0)
    words = "ended 5 min ago, 1 min 1 s of work: 3,600 files merged into 2, 7 deleted; 1 step failed: no room"
    assert sentence(found, 3600, NOW + timedelta(minutes=5)) == words
    with pytest.raises(ReplicaError, match="no file"):
        list(maintain.told(failing(), Telling(file)))
    found = told(lake)
    assert (found.deleted_files, found.error, found.ended_at is None) == (3, "no file", False)
    with pytest.raises(ConfigurationError, match="vacuum_hours"):
        TableUpkeep(plain, config(lake, vacuum_hours=0.5))
    assert TableUpkeep(plain, config(lake, vacuum_hours=0.5, every_s=0)).progress() is None
    alone = config(lake).model_copy(update={"storage": Storage(single_writer=True)})
    assert TableUpkeep(plain, alone).progress() is None  # its thread would be a second writer
