"""Who owns a log, and who may move its position."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from sinks.delta import commits
from sinks.delta.commits import OwnChain
from sinks.delta.data_file import DataFile
from sinks.delta.delta_log import LoggedVersion
from sinks.delta.kernel import KernelConflict, KernelTable, Snapshot
from sinks.state.fence import holes_at, this_writer
from sinks.state.holes import Holes, TakenOut
from sinks.state.log_state import LogState, PendingRepair, Writer
from sinks.state.log_table import Held
from sinks.state.positions import Move, Positions
from sinks.tables import LOG
from sinks.values.continuity import Link
from sinks.warehouse import ensure_tables
from sources.epochs import Epoch
from sources.errors import ReplicaError, TakenOver
from sources.loss import Condition
from sources.master import Known
from sources.offsets import END, LogId, Offset, OffsetRange
from tests.around import at_each
from tests.sinks.accounts import incident, ledger_row
from tests.sinks.at_once import at_once
from tests.sinks.batches import offsets
from tests.sinks.long_log import file_of
from tests.sinks.memory_master import BROKER_A
from tests.sinks.one_log import OneLog
from tests.sinks.unheard import lose_answers
from tests.spans import span

BROKER_B = LogId("rocketmq", "broker-b")
ROW = ledger_row(0, 500, records=5, first_store_timestamp=1, committed_at=2)


OWED: dict[str, Any] = {
    "link": Link.of(span(90, 100), b"the record"),
    "incidents": [incident(100, 500)],
    "quarantined": [DataFile("part.parquet", 10, 20, 1, "{}")],
}


def state_of(texts: Mapping[str, str]) -> LogState:
    found = LogState.of_domains(BROKER_A, texts.get)
    assert found is not None
    return found


def read_back(state: LogState, before: LogState | None = None) -> LogState:
    """From what a commit of `state` writes where the table says what stood `before`."""
    domains = {} if before is None else before.domains(BROKER_A, None)
    return state_of(domains | state.domains(BROKER_A, before))


def test_the_state_survives_its_json() -> None:
    fresh = LogState(writer=this_writer(), commit="")
    state = replace(fresh, commit="c", epoch=3, offset=Offset(2**40), first=Offset(0))
    owing = fresh.moved_to(Offset(500), first=Offset(0), ledger=[ROW], **OWED)
    epochs = (Epoch(1, Offset(0)), Epoch(4, Offset(300), master="10.0.0.1:10912", since_us=7))
    known = replace(fresh, identity="topic", offset=Offset(500), mark=4, epochs=epochs)
    others = replace(ROW, origin="repair", deleted_at=7)
    repair = PendingRepair(to=Offset(70), epoch=4, others=(TakenOut(BROKER_B, 2, (span(3, 9),)),))
    rewritten = replace(repair, found=incident(100, 500, Condition.REWRITTEN), others=())
    for one in (
        fresh, state, replace(state, ledger=(ROW, others)), owing, known,
        *(replace(state, branched_at=Offset(60), repair=pending) for pending in (repair, rewritten)),
    ):  # fmt: skip
        assert read_back(one) == one
    assert read_back(known).known == Known("topic", Offset(500), 4, epochs)
    assert [(one.master, one.since_us) for one in read_back(known).epochs] == [(None, None), ("10.0.0.1:10912", 7)]
    assert LogState.of_domains(BROKER_A, lambda domain: None) is None


MOVING, STANDING, RUN = f"logtwin.{BROKER_A}", f"logtwin.standing.{BROKER_A}", "logtwin.run.r"
WRITTEN = {
    MOVING: '{"run":"r","commit":"c","offset":500,"link":{"start":400,"end":500,"checksum":"sha256:1"},"mark":3,'
    '"ledger":[[0,500,5,500,"sha256:00",1,null,2],[500,600,5,100,"sha256:00",1,null,2,"repair",null]],"incidents":['
    '{"condition":"gap","start":1,"end":5,"cause":"\\u00e4","action":"skipped","detected_at":7}],"quarantined":['
    '{"name":"\\udcff","size_bytes":1,"modified_ms":2,"records":3,"statistics":"{}"}]}',
    STANDING: '{"epoch":2,"first":0,"identity":"id","epochs":[{"number":1,"start":0,"since_us":7}],"branched_at":5,'
    '"repair":{"to":5,"epoch":2,"found":{"condition":"gap","start":1,"end":5,"cause":"\\u00e4\\udcff",'
    '"action":"skipped","detected_at":7},"others":[{"log":"kafka/c/t/0","epoch":1,"ranges":[[1,2],[5,9]]}]}}',
    RUN: '{"host":"h","pid":1,"since":"2026"}',
}
IN_ONE_PIECE = (
    '{"writer":{"run":"r","host":"h","pid":1,"since":"2026"},"commit":"c","epoch":2,"offset":500,"first":0,"link":null,'
    '"identity":null,"mark":null,"epochs":[{"number":1,"start":0,"master":null,"since_us":7}],"ledger":[{"start":0,'
    '"end":500,"records":5,"bytes":500,"checksum":"sha256:00","first_store_timestamp":1,"last_store_timestamp":null,'
    '"committed_at":2,"origin":"stream","deleted_at":null}],"incidents":[],"quarantined":[],"branched_at":null,"repair":'
    '{"to":5,"epoch":2,"found":{"condition":"gap","start":1,"end":5,"cause":"\\u00e4\\udcff","action":"skipped",'
    '"detected_at":7},"others":[{"log":"kafka/c/t/0","epoch":1,"ranges":[[1,2],[5,9]]}]}}'
)
TAKEN = TakenOut(LogId.parse("kafka/c/t/0"), 1, (span(1, 2), span(5, 9)))


def test_what_is_written_stays_as_it_is() -> None:
    """Tables of other versions have it; a name of a file may have what no UTF-8 has."""
    state = state_of(WRITTEN)
    assert state.domains(BROKER_A, None) == WRITTEN
    assert state.repair is not None
    assert state.repair.others == (TAKEN,)


def test_a_state_in_one_piece_is_taken_apart_by_its_first_commit() -> None:
    state = state_of({MOVING: IN_ONE_PIECE})
    assert state.repair is not None
    assert (state.offset, state.epoch, state.first, state.repair.others) == (500, 2, 0, (TAKEN,))
    assert state.ledger == (replace(ROW, checksum="sha256:00", bytes=500),)
    assert (state.epochs[0].since_us, state.epochs[0].master) == (7, None)
    moved = state.moved_to(Offset(900), first=Offset(0), ledger=[])
    assert moved.domains(BROKER_A, state).keys() == {MOVING, STANDING, RUN}
    assert state_of({MOVING: IN_ONE_PIECE} | moved.domains(BROKER_A, state)) == moved


def test_a_commit_writes_what_changed() -> None:
    """What moves is always written: whoever writes anything of a log conflicts with whoever claims it."""
    claimed = LogState.fresh(this_writer()).claimed_by(this_writer())
    assert claimed.domains(BROKER_A, None).keys() == {MOVING, f"logtwin.run.{claimed.writer.run}"}
    begun = claimed.moved_to(Offset(500), first=Offset(100), ledger=[ROW])
    assert begun.domains(BROKER_A, claimed).keys() == {MOVING, STANDING}
    moved = begun.moved_to(Offset(900), first=Offset(100), ledger=[ROW])
    assert moved.domains(BROKER_A, begun).keys() == {MOVING}
    assert replace(moved, repair=PendingRepair(to=Offset(0), epoch=1)).domains(BROKER_A, moved).keys() == {
        MOVING, STANDING,
    }  # fmt: skip
    other = moved.claimed_by(this_writer())
    assert other.domains(BROKER_A, moved).keys() == {MOVING, f"logtwin.run.{other.writer.run}"}
    for one, before in ((claimed, None), (begun, claimed), (moved, begun), (other, moved)):
        assert read_back(one, before) == one


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (MOVING, "[]"),
        (MOVING, "{}"),
        (MOVING, IN_ONE_PIECE.replace('"commit"', '"comit"')),
        (MOVING, IN_ONE_PIECE.replace('"mark"', '"a key of a later version"')),
        (MOVING, IN_ONE_PIECE.replace('"ledger"', '"ledgers"')),
        (MOVING, IN_ONE_PIECE.replace("[1,2]", "[2,1]")),
        (MOVING, IN_ONE_PIECE.replace('"gap"', '"gape"')),
        (MOVING, WRITTEN[MOVING].replace('"commit"', '"comit"')),
        (MOVING, WRITTEN[MOVING].replace('"mark"', '"a key of a later version"')),
        (MOVING, WRITTEN[MOVING].replace("[0,500,5,", "[0,500,")),
        (MOVING, WRITTEN[MOVING].replace('"repair",null', '"repair",null,0')),
        (MOVING, WRITTEN[MOVING].replace('"gap"', '"gape"')),
        (STANDING, WRITTEN[STANDING].replace('"first"', '"a key of a later version"')),
        (STANDING, WRITTEN[STANDING].replace("[1,2]", "[2,1]")),
        (RUN, None),
        (RUN, "{}"),
    ],
)
def test_what_no_version_wrote_is_refused(name: str, text: str | None) -> None:
    with pytest.raises((TypeError, ValueError)):
        LogState.of_domains(BROKER_A, {**WRITTEN, name: text}.get)


def test_a_state_of_a_version_that_owed_nothing_is_read() -> None:
    text = """{"writer": {"run": "r", "host": "h", "pid": 7, "since": "2024-02-29T23:59:30+00:00"},
        "commit": "c", "epoch": 1, "offset": 500, "first": 100, "ledger": [], "repair": {"to": 400, "epoch": 2}}"""
    writer = Writer(run="r", host="h", pid=7, since="2024-02-29T23:59:30+00:00")
    repair = PendingRepair(to=Offset(400), epoch=2)
    assert state_of({MOVING: text}) == LogState(
        writer=writer, commit="c", epoch=1, offset=Offset(500), first=Offset(100), repair=repair
    )


def test_a_log_that_goes_back_loses_what_is_not_proven_to_be_of_it_and_for_its_own_damage_it_stays() -> None:
    assert PendingRepair(to=Offset(70), epoch=4).goes_back
    assert PendingRepair(to=Offset(70), epoch=4).out == OffsetRange(Offset(70), END)
    for start, out in ((60, 60), (70, 70), (80, 70)):
        found = incident(start, 500, Condition.REWRITTEN)
        repair = PendingRepair(to=Offset(70), epoch=4, found=found)
        assert repair.goes_back
        assert repair.out == OffsetRange(Offset(out), END)
    damage = incident(60, 70, Condition.REPLICA_DAMAGED)
    assert not PendingRepair(to=Offset(500), epoch=3, found=damage).goes_back


def test_a_claim_changes_the_writer_alone() -> None:
    mine, other = this_writer(), Writer(run="r", host="h", pid=7, since="2024-02-29T23:59:30+00:00")
    fresh = LogState.fresh(mine)
    assert fresh == LogState(writer=mine, commit="")
    moved = fresh.moved_to(Offset(500), first=Offset(0), ledger=[ROW])
    claimed = moved.claimed_by(other)
    assert claimed == replace(moved, writer=other, commit=claimed.commit)
    assert len({moved.commit, claimed.commit, moved.claimed_by(other).commit}) == 3
    assert claimed.commit


def test_a_move_keeps_the_beginning_and_epochs_unless_told_others_and_owes_nothing_of_before() -> None:
    fresh, epochs = LogState(writer=this_writer(), commit=""), (Epoch(1, Offset(0)),)
    begun = fresh.moved_to(Offset(500), first=Offset(100), ledger=[ROW], mark=3, epochs=epochs, **OWED)
    assert begun.known == Known(None, Offset(500), 3, epochs)
    assert [begun.link, [*begun.incidents], [*begun.quarantined]] == list(OWED.values())
    later = begun.moved_to(Offset(900), first=Offset(500), ledger=[])
    assert later.known == Known(None, Offset(900), None, epochs)
    assert (later.link, later.ledger, later.incidents, later.quarantined) == (None, (), (), ())
    assert (begun.first, later.first, later.offset) == (100, 100, 900)
    assert len({fresh.commit, begun.commit, later.commit}) == 3
    assert later.moved_to(Offset(950), first=Offset(0), ledger=[], epochs=()).epochs == ()


def test_without_holes_all_before_the_beginning_is_missing() -> None:
    begun = LogState(writer=this_writer(), commit="", first=Offset(100))
    silent = LoggedVersion(0)
    assert holes_at(silent, BROKER_B, None) == Holes()
    assert holes_at(silent, BROKER_B, LogState.fresh(begun.writer)) == Holes()
    assert holes_at(silent, BROKER_B, begun).ranges == (OffsetRange(Offset(0), Offset(100)),)
    holes = Holes.before(Offset(70))
    for log_id, found in ((BROKER_B, holes), (BROKER_A, Holes.before(Offset(100)))):
        said = LoggedVersion(1, texts={"logtwin.holes.rocketmq/broker-b": holes.as_json()})
        assert holes_at(said, log_id, begun) == found


def test_a_loss_joins_the_holes_that_are_there_or_what_lies_before_the_beginning() -> None:
    fresh, name = LogState(writer=this_writer(), commit=""), f"logtwin.holes.{BROKER_A}"
    begun = fresh.moved_to(Offset(500), first=Offset(100), ledger=[])

    def on(texts: dict[str, str]) -> Snapshot:
        return cast(Snapshot, LoggedVersion(1, texts=texts))

    first = Move(BROKER_A, fresh, begun, lost=[span(200, 300)]).domains_on(on({}))
    assert Holes.from_json(first[name]).ranges == (span(0, 100), span(200, 300))
    later = Move(BROKER_A, begun, begun.moved_to(Offset(900), first=Offset(500), ledger=[]), lost=[span(600, 700)])
    found = later.domains_on(on({name: first[name]}))
    assert Holes.from_json(found[name]).ranges == (span(0, 100), span(200, 300), span(600, 700))
    assert name not in replace(later, lost=[]).domains_on(on({name: first[name]}))
    with pytest.raises(ValueError, match="needs an offset"):
        _ = Move(BROKER_A, begun, fresh).transaction


def test_newest_stored_time_is_the_latest_of_all_rows() -> None:
    fresh = LogState(writer=this_writer(), commit="")
    rows = [replace(ROW, last_store_timestamp=at_us) for at_us in (700, None, 900, 800)]
    assert fresh.moved_to(Offset(500), first=Offset(0), ledger=rows).newest_stored_us == 900
    assert fresh.moved_to(Offset(500), first=Offset(0), ledger=[ROW]).newest_stored_us is None  # a blank
    assert fresh.newest_stored_us is None


@pytest.fixture
def path(plain: SparkSession, tmp_path: Path) -> str:
    ensure_tables(plain, str(tmp_path))
    return LOG.path(str(tmp_path))


def test_a_claim_moves_no_position(plain: SparkSession, path: str) -> None:
    table = OneLog(plain, path, BROKER_A)
    assert table.read().state is None
    first = table.claim(this_writer())
    assert (first.offset, first.epoch) == (None, 0)
    moved = first.moved_to(Offset(500), first=Offset(0), ledger=[ROW])
    table.commit(table.read(), moved, [file_of(path, 0, 5)])
    claimed = table.claim(this_writer())
    assert (claimed.offset, claimed.first, claimed.ledger) == (500, 0, (ROW,))
    assert table.read().state == claimed
    snapshot = table.read().snapshot
    assert snapshot.transaction_version("logtwin/rocketmq/broker-a@0") == 500


def test_an_unheard_claim_is_not_made_twice(plain: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = OneLog(plain, path, BROKER_A)
    before, lost = table.read().snapshot.version, lose_answers(monkeypatch)
    claimed = table.claim(this_writer())
    after = table.read()
    assert (lost, after.state, after.snapshot.version) == ({"log": 1}, claimed, before + 1)


@pytest.mark.parametrize("ends", [(500, 500), (500, 700), (700, 500)])
def test_two_transactions_on_one_version_make_one_commit(
    plain: SparkSession, path: str, tmp_path: Path, ends: tuple[int, int]
) -> None:
    """The same run twice, as after a network split: not even the writer tells them apart."""
    table = OneLog(plain, path, BROKER_A)
    mine = table.claim(this_writer())
    held = table.read()
    states = [mine.moved_to(Offset(end), first=Offset(0), ledger=[]) for end in ends]
    table.commit(held, states[0], [file_of(path, 0, ends[0] // 100)])
    with pytest.raises(TakenOver):
        OneLog(plain, path, BROKER_A).commit(held, states[1], [file_of(path, 0, ends[1] // 100)])
    assert table.read().state == states[0]
    assert offsets(tmp_path) == list(range(0, ends[0], 100))


def test_a_claim_in_between_stops_the_commit(plain: SparkSession, path: str, tmp_path: Path) -> None:
    old, new = OneLog(plain, path, BROKER_A), OneLog(plain, path, BROKER_A)
    mine = old.claim(this_writer())
    held = old.read()
    theirs = new.claim(this_writer())
    with pytest.raises(TakenOver) as caught:
        old.commit(held, mine.moved_to(Offset(500), first=Offset(0), ledger=[]), [file_of(path, 0, 5)])
    assert caught.value.expected == str(mine.writer)
    assert caught.value.found == str(theirs.writer)
    assert "Stop one of the two" in (caught.value.hint or "")
    assert offsets(tmp_path) == []


def test_a_run_is_forgotten_when_no_log_names_it(plain: SparkSession, path: str) -> None:
    positions = Positions(KernelTable(plain, path))
    first, second, third = this_writer(), this_writer(), this_writer()

    def runs() -> set[str]:
        return {name for name in positions.newest().domains() if name.startswith("logtwin.run.")}

    positions.claim(positions.newest(), [BROKER_A, BROKER_B], first)
    positions.claim(positions.newest(), [BROKER_A], second)
    assert runs() == {f"logtwin.run.{one.run}" for one in (first, second)}
    positions.claim(positions.newest(), [BROKER_B], third)
    assert runs() == {f"logtwin.run.{one.run}" for one in (second, third)}
    assert OneLog(plain, path, BROKER_A).state().writer == second


def test_a_run_that_claims_again_while_it_is_forgotten_is_known(plain: SparkSession, path: str) -> None:
    """Its claim writes its domain, whatever the version that it is built on says: the second of the two is refused."""
    mine, theirs = this_writer(), this_writer()
    table = OneLog(plain, path, BROKER_A)
    table.claim(mine)
    positions = Positions(KernelTable(plain, path))
    on = positions.newest()  # which has the run
    table.claim(theirs)
    assert f"logtwin.run.{mine.run}" not in positions.newest().domains()
    assert positions.claim(on, [BROKER_B], mine).states[BROKER_B].writer == mine
    assert OneLog(plain, path, BROKER_B).state().writer == mine


def test_claims_at_once_leave_one_owner(plain: SparkSession, path: str) -> None:
    tables = [OneLog(plain, path, BROKER_A) for _ in range(3)]
    writers = [this_writer() for _ in tables]
    claims = at_once([partial(table.claim, writer) for table, writer in zip(tables, writers, strict=True)])
    assert len([claim for claim in claims if tables[0].read().state == claim]) == 1


def test_a_change_of_the_table_in_between_does_not_disturb(plain: SparkSession, path: str, tmp_path: Path) -> None:
    table = OneLog(plain, path, BROKER_A)
    mine = table.claim(this_writer())
    held = table.read()
    KernelTable(plain, path).set_properties(held.snapshot, {"delta.logRetentionDuration": "interval 8 days"})
    table.commit(held, mine.moved_to(Offset(500), first=Offset(0), ledger=[]), [file_of(path, 0, 5)])
    assert offsets(tmp_path) == [0, 100, 200, 300, 400]


class Moving:
    """Logs of one run that are about to move from 0 to 500, by name, and the version that they were found at."""

    def __init__(self, plain: SparkSession, path: str, *names: str) -> None:
        self.path = path
        self.positions = Positions(KernelTable(plain, path))
        self.tables = {name: OneLog(plain, path, LogId("rocketmq", name)) for name in names}
        claims = {name: table.claim(this_writer()) for name, table in self.tables.items()}
        self.on = self.positions.newest()
        self.moves = {name: self._move(self.tables[name], mine) for name, mine in claims.items()}

    def _move(self, table: OneLog, mine: LogState, lost: tuple[OffsetRange, ...] = ()) -> Move:
        to = mine.moved_to(Offset(500), first=Offset(0), ledger=[])
        return Move(table.log_id, mine, to, [file_of(self.path, 0, 5)], lost)

    def losing(self, name: str, lost: OffsetRange) -> None:
        self.moves[name] = self._move(self.tables[name], self.moves[name].mine, (lost,))

    def commit(self) -> list[str]:
        """Which were lost; the others have moved."""
        left, on, lost = dict(self.moves), self.on, list[str]()
        while left and (taken := self.positions.commit(on, list(left.values()))):
            assert {self.states()[name] for name in left} == {None}
            on = self.positions.newest()
            lost += [log.name for log in taken]
            left = {name: move for name, move in left.items() if name not in lost}
        return lost

    def states(self) -> dict[str, int | None]:
        found = {name: table.read().state for name, table in self.tables.items()}
        return {name: None if state is None else state.offset for name, state in found.items()}


def test_logs_that_nobody_disturbs_move_in_one_version(plain: SparkSession, path: str, tmp_path: Path) -> None:
    moving = Moving(plain, path, "a", "b", "c")
    moving.losing("c", OffsetRange(Offset(100), Offset(200)))
    assert moving.commit() == []
    newest = moving.positions.newest()
    assert newest.version == moving.on.version + 1
    assert moving.states() == {"a": 500, "b": 500, "c": 500}
    assert [newest.transaction_version(f"logtwin/rocketmq/{name}@0") for name in "abc"] == [500, 500, 500]
    assert [len(table.read().holes.ranges) for table in moving.tables.values()] == [0, 0, 1]
    assert offsets(tmp_path) == sorted([0, 100, 200, 300, 400] * 3)


def test_where_all_were_taken_there_is_no_commit(plain: SparkSession, path: str) -> None:
    moving = Moving(plain, path, "a", "b")
    for table in moving.tables.values():
        table.claim(this_writer())
    version = moving.positions.newest().version
    assert moving.commit() == ["a", "b"]
    assert moving.positions.newest().version == version


def test_each_log_lost_during_retries_leaves_the_commit(
    plain: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = Moving(plain, path, "a", "b", "c")
    taken = iter("abc")
    at_each(
        monkeypatch, Positions, "_attempt", lambda *_: moving.tables[next(taken)].claim(this_writer()),
        when=lambda _, on, moves: len(moves) > 1,
    )  # fmt: skip
    assert moving.commit() == ["a", "b"]
    assert moving.states() == {"a": None, "b": None, "c": 500}
    assert offsets(tmp_path) == [0, 100, 200, 300, 400]


def test_an_unheard_commit_of_several_logs_is_a_success(plain: SparkSession, path: str, tmp_path: Path) -> None:
    moving = Moving(plain, path, "a", "b")
    assert moving.commit() == []
    moving.tables["b"].claim(this_writer())
    assert moving.commit() == []
    assert moving.states() == {"a": 500, "b": 500}
    assert offsets(tmp_path) == sorted([0, 100, 200, 300, 400] * 2)


def test_other_commits_are_stepped_over_and_endless_refusal_is_an_error(
    plain: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, others = Moving(plain, path, "a", "b"), Moving(plain, path, "x", "y")
    assert others.commit() == []
    assert moving.commit() == []
    assert (moving.states(), others.states()) == ({"a": 500, "b": 500}, {"x": 500, "y": 500})

    left = Moving(plain, path, "c", "d")
    monkeypatch.setattr(Positions, "_attempt", Mock(side_effect=KernelConflict("always")))
    monkeypatch.setattr(commits, "ATTEMPTS", 2)
    with pytest.raises(ReplicaError, match="refuses the commit") as caught:
        left.commit()
    assert (caught.value.log, caught.value.found) == ("rocketmq/c", "a conflict at each of 2 attempts: always")


def test_a_table_that_contradicts_itself_is_refused(plain: SparkSession, path: str) -> None:
    table = OneLog(plain, path, BROKER_A)
    mine = table.claim(this_writer())
    lying = replace(mine, offset=Offset(900))
    held: Held = table.read()
    KernelTable(plain, path).commit(
        held.snapshot, transaction=("logtwin/rocketmq/broker-a@0", 500), domains=dict(lying.domains(BROKER_A, mine))
    )
    with pytest.raises(ReplicaError) as caught:
        table.read()
    assert (caught.value.log, caught.value.found) == ("rocketmq/broker-a", "900")


def test_a_position_nobody_can_read_is_refused(plain: SparkSession, path: str) -> None:
    table = OneLog(plain, path, BROKER_A)
    KernelTable(plain, path).commit(table.read().snapshot, domains={"logtwin.rocketmq/broker-a": '{"offset": 1}'})
    with pytest.raises(ReplicaError, match="cannot be read"):
        table.read()
    positions, mine = Positions(KernelTable(plain, path)), LogState.fresh(this_writer())
    with pytest.raises(ReplicaError, match="cannot be read"):
        positions.claim(positions.newest(), [BROKER_B, BROKER_A], mine.writer)
    lost = positions.lost(positions.newest(), {BROKER_A: mine})
    assert [(log, type(error)) for log, error in lost.items()] == [(BROKER_A, ReplicaError)]


@pytest.mark.parametrize("text", ["no JSON", "{}", "[]"])
def test_holes_nobody_can_read_are_refused(text: str) -> None:
    said = LoggedVersion(1, texts={f"logtwin.holes.{BROKER_A}": text})
    with pytest.raises(ReplicaError, match=r"logtwin\.holes\.rocketmq/broker-a cannot be read"):
        holes_at(said, BROKER_A, None)


class Asked:
    def __init__(self) -> None:
        self.chain: OwnChain[str, int] = OwnChain()
        self.asked: list[list[str]] = []

    def values(self, version: int, *names: str) -> dict[str, int]:
        def ask(unknown: Sequence[str]) -> dict[str, int]:
            self.asked.append(list(unknown))
            return dict.fromkeys(unknown, version)

        return self.chain.values(version, names, ask)


def test_what_is_known_is_not_asked_again_and_the_rest_at_once() -> None:
    one = Asked()
    assert one.values(1, "a", "b") == {"a": 1, "b": 1}
    assert one.values(1, "b", "c", "d") == {"b": 1, "c": 1, "d": 1}
    assert one.asked == [["a", "b"], ["c", "d"]]


def test_a_commit_of_its_own_leads_on_and_what_others_have_committed_is_asked_for() -> None:
    one = Asked()
    one.values(1, "a", "b")
    one.chain.committed(1, 2, {"a": 70})
    assert one.values(2, "a", "b") == {"a": 70, "b": 1}
    assert len(one.asked) == 1
    one.chain.committed(2, 4, {"a": 70})  # version 3 is another's
    assert one.values(4, "a") == {"a": 4}
    assert one.values(5, "a") == {"a": 5}
    one.chain.committed(4, 6, {"a": 70})  # built on what it did not look at last
    assert one.values(6, "a") == {"a": 6}
    one.chain.claimed(7, {"a": 70})  # whatever was before
    assert one.values(7, "a", "b") == {"a": 70, "b": 7}
    assert one.asked[-1] == ["b"]
