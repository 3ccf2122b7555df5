"""A batch of records and damage: what is proven, what is owed."""

from dataclasses import replace

import pytest

from sinks.batch.coverage import Covered
from sinks.batch.proof import ProvenBatch, SplitReport, WrittenStretch, prove_batch, raise_first_error
from sinks.delta.data_file import DataFile
from sinks.values.continuity import Link
from sinks.values.incident import Action, Incident
from sources.errors import CorruptRecord, CoverageError, Gap, LogtwinError, MasterUnreachable
from sources.loss import Condition
from sources.offsets import Offset
from tests.sinks.accounts import incident
from tests.spans import span

LOG = "rocketmq/broker-a"
BAD, WRONG, GONE = Condition.CHECKSUM_FAILURE, Condition.UNDECODABLE, Condition.GAP


def records(start: int, end: int, size: int = 10) -> WrittenStretch:
    last = span(end - size, end)
    file = DataFile(f"{start}.parquet", 1, 2, (end - start) // size, "{}")
    covered, link = Covered(span(start, end), last.start), Link.of(last, b"last")
    return WrittenStretch(covered, f"sum of {start}", end - start, file.records, link, None, 5, 6, file)


def damage(start: int, end: int, condition: Condition = BAD, action: Action = Action.QUARANTINED) -> Incident:
    return incident(start, end, condition, cause=f"cause at {start}", action=action, detected_at=0)


def report(
    split: tuple[int, int], *pieces: WrittenStretch | Incident, batch: tuple[int, int] = (0, 100)
) -> SplitReport:
    written = tuple(piece for piece in pieces if isinstance(piece, WrittenStretch))
    damaged = tuple(piece for piece in pieces if isinstance(piece, Incident))
    is_kept = any(piece.action is Action.QUARANTINED for piece in damaged)
    kept = DataFile(f"quarantine of {split[0]}", 1, 2, 1, "{}")
    return SplitReport(LOG, span(*split), span(*batch), written, damaged, kept if is_kept else None)


def proven(*reports: SplitReport, position: int | None = 0) -> ProvenBatch:
    batch = prove_batch(reports, None if position is None else Offset(position))
    assert batch is not None
    return batch


def test_records_and_damage_cover_the_batch_together() -> None:
    batch = proven(report((50, 100), damage(50, 60), records(60, 100)), report((0, 50), records(0, 50)))
    assert batch.range == span(0, 100)
    assert [file.name for file in batch.files] == ["0.parquet", "60.parquet"]
    assert [(row.range, row.records, row.bytes, row.checksum) for row in batch.ledger(9)] == [
        (span(0, 50), 5, 50, "sum of 0"),
        (span(60, 100), 4, 40, "sum of 60"),
    ]
    assert batch.lost == (span(50, 60),)
    assert [file.name for file in batch.quarantined] == ["quarantine of 50"]
    assert batch.link == Link.of(span(90, 100), b"last")


def test_an_overlap_moves_from_the_position_to_the_end() -> None:
    pieces = replace(records(50, 100), mark=7, link=None), records(20, 50)
    batch = proven(report((50, 100), pieces[0]), report((0, 50), pieces[1]), position=20)
    assert (batch.range, batch.mark, batch.link) == (span(20, 100), 7, None)
    assert [file.name for file in batch.files] == ["20.parquet", "50.parquet"]
    assert (batch.records, batch.lost) == (3 + 5, ())


def test_a_file_that_splits_share_is_committed_once() -> None:
    file = DataFile("shared.parquet", 1, 2, 10, "{}")
    pieces = [replace(one, file=file) for one in (records(0, 50), records(50, 100))]
    assert proven(*(report((at * 50, at * 50 + 50), one) for at, one in enumerate(pieces))).files == [file]


def test_nothing_new_and_a_gap() -> None:
    asked = report((0, 100))
    assert prove_batch([asked], Offset(100)) is None
    assert prove_batch([asked], Offset(140)) is None
    assert prove_batch([report((7, 7), batch=(7, 7))], Offset(0)) is None
    assert prove_batch([], Offset(0)) is None
    with pytest.raises(Gap) as caught:
        prove_batch([report((10, 100), records(10, 100), batch=(10, 100))], Offset(9))
    assert caught.value.offset == 9


@pytest.mark.parametrize(
    "pieces",
    [
        (records(0, 50), damage(60, 100)),
        (records(0, 60), damage(50, 100)),
        (damage(0, 50), damage(40, 100)),
        (damage(0, 90),),
        (damage(10, 100),),
        (records(0, 50), damage(50, 100), records(100, 120)),
    ],
    ids=[
        "damage late", "an overlap", "damage twice", "damage short", "damage begins late", "a record of the next batch",
    ],
)  # fmt: skip
def test_what_does_not_cover_the_batch_is_refused(pieces: tuple[WrittenStretch | Incident, ...]) -> None:
    with pytest.raises(CoverageError):
        prove_batch([report((0, 100), *pieces)], Offset(0))


def test_damage_in_pieces_is_one_incident() -> None:
    pieces = (damage(10, 30), damage(30, 50), damage(50, 60), records(60, 100))
    batch = proven(report((0, 40), records(0, 10), *pieces[:2]), report((40, 100), *pieces[2:]))
    assert batch.incidents(9) == [incident(10, 60, BAD, cause="cause at 10", action=Action.QUARANTINED, detected_at=9)]
    assert len(batch.quarantined) == 2


def test_what_differs_or_lies_apart_is_an_incident_of_its_own() -> None:
    pieces = (damage(0, 10), damage(10, 20, WRONG), damage(20, 30, GONE, Action.SKIPPED), records(30, 40))
    batch = proven(report((0, 100), *pieces, damage(40, 100, GONE, Action.SKIPPED)))
    found = [(one.condition, one.range, one.action) for one in batch.incidents(9)]
    assert found == [
        (BAD, span(0, 10), Action.QUARANTINED),
        (WRONG, span(10, 20), Action.QUARANTINED),
        (GONE, span(20, 30), Action.SKIPPED),
        (GONE, span(40, 100), Action.SKIPPED),
    ]
    assert batch.lost == (span(0, 10), span(10, 20), span(20, 30), span(40, 100))


def test_damage_belongs_to_the_batch_it_starts_in_and_may_be_all_of_it() -> None:
    """Over HA, where the next sound record may be far; and it may come in pieces."""
    batch = proven(report((0, 100), records(0, 90), damage(90, 110), damage(110, 130)))
    assert (batch.range, batch.link) == (span(0, 130), None)
    with pytest.raises(CoverageError, match="does not own"):
        prove_batch([report((0, 100), records(0, 100), damage(100, 110))], Offset(0))
    batch = proven(report((0, 100), damage(0, 100)), position=None)
    assert (batch.range, batch.records, batch.files, batch.ledger(9), batch.link) == (span(0, 100), 0, [], [], None)


def failed(
    split: tuple[int, int], error: LogtwinError | None, *pieces: WrittenStretch, until: int | None = None
) -> SplitReport:
    return replace(report(split, *pieces), error=error, until=None if until is None else Offset(until))


BROKEN, AWAY = CorruptRecord("bad", offset=70), MasterUnreachable("it broke", offset=70)


@pytest.mark.parametrize("error", [BROKEN, None], ids=["damaged", "what came in time"])
def test_a_split_s_records_are_proven_as_far_as_it_is_sound(error: LogtwinError | None) -> None:
    late = report((80, 100), records(80, 100))
    batch = proven(report((0, 50), records(0, 50)), late, failed((50, 80), error, records(50, 70), until=70))
    assert (batch.range, batch.late) == (span(0, 70), (late,))
    assert not {file.name for file in batch.files} & late.files
    assert [piece.covered.range for piece in batch.written] == [span(0, 50), span(50, 70)]


def test_damage_at_a_split_s_start_does_not_hold_back_earlier_splits() -> None:
    broken, late = failed((50, 80), BROKEN), failed((80, 100), AWAY)
    batch = proven(late, broken, report((0, 50), records(0, 50)))
    assert (batch.range, batch.late) == (span(0, 50), (broken, late))


def test_damage_where_the_batch_begins_is_its_error() -> None:
    sound = report((50, 100), records(50, 100))
    for broken in (failed((0, 50), BROKEN), failed((0, 50), AWAY)):
        with pytest.raises(type(broken.error or BROKEN)):
            prove_batch([sound, broken], Offset(0))
    for position in (50, 70):  # what lies below the position is nothing new
        with pytest.raises(CorruptRecord):
            prove_batch([report((0, 50)), failed((50, 100), BROKEN)], Offset(position))


def test_a_split_that_cannot_be_read_fails_the_batch() -> None:
    with pytest.raises(MasterUnreachable):
        prove_batch([report((0, 50), records(0, 50)), failed((50, 100), AWAY)], Offset(0))
    with pytest.raises(CoverageError):  # damage does not hide a hole before it
        prove_batch([report((0, 50), records(0, 40)), failed((50, 100), BROKEN)], Offset(0))


def test_who_wants_all_or_nothing_is_told_the_first_error() -> None:
    with pytest.raises(CorruptRecord, match="bad"):
        raise_first_error([failed((80, 100), AWAY), failed((50, 80), BROKEN, records(50, 70), until=70)])
    raise_first_error([report((0, 100), records(0, 100))])
