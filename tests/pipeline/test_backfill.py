"""Holes of a replica, filled from a real broker's segment files and over HA; killed, and raced, at each step."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config
from pipeline.inspect.coverage import coverages
from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.backfill import BackfillResult, Wanted, run_backfill
from sinks.batch.proof import BatchStep, no_step
from sinks.books.incidents import IncidentsTable
from sinks.state.log_table import Held, LogTable
from sinks.values.incident import State
from sources.errors import ConfigurationError, Rewritten
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from sources.rocketmq.log import RocketMQLog
from tests.pipeline.group_in_process import also_with_spark
from tests.pipeline.masters import embedded_master
from tests.pipeline.read_back import assert_whole, rebuilt, table_of
from tests.pipeline.running import job_config
from tests.sinks.accounts import incident
from tests.sinks.batches import Solo, opened, ranges
from tests.sinks.killed import Killed, dying_after
from tests.spans import span
from tests.truth import Fixture

LOG = LogId.parse("rocketmq/test")
MIB = 1 << 20


class Replicated:
    """The log of a broker, replicated from `first` to `upto` with a hole in the middle. All of these are boundaries."""

    def __init__(self, fixture: Fixture) -> None:
        self.fixture = fixture
        self.first = self.record_after(200_000)
        self.hole = span(self.record_after(900_000), self.record_after(1_500_000))
        self.upto = self.record_after(2_500_000)

    def record_after(self, offset: int) -> int:
        return next(int(row["physical_offset"]) for row in self.fixture.rows if row["physical_offset"] >= offset)

    @property
    def holes(self) -> tuple[OffsetRange, ...]:
        return span(0, self.first), self.hole

    def replicate(self, session: SparkSession, lake: Path) -> None:
        replica = self.opened(session, lake)
        replica(ranges(self.first, self.hole.start, log_id=str(LOG)))
        lost = incident(self.hole.start, self.hole.end, Condition.BELOW_MINIMUM)
        replica.skip(lost)
        replica(ranges(self.hole.end, self.upto, log_id=str(LOG)))

    def opened(self, session: SparkSession, lake: Path) -> Solo:
        master = RocketMQLog(log_id=LOG, path=str(self.fixture.commitlog_path))
        return opened(session, lake, master)

    def truth(self) -> bytes:
        return self.fixture.log[: self.upto]


@pytest.fixture(scope="module")
def replicated(fixture_550: Fixture) -> Replicated:
    return Replicated(fixture_550)


@pytest.fixture(scope="module")
def prepared(session: SparkSession, replicated: Replicated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("prepared") / "lake"
    replicated.replicate(session, lake)
    return lake


@pytest.fixture
def lake(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "lake"))


def config_of(lake: Path, fixture: Fixture, **log: Any) -> Config:
    return job_config(lake, **{"path": str(fixture.commitlog_path), "split_bytes": 100_000, **log})


def backfill(
    session: SparkSession,
    config: Config,
    start: str | None = None,
    end: str | None = None,
    *,
    path: Path | None = None,
    on_step: Callable[[BatchStep], None] = no_step,
) -> BackfillResult:
    wanted = Wanted.parse(start, end)
    return run_backfill(
        session,
        config,
        ConfiguredLog.alone(config.logs[0]),
        wanted,
        path=None if path is None else str(path),
        on_step=on_step,
    )


def held(session: SparkSession, lake: Path) -> Held:
    return LogTable(session, f"{lake}/log", LOG).read()


def version(lake: Path) -> int:
    return int(DeltaTable(str(lake / "log")).version())


def assert_accounted(config: Config, missing: tuple[OffsetRange, ...] = ()) -> None:
    """Coverage agrees, and lacks just this."""
    (found,) = coverages(config)
    assert found.problem is None
    assert found.complete is not None
    assert tuple(one.range for one in found.complete.missing) == missing


def archive_of(fixture: Fixture, folder: Path, *starts: int) -> Path:
    folder.mkdir()
    for start in starts:
        shutil.copy(fixture.commitlog_path / f"{start:020d}", folder)
    return folder


@also_with_spark
def test_a_second_backfill_has_nothing_to_do(session: SparkSession, replicated: Replicated, lake: Path) -> None:
    config = config_of(lake, replicated.fixture, max_bytes_per_trigger=350_000)
    assert_accounted(config, replicated.holes)
    result = backfill(session, config)
    assert (result.holes, result.filled, result.remaining) == (replicated.holes, replicated.holes, ())
    assert_whole(lake, replicated.truth())
    assert_accounted(config)

    written = [row for row in table_of(lake, "ledger").to_pylist() if row["origin"] == "backfill"]
    assert {row["end"] for row in written} >= {replicated.first, replicated.hole.end}
    assert len(written) > 6  # splits of 100,000 bytes
    assert result.records == sum(row["records"] for row in written)
    assert result.bytes == sum(row["bytes"] for row in written) == replicated.first + replicated.hole.size
    (incident,) = IncidentsTable(session, str(lake), LOG).all()
    assert (incident.state, result.healed) == (State.HEALED, (incident.id,))

    before = version(lake)
    again = backfill(session, config)
    assert (again.holes, again.filled, again.records, again.healed) == ((), (), 0, ())
    assert version(lake) == before


def test_over_ha(session: SparkSession, replicated: Replicated, lake: Path, tmp_path: Path) -> None:
    with embedded_master(tmp_path / "store", commitlog=replicated.fixture.commitlog_path) as master:
        config = job_config(lake, **master.options, max_bytes_per_trigger=400_000)
        result = backfill(session, config)
    assert (result.filled, result.remaining) == (replicated.holes, ())
    assert_whole(lake, replicated.truth())
    assert_accounted(config)


@pytest.mark.parametrize("step", [BatchStep.FILES, BatchStep.COMMIT])
def test_two_at_once(session: SparkSession, replicated: Replicated, lake: Path, step: BatchStep) -> None:
    """The other one does everything between this one's files and commit, or between its commit and ledger row."""
    config = config_of(lake, replicated.fixture)
    others: list[BackfillResult] = []

    def other(done: BatchStep) -> None:
        if done is step and not others:
            others.append(backfill(session, config))

    mine = backfill(session, config, on_step=other)
    (theirs,) = others
    assert theirs.filled == (replicated.holes if step is BatchStep.FILES else replicated.holes[1:])
    assert mine.filled == (() if step is BatchStep.FILES else replicated.holes[:1])
    assert (mine.remaining, theirs.remaining) == ((), ())
    assert_whole(lake, replicated.truth())
    assert_accounted(config)


@pytest.mark.parametrize("step", [BatchStep.FILES, BatchStep.COMMIT, BatchStep.LEDGER])
def test_killed_after_each_step_and_run_again(
    session: SparkSession, replicated: Replicated, lake: Path, step: BatchStep
) -> None:
    config, kill = config_of(lake, replicated.fixture), dying_after(step)
    with pytest.raises(Killed):
        backfill(session, config, on_step=kill)
    left = replicated.holes if step is BatchStep.FILES else replicated.holes[1:]
    assert held(session, lake).holes.ranges == left
    assert_accounted(config, left)  # also while the ledger lacks a row
    with pytest.raises(Killed):
        backfill(session, config, on_step=kill)
    result = backfill(session, config)
    assert result.remaining == ()
    assert_whole(lake, replicated.truth())
    assert_accounted(config)
    assert {row.state for row in IncidentsTable(session, str(lake), LOG).all()} == {State.HEALED}


def test_another_log_is_refused(
    session: SparkSession, replicated: Replicated, fixture_497: Fixture, lake: Path, tmp_path: Path
) -> None:
    config = config_of(lake, replicated.fixture)
    before = version(lake)
    with pytest.raises(Rewritten, match="another record beside the hole") as caught:
        backfill(session, config, path=fixture_497.commitlog_path)
    assert caught.value.log == str(LOG)
    # only what lies inside the hole: there is nothing to compare
    inside = archive_of(fixture_497, tmp_path / "archive", 0)
    shutil.rmtree(lake)
    replica = replicated.opened(session, lake)
    replica(ranges(replicated.hole.end, replicated.upto, log_id=str(LOG)))
    with pytest.raises(ConfigurationError, match="nothing says that the source is this log"):
        backfill(session, config, path=inside)
    assert before > version(lake)
    assert version(lake) == 2  # made, claimed, the stream's own
    assert held(session, lake).holes.ranges == (span(0, replicated.hole.end),)


def test_a_partial_source_fills_its_part(
    session: SparkSession, replicated: Replicated, lake: Path, tmp_path: Path
) -> None:
    config = config_of(lake, replicated.fixture)
    archive = archive_of(replicated.fixture, tmp_path / "archive", MIB, 2 * MIB)
    result = backfill(session, config, path=archive)
    left = span(0, replicated.first), span(replicated.hole.start, MIB)
    assert result.filled == (span(MIB, replicated.hole.end),)
    assert (result.remaining, result.healed) == (left, ())
    assert_accounted(config, left)
    assert IncidentsTable(session, str(lake), LOG).open()
    assert backfill(session, config).remaining == ()
    assert_whole(lake, replicated.truth())


def test_offsets_choose_parts_cut_at_records(session: SparkSession, replicated: Replicated, lake: Path) -> None:
    config = config_of(lake, replicated.fixture)
    start, end = replicated.hole.start + 100_001, replicated.hole.start + 200_003
    part = span(replicated.record_after(start), replicated.record_after(end))
    result = backfill(session, config, str(start), str(end))
    assert result.filled == (part,)
    assert result.holes == (span(start, end),)
    assert held(session, lake).holes.ranges == (
        span(0, replicated.first),
        span(replicated.hole.start, part.start),
        span(part.end, replicated.hole.end),
    )
    assert_accounted(config, held(session, lake).holes.ranges)
    assert backfill(session, config, "999999999").holes == ()


def test_deleted_ranges_come_back_only_on_demand(session: SparkSession, replicated: Replicated, lake: Path) -> None:
    """The retention was killed before the ledger said what it had deleted."""
    config = config_of(lake, replicated.fixture)
    LogTable(session, f"{lake}/log", LOG).forget(Offset(replicated.hole.start))
    begun, lost = span(0, replicated.first), replicated.hole
    assert_accounted(config, (begun, span(begun.end, lost.start), lost))
    assert backfill(session, config).filled == (begun, lost)
    result = backfill(session, config, "0")
    assert (result.filled, result.remaining) == ((span(begun.end, lost.start),), ())
    assert_accounted(config)
    assert rebuilt(lake) == replicated.truth()
    deleted = [row for row in table_of(lake, "ledger").to_pylist() if row["deleted_at"] is not None]
    assert [(row["start"], row["end"], row["origin"]) for row in deleted] == [(begun.end, lost.start, "stream")]


def test_nothing_is_replicated_yet(session: SparkSession, replicated: Replicated, tmp_path: Path) -> None:
    config = config_of(tmp_path / "lake", replicated.fixture)
    assert coverages(config)[0].complete is None
    replicated.opened(session, tmp_path / "lake")
    assert backfill(session, config) == BackfillResult(log_id=str(LOG), holes=())
    (found,) = coverages(config)
    assert (found.complete, found.problem) == (None, None)


NOON_US = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00.000"]
)
def test_times_are_instants_and_without_a_zone_utc(text: str) -> None:
    wanted = Wanted.parse(text, None)
    assert wanted.needs_times
    assert wanted.offsets == OffsetRange(Offset(0), Offset(2**63 - 1))
    assert wanted.may_lie_between(None, NOON_US)
    assert not wanted.may_lie_between(None, NOON_US - 1)


def test_a_hole_in_time() -> None:
    wanted = Wanted.parse("2026-01-31T12:00Z", "2026-01-31T13:00Z")
    within = [(None, None), (NOON_US - HOUR_US, NOON_US), (NOON_US, NOON_US + HOUR_US)]
    within.append((NOON_US + HOUR_US - 1, NOON_US + 2 * HOUR_US))
    outside = [(NOON_US - HOUR_US, NOON_US - 1), (NOON_US + HOUR_US, None), (None, NOON_US - 1)]
    assert [wanted.may_lie_between(*one) for one in (*within, *outside)] == [True] * 4 + [False] * 3


@pytest.mark.parametrize(("start", "end"), [("-5", None), (None, "noon"), ("", None), ("2026-13-01", None)])
def test_neither_offset_nor_time_is_refused(start: str | None, end: str | None) -> None:
    with pytest.raises(ConfigurationError, match="an offset, or a time") as caught:
        Wanted.parse(start, end)
    assert caught.value.found == (end if start is None else start)


@pytest.mark.parametrize(("start", "end"), [("5", "4"), ("2026-02-01", "2026-01-01")])
def test_backwards_is_refused(start: str, end: str) -> None:
    with pytest.raises(ConfigurationError, match="before"):
        Wanted.parse(start, end)
