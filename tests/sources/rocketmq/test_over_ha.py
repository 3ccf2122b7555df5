"""Reading over HA: in a hurry, where what has come in time is handed over and the rest is not waited for; and of many
brokers at once.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import (
    AboveMaximum,
    BelowMinimum,
    CorruptRecord,
    LogtwinError,
    MasterError,
    MasterReplaced,
    MasterSilent,
    NotAlone,
)
from sources.master import Chunk, Damage, TimeIsUp
from sources.offsets import LogId, Offset
from sources.reading import Ended, LogReader, OneByOne, WantedSplit
from sources.rocketmq.columns.codec import LogPart, decode_sound, decode_together
from sources.rocketmq.format.layout import DEFAULT_LIMITS
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.session.ha_client import HAReadOptions, read_stream
from sources.rocketmq.wire.ha import FRAME_HEAD, encode_frame
from tests.patience import wait_until
from tests.sources.rocketmq.log_reading import ALL, assert_is, damaged, kept, offsets, over_ha, owned, truth_between
from tests.sources.rocketmq.records import Log, log_of, logs, message
from tests.sources.rocketmq.scripted_master import HAScript, ScriptedMaster, SlaveConnection, holding, serve_log
from tests.sources.rocketmq.synthetic_log import record_bytes
from tests.sources.rocketmq.test_ha_client import read
from tests.sources.rocketmq.test_log import telling
from tests.truth import Fixture

HURRY_S, FRAME_BYTES = 0.05, 64


class Clock:
    """Stands still until the master has sent what it sends in time; then each look at it costs `step_s`."""

    def __init__(self) -> None:
        self.now_s = self.step_s = 0.0

    def monotonic(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("sources.rocketmq.session.ha_client.time", clock)
    return clock


def hurried(log: RocketMQLog, end: int, start: int = 0) -> tuple[list[Chunk | Damage], bool]:
    """What is read of [start, end) in time, and whether the time was up."""
    found: list[Chunk | Damage] = []
    try:
        found += map(kept, _pieces(log, start, end))
    except TimeIsUp:
        return found, True
    return found, False


def _pieces(log: RocketMQLog, start: int, end: int) -> Iterator[Chunk | Damage]:
    """In a hurry for bytes alone: a busy machine may take its time to connect and to answer."""
    in_a_hurry = replace(log.hurried(HURRY_S), connect_timeout_ms=log.connect_timeout_ms)
    return in_a_hurry.read(owned(start, end), committed=Offset(start), boundary=True)


def sending(log: bytes, at_once: int, clock: Clock, *, drips: bool = False) -> HAScript:
    """The frames with the first `at_once` bytes of the log; then nothing, or a part of a frame byte by byte."""

    def script(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        starts = range(start, at_once + FRAME_BYTES, FRAME_BYTES)
        *whole, part = (encode_frame(Offset(at), log[at : at + FRAME_BYTES]) for at in starts)
        connection.send(b"".join(whole))
        clock.step_s = HURRY_S / 10
        connection.send_bytewise(part[:FRAME_BYTES] if drips else b"")
        connection.await_end()

    return script


@pytest.mark.parametrize(("drips", "records"), [(False, 1), (True, 0), (True, 7)])
def test_whole_records_are_handed_over_and_the_rest_is_not_waited_for(
    fixture_550: Fixture, clock: Clock, drips: bool, records: int
) -> None:
    whole = fixture_550.rows[records]["physical_offset"]
    script = sending(fixture_550.log, whole, clock, drips=drips)
    with over_ha((script,), holding(0, fixture_550.max_offset), chunk_bytes=1000) as (log, _):
        found, is_up = hurried(log, fixture_550.max_offset)
    assert is_up
    assert clock.now_s >= HURRY_S
    if records:
        assert_is([one for one in found if isinstance(one, Chunk)], fixture_550, 0, whole)
    else:
        assert found == []


def test_a_flood_of_heartbeats_is_nothing_to_wait_for(fixture_550: Fixture, clock: Clock) -> None:
    def flood(connection: SlaveConnection) -> None:
        (start,) = connection.await_reports()[:1]
        clock.step_s = HURRY_S / 2
        while not connection.has_ended():
            connection.send(encode_frame(start) * 100)

    with over_ha((flood,), holding(0, fixture_550.max_offset)) as (log, _):
        assert hurried(log, fixture_550.max_offset, start=fixture_550.rows[1]["physical_offset"]) == ([], True)
        assert clock.now_s >= HURRY_S


def test_decoding_time_is_no_waiting(fixture_550: Fixture, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is for waiting: who has not waited has lost none."""
    monkeypatch.setattr("sources.rocketmq.session.ha_client.RECEIVE_BYTES", 4096)
    end = fixture_550.rows[60]["physical_offset"]
    sends = (sending(fixture_550.log, end, clock),)
    with over_ha(sends, holding(0, fixture_550.max_offset), chunk_bytes=1000) as (log, _):
        pieces = _pieces(log, 0, end)
        found = [kept(next(pieces))]
        wait_until(lambda: clock.step_s > 0, "all that is to be read")
        clock.sleep(2 * HURRY_S)  # this process is busy with others
        found += map(kept, pieces)
    assert len(found) > 10
    assert offsets([one for one in found if isinstance(one, Chunk)]) == truth_between(fixture_550, 0, end)


def test_a_master_that_accepts_and_answers_nothing_is_given_up_in_time(fixture_550: Fixture) -> None:
    with (
        over_ha((serve_log(b""),), lambda _: b"", connect_timeout_ms=60_000, connect_attempts=9) as (log, _),
        pytest.raises(MasterSilent),
    ):  # and not after nine minutes
        list(log.hurried(HURRY_S).read(owned(0, fixture_550.max_offset), committed=Offset(0), boundary=True))


def test_a_master_that_closes_at_once_is_not_asked_again_and_again(fixture_550: Fixture) -> None:
    with over_ha((lambda _: None,), holding(0, fixture_550.max_offset), connect_attempts=9) as (log, master):
        with pytest.raises(MasterError):
            hurried(log, fixture_550.max_offset, start=fixture_550.rows[1]["physical_offset"])
        assert len(master.connections) == 1


# small splits of many brokers, read at once: each log comes as if it were read by itself


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
    return WantedSplit(log, owned(0, end), Offset(0))


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


@pytest.mark.parametrize(
    ("answer", "start", "takes_no_turn", "kind"),
    [
        (holding(0, 1000, brokerRole="SYNC_MASTER"), 2000, False, AboveMaximum),  # [0, 3000) when it was planned
        (telling(0, 5000, in_sync_replicas=3), 0, True, NotAlone),  # it has begun to count connections
    ],
)
def test_a_master_that_is_no_longer_as_planned_gets_no_connection(
    answer: Any, start: int, takes_no_turn: bool, kind: type[LogtwinError]
) -> None:
    with over_ha((silent,), answer) as (log, master):
        planned = replace(log, takes_no_turn=takes_no_turn)
        (found,) = come(planned.small_reader, [WantedSplit(planned, owned(start, 3000), Offset(start))])
        assert [one["type"] for one in found] == [kind.__name__]
        assert master.connections == []


def test_only_a_stream_that_nobody_cuts_is_read_with_others() -> None:
    with over_ha((silent,), holding(0, 5000)) as (log, _):
        assert replace(log, parallel_reads=True).small_reader != log.small_reader


@given(st.lists(logs(), max_size=4))
def test_decoded_together_is_decoded_one_by_one(given_logs: list[Log]) -> None:
    parts = [LogPart(log.stored, log.start, log.end, DEFAULT_LIMITS) for log in given_logs]
    for part, found in zip(parts, decode_together(parts), strict=True):
        alone = decode_sound(part.data, part.start, part.stop)
        if found is not None:
            assert (found.records, found.end, found.error) == (alone.records, alone.end, alone.error)


@pytest.mark.parametrize("bad", range(5))
def test_one_that_is_damaged_leaves_the_others_decoded(bad: int) -> None:
    broken = damaged(SOUND.stored, SOUND.boundaries[-2] - 1)
    stored = [broken if at == bad else SOUND.stored for at in range(5)]
    found = decode_together([LogPart(data, Offset(0), SOUND.end, DEFAULT_LIMITS) for data in stored])
    assert [at for at, one in enumerate(found) if one is None] == [bad]


# a master that is replaced behind its address while it is read: nobody gets bytes of two histories


BODY_BYTES = 50  # so that what has come before a connection ends is known to 50 bytes
SIZES = [200, 40, 300, 120, 90]
CHUNK_BYTES = 300


def history(letter: bytes) -> list[bytes]:
    """Records of the same lengths, whoever wrote them."""
    records: list[bytes] = []
    for size in SIZES * 4:
        at = sum(map(len, records))
        records.append(record_bytes(at, letter * size, b"KEYS\x01" + letter * 60 + b"\x02"))
    return records


OLD, NEW = b"".join(history(b"o")), b"".join(history(b"n"))
ENDS = [0, *accumulate(map(len, history(b"o")))]
LENGTH = len(OLD)
CUTS = {
    "at a record's edge": ENDS[6],
    "in a head": ENDS[6] + 30,
    "in a body": ENDS[7] + 200,
    "in properties": ENDS[8] - 30,
    "in the last record": LENGTH - BODY_BYTES,
}


def until(count: int) -> int:
    """Of the stream: whole frames that have at least so many bytes of the log."""
    frames = -(-count // BODY_BYTES)
    return frames * (BODY_BYTES + FRAME_HEAD.size)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_no_stream_goes_on_with_another_history(cut: int) -> None:
    old = serve_log(OLD, frame_bytes=BODY_BYTES, stop_after=until(cut))
    taken = bytearray()
    with ScriptedMaster(old, serve_log(NEW, frame_bytes=BODY_BYTES)) as master:
        with (
            closing(read_stream(master.address, Offset(0), HAReadOptions(silence_timeout_ms=10_000))) as pieces,
            pytest.raises(MasterReplaced) as caught,
        ):
            for piece in pieces:
                taken += piece
        assert set(master.reports) == {1}
    assert OLD.startswith(taken)
    assert len(taken) >= cut
    error = caught.value
    assert error.offset == 0
    assert error.is_transient  # the next attempt proves who is there
    assert error.expected
    assert error.found
    assert str(len(taken)) in error.problem
    assert error.hint


@pytest.mark.parametrize("at", [1, 100, ENDS[6] - 1])
def test_one_byte_that_differs_is_another_history(at: int) -> None:
    other = OLD[:at] + bytes([OLD[at] ^ 1]) + OLD[at + 1 :]
    old = serve_log(OLD, frame_bytes=BODY_BYTES, stop_after=until(ENDS[6]))
    with ScriptedMaster(old, serve_log(other)) as master, pytest.raises(MasterReplaced):
        read(master.address, 0, LENGTH)


def test_a_difference_above_what_was_handed_over_is_no_other_history() -> None:
    cut = until(ENDS[6])
    handed_over = cut // (BODY_BYTES + FRAME_HEAD.size) * BODY_BYTES
    mixed = OLD[:handed_over] + NEW[handed_over:]
    with ScriptedMaster(serve_log(OLD, frame_bytes=BODY_BYTES, stop_after=cut), serve_log(mixed)) as master:
        assert read(master.address, 0, LENGTH) == mixed


def test_a_connection_that_ends_before_it_has_shown_its_past_proves_nothing() -> None:
    """Two more that break off below what was handed over: it is compared with all of it all the same."""
    old = [serve_log(OLD, frame_bytes=BODY_BYTES, stop_after=until(cut)) for cut in (2000, 1000, 500)]
    with ScriptedMaster(*old, serve_log(OLD)) as master:
        assert read(master.address, 0, LENGTH) == OLD
    with ScriptedMaster(*old, serve_log(NEW)) as master, pytest.raises(MasterReplaced):
        read(master.address, 0, LENGTH)


@pytest.mark.parametrize("past_damage", [False, True])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_record_that_is_cut_is_neither_a_row_nor_damage(cut: int, past_damage: bool) -> None:
    scripts = (serve_log(OLD, frame_bytes=BODY_BYTES, stop_after=until(cut)), serve_log(NEW, frame_bytes=BODY_BYTES))
    found = []
    with over_ha(scripts, holding(0, LENGTH), chunk_bytes=CHUNK_BYTES, past_damage=past_damage) as (log, _):
        reading = log.read(owned(0, LENGTH), committed=Offset(ALL), boundary=True)
        with pytest.raises(MasterReplaced, match="rocketmq/broker-a"):
            for piece in reading:
                found.append(kept(piece))  # noqa: PERF401 – what came before the error counts
    assert not [piece for piece in found if isinstance(piece, Damage)]
    assert OLD.startswith(b"".join(piece.raw or b"" for piece in found))
