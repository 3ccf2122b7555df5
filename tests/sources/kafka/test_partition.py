"""A partition read from scripted answers: what covers a range, what is asked again, and what is refused."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline.job.losses import decide, explained
from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    ChecksumMismatch,
    CorruptRecord,
    LogtwinError,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    ProtocolViolation,
    Rewritten,
    UnprovenEnd,
)
from sources.master import Chunk, Damage, Known
from sources.offsets import Offset, OffsetRange
from tests.sources.kafka.scripted_cluster import (
    NOT_LEADER,
    OUT_OF_RANGE,
    TOPIC_ID,
    UNKNOWN_TOPIC_ID,
    Play,
    ScriptedCluster,
    batch,
    epoch_ends,
    fetched,
    metadata,
    offsets,
    throttled,
    topic,
)
from tests.sources.kafka.test_topic import a_log
from tests.spans import span

HERE = metadata(topic())


def read(
    play: Play, start: int, end: int, *answers: object, after_epoch: int | None = None, patience_ms: int = 0
) -> tuple[ScriptedCluster, list[Chunk]]:
    cluster = play(*answers)
    owned = span(start, end)
    pieces = list(pieces_of(owned, after_epoch, patience_ms=patience_ms))
    chunks = [piece for piece in pieces if isinstance(piece, Chunk)]
    assert len(chunks) == len(pieces)
    return cluster, chunks


def pieces_of(owned: OffsetRange, after_epoch: int | None = None, **options: Any) -> Iterator[Chunk | Damage]:
    """What a partition of a topic with these `options` reads; `after_epoch` is the epoch of what lies before."""
    known = Known(str(TOPIC_ID), owned.start, after_epoch)
    return a_log(known=known, **options).read(owned, committed=None, boundary=True)


def covered(chunks: list[Chunk]) -> list[tuple[int, int, list[int], int | None]]:
    """Of each chunk where it begins and ends, the offsets of its records, and the epoch at its end."""
    return [
        (chunk.covered.start, chunk.covered.end, chunk.records.column("offset").to_pylist(), chunk.mark)
        for chunk in chunks
    ]


def test_batches_cover_the_range_over_holes_and_edges(play: Play) -> None:
    cluster, chunks = read(
        play, 12, 40,
        HERE,
        fetched(batch(10, 5, epoch=1) + batch(15, 2, epoch=2)),  # begins before what was asked for
        fetched(batch(25, 3, epoch=3)),  # 17 to 24 are gone
        fetched(batch(60, 3, epoch=5)),  # and 28 to 59
        after_epoch=1,
    )  # fmt: skip
    assert covered(chunks) == [(12, 17, [12, 13, 14, 15, 16], 2), (17, 28, [25, 26, 27], 3), (28, 40, [], 5)]
    asked = [request.topics[0].partitions[0] for request, _ in cluster.asked[1:]]
    assert [(one.fetch_offset, one.last_fetched_epoch) for one in asked] == [(12, 1), (17, 2), (28, 3)]
    assert [request.topics[0].topic_id for request, _ in cluster.asked[1:]] == [TOPIC_ID] * 3
    assert [node for _, node in cluster.asked] == [None, 1, 1, 1]
    assert chunks[0].records.column("topic").to_pylist() == ["t"] * 5
    assert cluster.connections == 1


@pytest.mark.parametrize(
    ("trouble", "connections"),
    [
        (fetched(error=NOT_LEADER), 1),
        (fetched(error=UNKNOWN_TOPIC_ID), 1),
        (throttled(), 2),
        (MasterUnreachable("it broke"), 2),
        (MasterSilent("no answer"), 2),
    ],
    ids=["not the leader", "topic id not known yet", "throttled", "connection broke", "no answer"],
)
def test_passing_trouble_is_waited_for_and_the_leader_sought_again(
    play: Play, trouble: object, connections: int
) -> None:
    cluster, chunks = read(
        play, 0, 4,
        HERE, fetched(batch(0, 2)), trouble,
        metadata(topic(leaders=[(2, 1)])), fetched(batch(2, 2, epoch=1)),
        patience_ms=60_000,
    )  # fmt: skip
    assert covered(chunks) == [(0, 2, [0, 1], 0), (2, 4, [2, 3], 1)]
    assert cluster.connections == connections
    request, node = cluster.asked[-1]
    assert (node, request.topics[0].partitions[0].current_leader_epoch) == (2, 1)


def test_silence_covers_nothing(play: Play) -> None:
    """A broker that throttles or has not caught up gives nothing, as one does whose records are gone."""
    with pytest.raises(MasterSilent, match="expected batches up to 4, found none; high watermark 100"):
        read(play, 0, 4, HERE, fetched(), offsets(0), offsets(100))


def test_silence_at_the_end_of_the_log_is_said(play: Play) -> None:
    with pytest.raises(AboveMaximum, match=r"holds \[0, 3\)"):
        read(play, 3, 4, HERE, fetched(end=3), offsets(0), offsets(3))


def test_an_answer_without_a_whole_batch_is_none(play: Play) -> None:
    with pytest.raises(ProtocolViolation, match="no whole batch"):
        read(play, 0, 4, HERE, fetched(batch(0, 5)[:-1]))


def test_a_batch_beyond_the_high_watermark_is_damage(play: Play) -> None:
    """No checksum covers the offset at which it says it begins."""
    with pytest.raises(CorruptRecord, match="high watermark 10"):
        beyond = batch(1 << 40, 5)
        read(play, 4, 10, HERE, *[fetched(batch(0, 4) + beyond, end=10)] * 2, fetched(beyond, end=10))
    for behind in (batch(1 << 40, 5), batch(8, 5)):
        answers = (fetched(batch(0, 4) + behind, end=10), *[fetched(behind, end=10)] * 3)
        cluster = play(HERE, *answers)
        pieces = pieces_of(span(0, 10))
        assert next(pieces).covered.start == 0  # what is sound before it comes
        with pytest.raises(CorruptRecord, match="high watermark 10") as raised:
            next(pieces)
        assert cluster.is_done
        assert raised.value.log == "kafka/c/t/0"


@pytest.mark.parametrize(
    ("held", "expected"), [((10, 100), BelowMinimum), ((0, 4), AboveMaximum), ((0, 100), MasterRefused)]
)
def test_out_of_range_says_what_the_leader_holds(
    play: Play, held: tuple[int, int], expected: type[LogtwinError]
) -> None:
    with pytest.raises(expected) as raised:
        read(play, 5, 6, HERE, fetched(error=OUT_OF_RANGE), offsets(held[0]), offsets(held[1]))
    assert f"[{held[0]}, {held[1]})" in str(raised.value)
    assert (raised.value.log, raised.value.offset) == ("kafka/c/t/0", 5)


def test_a_log_that_branched_off_before_or_whose_epoch_nobody_knows_is_a_cut(play: Play) -> None:
    with pytest.raises(Rewritten, match="found epoch 3 up to 40"):
        read(play, 50, 60, HERE, fetched(diverging=(3, 40)), offsets(0), offsets(100), after_epoch=4)
    with pytest.raises(AboveMaximum):
        read(play, 50, 60, HERE, fetched(diverging=(3, 40)), offsets(0), offsets(40), after_epoch=4)
    answers = fetched(error=OUT_OF_RANGE), offsets(0), offsets(100), epoch_ends(-1, -1)
    with pytest.raises(Rewritten, match="leader epoch 9"):
        read(play, 5, 6, HERE, *answers, after_epoch=9)


# past a damaged batch: what is damage, where it ends, and what is never passed


SOUND, NEXT, LAST = batch(10, 5, epoch=1), batch(17, 3, epoch=1), batch(20, 2, epoch=2)
BAD = NEXT[:-1] + bytes([NEXT[-1] ^ 1])


def pieces(play: Play, start: int, end: int, *answers: object, past_damage: bool = True) -> Sequence[Chunk | Damage]:
    cluster = play(HERE, *answers)
    found = list(pieces_of(span(start, end), past_damage=past_damage))
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
    assert decide("record", raised.value, Offset(17), None) is None
    assert explained(raised.value, "fail", Offset(17)) is raised.value


@pytest.mark.parametrize("past_damage", [False, True])
def test_damage_before_a_sound_newest_batch_is_no_end_of_the_log(play: Play, past_damage: bool) -> None:
    """An answer ends with its segment file: what follows the damage may be in the next one."""
    cluster = play(HERE, *[fetched(BAD, end=22)] * 2, fetched(LAST, end=22))
    with pytest.raises(ChecksumMismatch, match="offset 17") as raised:
        next(pieces_of(span(17, 22), past_damage=past_damage))
    assert not raised.value.is_transient
    asked, _ = cluster.asked[-1]
    assert asked.topics[0].partitions[0].fetch_offset == 21


def test_how_far_damage_reaches_is_asked_for_where_the_answer_had_no_room_for_it(play: Play) -> None:
    """One that many partitions share, or of a short range, holds little more than was wanted."""
    assert shown(pieces(play, 17, 20, fetched(BAD), fetched(BAD + LAST))) == [(17, 20, BAD)]
    cluster = play(HERE, fetched(BAD), fetched(BAD + LAST))
    next(pieces_of(span(17, 20), past_damage=True))
    asked = [request.topics[0].partitions[0] for request, _ in cluster.asked[1:]]
    assert [(one.fetch_offset, one.partition_max_bytes) for one in asked] == [(17, 16 * 1024), (17, 8 * 1024 * 1024)]


def test_what_is_sound_when_it_is_asked_for_again_is_read(play: Play) -> None:
    cluster = play(HERE, fetched(BAD), fetched(NEXT), HERE, fetched(NEXT))
    found = list(pieces_of(span(17, 20), patience_ms=60_000))
    assert shown(found) == [(17, 20, [17, 18, 19])]
    assert cluster.is_done


def test_damage_of_several_batches_has_the_bytes_of_all_of_them(play: Play) -> None:
    bad = [one[:-1] + bytes([one[-1] ^ 1]) for one in (batch(at, 1) for at in range(10, 16))]
    sound = batch(16, 4)
    assert shown(pieces(play, 10, 20, fetched(b"".join(bad) + sound), fetched(sound))) == [
        (10, 16, b"".join(bad)),
        (16, 20, [16, 17, 18, 19]),
    ]
