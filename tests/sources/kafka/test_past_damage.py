"""Reading past a damaged batch: what is damage, where it ends, and what is never passed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.job.loss_policy import Stop, decide, explained
from sources.errors import ChecksumMismatch, UnprovenEnd
from sources.master import Chunk, Damage
from sources.offsets import Offset
from tests.sources.kafka.scripted_cluster import Play, batch, fetched, metadata, topic
from tests.sources.kafka.test_partition import a_partition
from tests.spans import span

HERE = metadata(topic())
SOUND, NEXT, LAST = batch(10, 5, epoch=1), batch(17, 3, epoch=1), batch(20, 2, epoch=2)
BAD = NEXT[:-1] + bytes([NEXT[-1] ^ 1])


def pieces(play: Play, start: int, end: int, *answers: object, past_damage: bool = True) -> Sequence[Chunk | Damage]:
    cluster = play(HERE, *answers)
    found = list(a_partition(past_damage=past_damage).read(span(start, end)))
    assert cluster.is_done
    return found


def shown(found: Sequence[Chunk | Damage]) -> list[tuple[int, int, list[int] | bytes | None]]:
    """Of each piece where it begins and ends, the offsets of its records, or the bytes of what is damaged."""
    return [
        (
            one.covered.start,
            one.covered.end,
            bytes(one.raw or b"") if isinstance(one, Damage) else one.records.column("offset").to_pylist(),
        )
        for one in found
    ]


def test_a_damaged_batch_ends_where_the_next_one_begins(play: Play) -> None:
    """What lies before it comes first; offsets 15 and 16 have no record, and are asked for by what leads past them."""
    found = pieces(
        play, 10, 22,
        fetched(SOUND + BAD + LAST),
        fetched(BAD + LAST),
        fetched(LAST),
    )  # fmt: skip
    assert shown(found) == [(10, 17, [10, 11, 12, 13, 14]), (17, 20, BAD), (20, 22, [20, 21])]
    damage = found[1]
    assert isinstance(damage, Damage)
    assert isinstance(damage.error, ChecksumMismatch)
    assert damage.error.offset == 17


def test_a_part_of_a_damaged_batch(play: Play) -> None:
    """Splits are cut at any offset: each has what it owns, with all of the batch's bytes."""
    assert shown(pieces(play, 18, 19, fetched(BAD + LAST))) == [(18, 19, BAD)]
    assert shown(pieces(play, 19, 22, fetched(BAD + LAST), fetched(LAST))) == [(19, 20, BAD), (20, 22, [20, 21])]


@pytest.mark.parametrize("behind", [b"", LAST[:-1], BAD], ids=["nothing", "a batch cut off", "another damaged one"])
@pytest.mark.parametrize("past_damage", [False, True])
def test_damage_without_a_sound_batch_behind_it_ends_the_log(play: Play, behind: bytes, past_damage: bool) -> None:
    """Whatever is to be done about losses: it is waited for, and asked for once at a time."""
    with pytest.raises(UnprovenEnd, match="the newest batch is not sound") as raised:
        pieces(play, 17, 22, *[fetched(BAD + behind)] * 2, fetched(behind or BAD), past_damage=past_damage)
    assert raised.value.offset == 17
    assert raised.value.is_transient
    assert decide("record", raised.value, Offset(17), None) == Stop()
    assert explained(raised.value, "fail", Offset(17)) is raised.value


@pytest.mark.parametrize("past_damage", [False, True])
def test_damage_before_a_sound_newest_batch_is_no_end_of_the_log(play: Play, past_damage: bool) -> None:
    """An answer ends with its segment file: what follows the damage may be in the next one."""
    cluster = play(HERE, *[fetched(BAD, end=22)] * 2, fetched(LAST, end=22))
    with pytest.raises(ChecksumMismatch, match="offset 17") as raised:
        next(a_partition(past_damage=past_damage).read(span(17, 22)))
    assert not raised.value.is_transient
    asked, _ = cluster.asked[-1]
    assert asked.topics[0].partitions[0].fetch_offset == 21


def test_how_far_damage_reaches_is_asked_for_where_the_answer_had_no_room_for_it(play: Play) -> None:
    """One that many partitions share, or of a short range, holds little more than was wanted."""
    assert shown(pieces(play, 17, 20, fetched(BAD), fetched(BAD + LAST))) == [(17, 20, BAD)]
    cluster = play(HERE, fetched(BAD), fetched(BAD + LAST))
    next(a_partition(past_damage=True).read(span(17, 20)))
    asked = [request.topics[0].partitions[0] for request, _ in cluster.asked[1:]]
    assert [(one.fetch_offset, one.partition_max_bytes) for one in asked] == [(17, 16 * 1024), (17, 8 * 1024 * 1024)]


def test_what_is_sound_when_it_is_asked_for_again_is_read(play: Play) -> None:
    cluster = play(HERE, fetched(BAD), fetched(NEXT), HERE, fetched(NEXT))
    found = list(a_partition(patience_ms=60_000).read(span(17, 20)))
    assert shown(found) == [(17, 20, [17, 18, 19])]
    assert cluster.is_done


def test_damage_of_several_batches_has_the_bytes_of_all_of_them(play: Play) -> None:
    bad = [one[:-1] + bytes([one[-1] ^ 1]) for one in (batch(at, 1) for at in range(10, 16))]
    sound = batch(16, 4)
    assert shown(pieces(play, 10, 20, fetched(b"".join(bad) + sound), fetched(sound))) == [
        (10, 16, b"".join(bad)),
        (16, 20, [16, 17, 18, 19]),
    ]
