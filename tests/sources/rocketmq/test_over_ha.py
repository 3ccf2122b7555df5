"""Small splits of many brokers, read at once: each log comes as if it were read by itself."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import BelowMinimum, CorruptRecord, LogtwinError, MasterReplaced
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import LogId, Offset
from sources.reading import Ended, LogReader, OneByOne, WantedSplit
from sources.rocketmq.columns.codec import LogPart, decode_sound, decode_together
from sources.rocketmq.format.layout import DEFAULT_LIMITS
from sources.rocketmq.log import RocketMQLog
from tests.sources.rocketmq.log_reading import damaged, kept, over_ha, owned
from tests.sources.rocketmq.records import Log, log_of, logs, message
from tests.sources.rocketmq.scripted_master import HAScript, SlaveConnection, holding, serve_log
from tests.sources.rocketmq.test_hurried import Clock, sending
from tests.sources.rocketmq.test_log import telling

SOUND = log_of([message(body=b"a"), message(body=b"bb"), message(body=b"c")])
SHORT_S = 0.3


def come(reader: LogReader, wanted: list[WantedSplit]) -> list[list[Any]]:
    """The pieces of each, and how it ended: with what error."""
    found: list[list[Any]] = [[] for _ in wanted]
    for number, piece in reader.read(wanted):
        found[number].append(_facts(piece))
    return found


def _facts(piece: Chunk | Damage | Ended) -> Any:
    if not isinstance(piece, Ended):
        one = kept(piece)
        return one.covered, bytes(one.raw or b""), one.records if isinstance(one, Chunk) else one.error.facts()
    return piece.error.facts() if isinstance(piece.error, LogtwinError) else type(piece.error)


def served(open_: ExitStack, script: HAScript, answer: Any, number: int = 0, **options: Any) -> RocketMQLog:
    log, _ = open_.enter_context(over_ha((script,), answer, **options))
    return replace(log, log_id=LogId("rocketmq", f"broker-{number}")).hurried(10.0)


def wanted_of(log: RocketMQLog, end: int) -> WantedSplit:
    return WantedSplit(log.log_id, owned(0, end), Offset(0), log=log)


@pytest.mark.parametrize("past_damage", [False, True])
def test_each_log_comes_as_if_it_were_read_by_itself(past_damage: bool) -> None:
    """Also one that ends within a record, or is damaged."""
    last = SOUND.boundaries[-2]
    kinds = [(SOUND.stored, SOUND.end), (SOUND.stored, last + 1), (damaged(SOUND.stored, last - 1), SOUND.end)]
    with ExitStack() as open_:
        read = [
            served(open_, serve_log(stored), holding(0, SOUND.end), number, past_damage=past_damage)
            for number, (stored, _) in enumerate(kinds * 2)
        ]
        wanted = [wanted_of(log, end) for log, (_, end) in zip(read, kinds * 2, strict=True)]
        (reader,) = {log.small_reader for log in read}
        together = come(reader, wanted)
        sound = come(reader, wanted[::3])  # those that nothing is the matter with
        assert together == [*(come(OneByOne(log), [one])[0] for log, one in zip(read, wanted, strict=True))]
    assert sound == together[::3]
    assert [one[-1] for one in together[:2]] == [type(None)] * 2
    assert past_damage or together[2][-1]["type"] == CorruptRecord.__name__


def test_what_has_come_in_time_is_handed_over_and_holds_up_no_other() -> None:
    first = SOUND.boundaries[1]
    with ExitStack() as open_:
        slow = served(open_, sending(SOUND.stored, first, Clock()), holding(0, SOUND.end)).hurried(SHORT_S)
        well = served(open_, serve_log(SOUND.stored), holding(0, SOUND.end), 1)
        of_slow, of_well = come(slow.small_reader, [wanted_of(slow, SOUND.end), wanted_of(well, SOUND.end)])
    assert [piece[0] for piece in of_slow[:-1]] == [owned(0, first)]
    assert of_slow[-1] is TimeIsUp
    assert [piece[0] for piece in of_well[:-1]] == [owned(0, SOUND.end)]


def silent(connection: SlaveConnection) -> None:
    connection.await_reports()
    connection.await_end()


def test_what_the_master_has_deleted_since_it_was_planned_is_said() -> None:
    with ExitStack() as open_:
        log = served(open_, silent, holding(1000, 5000)).hurried(SHORT_S)
        (found,) = come(log.small_reader, [wanted_of(log, SOUND.end)])
    assert [one["type"] for one in found] == [BelowMinimum.__name__]


def test_a_broker_that_has_begun_to_count_connections_gets_none() -> None:
    with over_ha((silent,), telling(0, 5000, in_sync_replicas=3)) as (log, master):
        unknowing = replace(log, takes_no_turn=True)
        (found,) = come(unknowing.small_reader, [wanted_of(unknowing, 5000)])
        assert [one["type"] for one in found] == [MasterReplaced.__name__]
        assert master.connections == []


def test_only_a_stream_that_nobody_cuts_is_read_with_others() -> None:
    with over_ha((silent,), holding(0, 5000)) as (log, _):
        assert replace(log, parallel_reads=True).small_reader != log.small_reader
        with pytest.raises(ValueError, match="no log"):
            [*log.small_reader.read([WantedSplit(log.log_id, owned(0, 1))])]


@given(st.lists(logs(), max_size=4))
def test_decoded_together_is_decoded_one_by_one(given_logs: list[Log]) -> None:
    parts = [LogPart(log.stored, log.start, log.end, DEFAULT_LIMITS) for log in given_logs]
    for part, found in zip(parts, decode_together(parts), strict=True):
        alone = decode_sound(part.data, part.start, part.stop)
        if found is not None:
            assert (found.records, found.end, found.error) == (alone.records, alone.end, alone.error)
    assert decode_together([LogPart(SOUND.stored, Offset(0), SOUND.end, DEFAULT_LIMITS)]) != [None]
