"""Many partitions read at once from scripted answers: who is asked for what in which round, and whose an error is."""

import uuid
from collections import defaultdict
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from sources.errors import (
    BelowMinimum,
    ConfigurationError,
    CorruptRecord,
    MasterRefused,
    MasterSilent,
    MasterUnreachable,
    NoSuchTopic,
    Recreated,
    UnprovenEnd,
)
from sources.kafka.cluster.settings import KafkaSettings
from sources.kafka.log import KafkaLog
from sources.kafka.reader import KafkaReader
from sources.kafka.topic import KafkaTopic
from sources.master import Chunk, Damage, Known, TimeIsUp
from sources.offsets import Offset, OffsetRange
from sources.reading import Ended, WantedSplit
from tests.sources.kafka.scripted_cluster import (
    NOT_LEADER,
    OTHER_ID,
    OUT_OF_RANGE,
    TOPIC_ID,
    UNKNOWN_TOPIC_ID,
    Play,
    ScriptedCluster,
    batch,
    fetched_of,
    fetched_part,
    metadata,
    offsets,
    topic,
)
from tests.spans import span

LONG_MS = 60_000
NOTHING = partial(fetched_part, b"")


def wanted(number: int, start: int, end: int, *, name: str = "t", identity: uuid.UUID | None = TOPIC_ID) -> WantedSplit:
    known = Known(None if identity is None else str(identity), Offset(start), None)
    topic = KafkaTopic(settings=KafkaSettings(servers=("h:1",)), cluster="c", topic=name)
    return WantedSplit(KafkaLog(topic=topic, number=number, known=known), span(start, end))


def reader(**options: Any) -> KafkaReader:
    given = {"settings": KafkaSettings(servers=("h:1",)), "patience_ms": 0} | options
    return KafkaReader(**given)  # type: ignore[arg-type] # of a test


def led_by(*nodes: int, **options: Any) -> Any:
    """The metadata of a topic whose partitions are led by these."""
    return metadata(topic(leaders=[(node, 0) for node in nodes], **options))


def read(*splits: WantedSplit, **options: Any) -> dict[int, list[Any]]:
    """What came of each: ranges of chunks, what is damaged, and the errors with which they ended."""
    found: dict[int, list[Any]] = defaultdict(list)
    for number, come in reader(**options).read(splits):
        if isinstance(come, Chunk):
            assert all(offset in come.covered for offset in come.records.column("offset").to_pylist())
            found[number].append(come.covered)
        else:
            found[number].append(come.error)
        assert isinstance(come, (Chunk, Damage, Ended))
    return dict(found)


def asked(cluster: ScriptedCluster) -> list[tuple[int | None, list[tuple[int, int]]]]:
    """Of each fetch whom it asks, and from where on for which partitions."""
    fetches = [(node, request.topics) for request, node in cluster.asked if request.name == "FetchRequest"]
    return [
        (node, [(one.partition, one.fetch_offset) for of in topics for one in of.partitions])
        for node, topics in fetches
    ]


def test_each_broker_is_asked_once_for_all_that_it_leads_and_all_before_one_has_answered(play: Play) -> None:
    cluster = play(
        led_by(1, 2, 1),
        fetched_of({0: fetched_part(batch(0, 4)), 2: fetched_part(batch(0, 4))}),
        fetched_of({1: fetched_part(batch(5, 1))}),
    )
    waiting: list[int] = []
    plain = cluster._answer

    def answer() -> Any:
        waiting.append(len(cluster.asked))
        return plain()

    cluster._answer = answer  # type: ignore[method-assign]
    found = read(wanted(0, 0, 4), wanted(1, 5, 6), wanted(2, 0, 4))
    assert found == {0: [span(0, 4), None], 1: [span(5, 6), None], 2: [span(0, 4), None]}
    assert asked(cluster) == [(1, [(0, 0), (2, 0)]), (2, [(1, 5)])]
    assert waiting == [1, 3, 3]  # of metadata, and then of both brokers
    assert cluster.connections == 1


def test_who_got_nothing_for_lack_of_room_is_asked_for_first_and_is_not_silent(play: Play) -> None:
    cluster = play(
        led_by(1, 1, 1),
        fetched_of({0: fetched_part(batch(0, 2)), 1: fetched_part(batch(0, 4)), 2: NOTHING()}),
        fetched_of({2: fetched_part(batch(0, 4)), 0: NOTHING()}),
        fetched_of({0: fetched_part(batch(2, 2))}),
    )
    found = read(wanted(0, 0, 4), wanted(1, 0, 4), wanted(2, 0, 4))
    assert found == {0: [span(0, 2), span(2, 4), None], 1: [span(0, 4), None], 2: [span(0, 4), None]}
    assert asked(cluster) == [(1, [(0, 0), (1, 0), (2, 0)]), (1, [(2, 0), (0, 2)]), (1, [(0, 2)])]


def test_who_got_nothing_although_there_was_room_is_silent(play: Play) -> None:
    """Those behind it go on; it is asked for again until its patience is over."""
    cluster = play(
        led_by(1, 1), fetched_of({0: NOTHING(), 1: fetched_part(batch(0, 4))}), offsets(0), offsets(9),
        led_by(1, 1), fetched_of({0: fetched_part(batch(0, 4))}),
    )  # fmt: skip
    assert read(wanted(0, 0, 4), wanted(1, 0, 4), patience_ms=LONG_MS) == {0: [span(0, 4), None], 1: [span(0, 4), None]}
    assert cluster.is_done
    play(led_by(1, 1), fetched_of({0: NOTHING(), 1: fetched_part(batch(0, 4))}), offsets(0), offsets(9))
    found = read(wanted(0, 0, 4), wanted(1, 0, 4))
    assert (type(found[0][0]), found[0][0].log, found[1]) == (MasterSilent, "kafka/c/t/0", [span(0, 4), None])


def test_splits_of_one_partition_are_never_in_one_request(play: Play) -> None:
    cluster = play(led_by(1), *(fetched_of({0: fetched_part(batch(start, 2))}) for start in (0, 4, 2)))
    assert read(wanted(0, 0, 4), wanted(0, 4, 6)) == {0: [span(0, 2), span(2, 4), None], 1: [span(4, 6), None]}
    assert asked(cluster) == [(1, [(0, 0)]), (1, [(0, 4)]), (1, [(0, 2)])]


def test_topics_are_looked_up_at_once_and_asked_for_one_after_the_other(play: Play) -> None:
    both = metadata(topic(leaders=[(1, 0), (1, 0)]), topic("u", topic_id=OTHER_ID))
    of_u = fetched_of({0: fetched_part(batch(0, 2))}, OTHER_ID)
    of_both = fetched_of({0: fetched_part(batch(0, 2)), 1: fetched_part(batch(7, 2))})
    of_both.responses += of_u.responses
    cluster = play(both, of_both)
    found = read(wanted(0, 0, 2), wanted(0, 0, 2, name="u", identity=OTHER_ID), wanted(1, 7, 9))
    assert found == {0: [span(0, 2), None], 1: [span(0, 2), None], 2: [span(7, 9), None]}
    request = cluster.asked[-1][0]
    assert [(of.topic_id, [one.partition for one in of.partitions]) for of in request.topics] == [
        (TOPIC_ID, [0, 1]),
        (OTHER_ID, [0]),
    ]


def test_a_short_range_asks_for_little_until_there_is_no_room_for_it(play: Play) -> None:
    """Of a long log the rest would come for nothing; all brokers together send no more than `chunk_bytes`."""
    whole, mib = fetched_part(batch(0, 4)), 1024 * 1024
    cluster = play(
        led_by(1, 1, 2, 1),
        fetched_of({0: whole, 1: NOTHING(), 3: NOTHING()}),
        fetched_of({2: fetched_part(batch(0, 4))}),
        fetched_of({1: fetched_part(batch(0, 4)), 3: fetched_part(batch(0, 1000), end=1000)}),
    )
    read(*(wanted(number, 0, 4) for number in range(3)), wanted(3, 0, 1000), chunk_bytes=8 * mib)
    fetches = [request for request, _ in cluster.asked if request.name == "FetchRequest"]
    assert [one.max_bytes for one in fetches] == [4 * mib, 4 * mib, 8 * mib]
    limits = [[one.partition_max_bytes for of in request.topics for one in of.partitions] for request in fetches]
    assert limits == [[16 * 1024, 16 * 1024, 4000 * 1024], [16 * 1024], [128 * 1024, 8 * mib]]


def test_of_empty_ranges_nobody_is_asked(play: Play) -> None:
    cluster = play(led_by(1, 1), fetched_of({1: fetched_part(batch(5, 1))}))
    assert read(wanted(0, 5, 5), wanted(1, 5, 6)) == {0: [None], 1: [span(5, 6), None]}
    assert asked(cluster) == [(1, [(1, 5)])]


def test_the_topic_that_there_is_stays_the_one_that_is_read(play: Play) -> None:
    """Who does not know which is meant takes the first, and not another one that has its name later."""
    play(
        led_by(1), fetched_of({0: fetched_part(batch(0, 2))}), fetched_of({0: fetched_part(error=UNKNOWN_TOPIC_ID)}),
        led_by(1, topic_id=OTHER_ID),
    )  # fmt: skip
    found = read(wanted(0, 0, 4, identity=None), patience_ms=LONG_MS)
    assert (found[0][0], type(found[0][1])) == (span(0, 2), Recreated)


def test_an_error_of_one_partition_is_its_own(play: Play) -> None:
    bad = batch(0, 4)[:-1] + b"\x01"
    cluster = play(
        led_by(1, 1, 1, 1, -1, 1),
        fetched_of(
            {  # and nothing of 5
                0: fetched_part(error=OUT_OF_RANGE),
                1: fetched_part(bad + batch(4, 1)),
                2: fetched_part(batch(0, 4)),
                3: fetched_part(batch(50, 1), log_start=50),
            }
        ),
        offsets(7), offsets(9),  # what 0 holds
    )  # fmt: skip
    found = read(*(wanted(number, 0, 4) for number in range(7)))
    assert found.pop(2) == [span(0, 4), None]
    kinds = {number: type(error) for number, (error,) in found.items()}
    assert kinds.pop(1) in CorruptRecord.__subclasses__()
    assert kinds == {0: BelowMinimum, 3: BelowMinimum, 4: MasterRefused, 5: MasterRefused, 6: ConfigurationError}
    assert {number: error.log for number, (error,) in found.items()} == {at: f"kafka/c/t/{at}" for at in found}
    assert cluster.is_done


def test_the_unproven_end_of_one_is_not_asked_for_again(play: Play) -> None:
    bad = batch(0, 4)[:-1] + b"\x01"
    cluster = play(
        led_by(1, 1),
        fetched_of({0: fetched_part(bad, end=4), 1: fetched_part(batch(0, 4))}),
        *(fetched_of({0: fetched_part(bad, end=4)}) for _ in range(2)),  # how far it reaches, and what is the newest
    )
    found = read(wanted(0, 0, 4), wanted(1, 0, 4), patience_ms=LONG_MS)
    assert (type(found[0][0]), found[1]) == (UnprovenEnd, [span(0, 4), None])
    assert cluster.is_done


def test_a_leader_that_moves_while_damage_is_looked_at_says_nothing_of_it(play: Play) -> None:
    bad = batch(0, 4)[:-1] + b"\x01"
    cluster = play(
        led_by(1), fetched_of({0: fetched_part(bad, end=4)}), fetched_of({0: fetched_part(error=NOT_LEADER)}),
        led_by(2), fetched_of({0: fetched_part(batch(0, 4))}),
    )  # fmt: skip
    assert read(wanted(0, 0, 4), patience_ms=LONG_MS) == {0: [span(0, 4), None]}
    assert cluster.is_done


def test_a_topic_that_is_gone_or_another_one_does_not_concern_the_others(play: Play) -> None:
    gone, another = topic("gone", error=3), topic("u", topic_id=OTHER_ID)
    play(metadata(topic(), gone, another), fetched_of({0: fetched_part(batch(0, 4))}))
    found = read(wanted(0, 0, 4), wanted(0, 0, 4, name="gone"), wanted(0, 0, 4, name="u"), patience_ms=LONG_MS)
    assert found.pop(0) == [span(0, 4), None]
    assert {number: type(error) for number, (error,) in found.items()} == {1: NoSuchTopic, 2: Recreated}


def test_who_has_lost_its_leader_is_looked_up_again_and_the_others_do_not_wait(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = count()  # the others are asked before the clock goes on, however slow the machine is
    at = [next(now_s)]
    clock = SimpleNamespace(monotonic=lambda: at[0], sleep=lambda _: at.insert(0, next(now_s)))
    monkeypatch.setattr("sources.kafka.reader.time", clock)
    cluster = play(
        led_by(1, 1),
        fetched_of({0: fetched_part(error=NOT_LEADER), 1: fetched_part(batch(0, 2))}),
        led_by(2, 1),  # asked for because of either: the first to go on
        fetched_of({1: fetched_part(batch(2, 2))}),
        fetched_of({0: fetched_part(batch(0, 4))}),
    )
    found = read(wanted(0, 0, 4), wanted(1, 0, 4), patience_ms=LONG_MS)
    assert {number: come[-2].end for number, come in found.items()} == {0: 4, 1: 4}
    assert (2, [(0, 0)]) in asked(cluster)
    assert cluster.connections == 1


def test_the_trouble_of_one_broker_is_not_that_of_another(play: Play) -> None:
    cluster = play(
        led_by(1, 2), MasterUnreachable("1 is away"), fetched_of({1: fetched_part(batch(0, 4))}),
        led_by(1, 2), fetched_of({0: fetched_part(batch(0, 4))}),
    )  # fmt: skip
    assert read(wanted(0, 0, 4), wanted(1, 0, 4), patience_ms=LONG_MS) == {0: [span(0, 4), None], 1: [span(0, 4), None]}
    assert cluster.connections == 2
    play(led_by(1, 2), MasterUnreachable("1 is away"), fetched_of({1: fetched_part(batch(0, 4))}))
    found = read(wanted(0, 0, 4), wanted(1, 0, 4))
    assert (type(found[0][0]), found[1]) == (MasterUnreachable, [span(0, 4), None])


def test_without_a_connection_all_have_the_error(play: Play) -> None:
    play(MasterUnreachable("nobody is there"))
    found = read(wanted(0, 0, 4), wanted(1, 0, 4))
    assert [(type(error), error.log) for (error,) in found.values()] == [
        (MasterUnreachable, "kafka/c/t/0"),
        (MasterUnreachable, "kafka/c/t/1"),
    ]


def test_when_time_is_up_everybody_has_had_a_turn(play: Play) -> None:
    """Who has got something ends there; who found no room yet is asked for first, and who is silent has said so."""
    cluster = play(
        led_by(1, 1, 1),
        fetched_of({0: fetched_part(batch(0, 2)), 1: NOTHING(), 2: NOTHING()}),
        fetched_of({1: NOTHING(), 2: fetched_part(batch(0, 2))}),
        led_by(1, 1, 1),
    )
    cluster._answers[3:3] = [answer_of_1(0), answer_of_1(9)]
    found = read(*(wanted(number, 0, 4) for number in range(3)), patience_s=0.0, patience_ms=LONG_MS)
    assert [(number, [type(one) for one in come]) for number, come in found.items()] == [
        (0, [OffsetRange, TimeIsUp]),
        (2, [OffsetRange, TimeIsUp]),
        (1, [MasterSilent]),
    ]
    assert asked(cluster) == [(1, [(0, 0), (1, 0), (2, 0)]), (1, [(1, 0), (2, 0)])]


def answer_of_1(offset: int) -> Any:
    answer = offsets(offset)
    answer.topics[0].partitions[0].partition_index = 1
    return answer
