"""Damage in a file that has rows of several logs: each of them loses what it had there, says so, and gets it back."""

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from pipeline.inspect.selection import ConfiguredLog
from pipeline.operate.backfill import BackfillResult, Wanted, run_backfill
from pipeline.operate.repair import repair_logs
from sinks.healing.repair_steps import RepairStep
from sinks.values.incident import Action
from sources.errors import RepairPending, ReplicaError
from sources.loss import Condition
from sources.offsets import Offset, OffsetRange
from tests.pipeline.repair_bench import outcome, spoil
from tests.pipeline.shared_bench import NAMES, Member, Shared, made
from tests.sinks.killed import Killed, dying_after

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return made(spark, tmp_path_factory.mktemp("shared"))


@pytest.fixture
def shared(whole: Shared, tmp_path: Path) -> Shared:
    return whole.copied(tmp_path)


def damaged(shared: Shared) -> tuple[Path, list[Member]]:
    """A file of the second batch, spoilt, and the logs that have rows in it; the first of them knows of it."""
    file, names = next((file, names) for file, names in list(shared.files().items())[2:] if len(names) == 3)
    spoil(file)
    members = [shared.of(name) for name in names]
    lost = lost_of(members[0])
    members[0].found(Condition.REPLICA_DAMAGED, lost.start, lost.end)
    return file, members


def lost_of(member: Member) -> OffsetRange:
    """The second batch."""
    row = member.rows("ledger")[1]
    return OffsetRange(row["start"], row["end"])


def test_each_loses_its_own_and_gets_it_back(shared: Shared) -> None:
    before = {name: outcome(shared.of(name)) for name in NAMES}
    file, members = damaged(shared)
    lost = {one.log_id: lost_of(one) for one in members}
    first, *others = members
    look, version = first.look(), first.versions()["log"]
    theirs, gone = str(others[0].log_id), lost[others[0].log_id]
    foretold = repair_logs(
        shared.config, "job.toml", log_id=str(first.log_id), accept_master=False, take_over=False, dry_run=True
    )
    todo = f"{theirs} {gone}: run logtwin repair --log {theirs}, or logtwin backfill"
    assert f"{first.log_id}: also to be taken out: {todo}" in list(foretold)
    done = first.repair()
    assert (look.taken_out, look.others) == (done.taken_out, done.others)
    assert version == first.versions()["log"] - 3  # claimed, cut, done
    assert done.taken_out == done.missing == (lost[first.log_id],)
    assert [(one.log_id, one.ranges) for one in done.others] == [(one.log_id, (lost[one.log_id],)) for one in others]
    for one in members:
        gone = lost[one.log_id]
        assert one.holes() == (gone,)
        assert gone.start not in [start for start, _ in one.claims()]
        (told,) = one.incidents().open()
        assert (told.found.condition, told.found.range) == (Condition.REPLICA_DAMAGED, gone)
        if one is not first:
            assert told.found.action is Action.REPAIRED
            assert file.name in told.found.cause
    untouched = [name for name in NAMES if shared.of(name) not in members]
    assert {name: outcome(shared.of(name)) for name in untouched} == {name: before[name] for name in untouched}
    shared.assert_explained()
    again = first.repair()
    assert (again.taken_out, again.others) == ((), ())
    for one in members:
        assert f"{one.log_id}: missing, now read from the master again: {lost[one.log_id]}" in one.repair_and_bring()
    assert all(shared.of(name).is_its_master_s() for name in NAMES)


@pytest.mark.nightly
def test_a_backfill_of_another_log_may_come_before_the_end_of_the_repair(shared: Shared) -> None:
    _, (first, second, third) = damaged(shared)
    with pytest.raises(Killed):
        first.repair(dying_after(RepairStep.CUT))
    filled = backfilled(second)
    assert len(filled.healed) == 1
    assert second.is_its_master_s()
    done = first.repair()
    assert [one.log_id for one in done.others] == [second.log_id, third.log_id]
    assert second.is_its_master_s()
    assert [len(one.holes()) for one in (first, third)] == [1, 1]
    shared.assert_explained()


@pytest.mark.nightly
@pytest.mark.parametrize("at", [RepairStep.AUDIT, RepairStep.CUT, RepairStep.LEDGER])
def test_the_others_are_replicated_on_meanwhile(shared: Shared, at: RepairStep) -> None:
    _, (first, *_) = damaged(shared)
    running = shared.replicas([name for name in NAMES if name != first.log_id.name])

    def meanwhile(step: RepairStep) -> None:
        if step is at:
            shared.append(9, list(running))
            shared.bring(running)

    first.repair(meanwhile)
    shared.append(10, list(running))
    shared.bring(running)
    assert all(replica.position() == shared.of(name).log.end for name, replica in running.items())
    shared.assert_explained()
    shared.repair_all()
    assert all(shared.of(name).is_its_master_s() for name in NAMES)


@pytest.mark.nightly
def test_what_can_be_read_of_a_range_goes_with_it(shared: Shared) -> None:
    """One record of another log lies in a file of its own: the rest of its row of the ledger is lost."""
    file, names = next((file, names) for file, names in list(shared.files().items())[2:] if len(names) == 3)
    first, second = (shared.of(name) for name in names[:2])
    gone = lost_of(second)
    one = f"log_id = '{second.log_id}' AND offset = {gone.start}"
    table = DeltaTable.forPath(shared.spark, f"{shared.lake}/log")
    row = shared.spark.createDataFrame(table.toDF().where(one).toArrow())
    known = set(shared.files())
    table.delete(one)
    (rest,) = set(shared.files()) - known
    row.write.format("delta").mode("append").save(f"{shared.lake}/log")
    spoil(rest)
    lost = lost_of(first)
    first.found(Condition.REPLICA_DAMAGED, lost.start, lost.end)
    assert str(second.log_id) in [str(other.log_id) for other in first.repair().others]
    assert second.holes() == (gone,)
    assert second.offsets("removed") == [gone.start]
    assert gone.start not in second.offsets("log")
    shared.assert_explained()
    assert file not in set(shared.files()) - known


@pytest.mark.nightly
def test_a_backfill_of_another_log_may_fill_another_hole_of_it_meanwhile(shared: Shared) -> None:
    second = shared.of("b")
    (oldest, _), _, (newest, names) = [(file, names) for file, names in shared.files().items() if "b" in names]
    filled, _, lost = (OffsetRange(Offset(start), Offset(end)) for start, end in second.claims())
    spoil(oldest)
    second.found(Condition.REPLICA_DAMAGED, filled.start, filled.end)
    second.repair()
    spoil(newest)
    one = next(shared.of(name) for name in names if name != second.log_id.name)
    one.found(Condition.REPLICA_DAMAGED, one.claims()[-1][0], one.claims()[-1][1])

    def meanwhile(step: RepairStep) -> None:
        if step is RepairStep.AUDIT:
            assert second.holes() == (filled,)
            backfilled(second)
            assert second.holes() == ()

    one.repair(meanwhile)
    assert second.holes() == (lost,)
    assert filled.start in [start for start, _ in second.claims()]
    shared.assert_explained()


def backfilled(member: Member) -> BackfillResult:
    subject = ConfiguredLog.alone(member.config.logs[0])
    return run_backfill(member.spark, member.config, subject, Wanted(None, None), is_alone=True)


@pytest.mark.nightly
def test_of_two_repairs_that_take_out_one_file_the_second_is_told(shared: Shared) -> None:
    """What it has found to be lost may be there again by now."""
    file, (first, second, _) = damaged(shared)
    lost = lost_of(second)
    second.found(Condition.REPLICA_DAMAGED, lost.start, lost.end)

    def faster(step: RepairStep) -> None:
        if step is RepairStep.AUDIT:
            second.repair_and_bring()
            assert second.is_its_master_s()

    with pytest.raises(ReplicaError, match=file.name):
        first.repair(faster)
    assert second.is_its_master_s()
    shared.assert_explained()
    assert first.repair().missing == (first.holes()[0],)
    shared.repair_all()
    assert all(shared.of(name).is_its_master_s() for name in NAMES)


def test_a_log_that_is_in_a_repair_of_its_own_is_waited_for(shared: Shared) -> None:
    names = next(names for names in list(shared.files().values())[2:] if len(names) == 3)
    second = shared.of(names[1])
    second.log.rewrite_from_the_middle()
    with pytest.raises(Killed):
        second.repair(dying_after(RepairStep.MARK))
    file, (first, *_) = damaged(shared)
    with pytest.raises(RepairPending, match=file.name) as caught:
        first.repair()
    assert caught.value.log == str(first.log_id)
    assert str(second.log_id) in str(caught.value.found)
    assert f"logtwin repair --log {second.log_id}" in str(caught.value.hint)
    assert first.holes() == second.holes() == ()


def test_the_log_that_is_repaired_may_have_nothing_in_a_file_that_goes(shared: Shared) -> None:
    """It could by the statistics, and going back would have to read it: only those that had rows in it lose some."""
    file, names = next((file, names) for file, names in list(shared.files().items())[2:] if names[2] > names[1])
    between = [name for name in NAMES if names[0] < name < names[-1] and name not in names]
    assert between
    mine = shared.of(between[0])
    spoil(file)
    lost = lost_of(mine)
    mine.found(Condition.REPLICA_DAMAGED, lost.start, lost.end)
    done = mine.repair()
    assert (done.taken_out, done.missing, mine.holes()) == ((), (), ())
    assert {one.log_id.name for one in done.others} <= set(names)
    assert mine.is_its_master_s()
    assert Offset(0) not in [hole.start for name in names for hole in shared.of(name).holes()]
    shared.assert_explained()
