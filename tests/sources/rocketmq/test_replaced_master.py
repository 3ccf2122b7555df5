"""A master that is replaced behind its address while it is read: nobody gets bytes of two histories."""

from contextlib import closing
from itertools import accumulate

import pytest

from sources.errors import MasterReplaced
from sources.master import Damage
from sources.offsets import Offset
from sources.rocketmq.session.ha_client import HAReadOptions, read_stream
from sources.rocketmq.wire.ha import FRAME_HEAD
from tests.sources.rocketmq.log_reading import ALL, kept, over_ha, owned
from tests.sources.rocketmq.scripted_master import ScriptedMaster, holding, serve_log
from tests.sources.rocketmq.synthetic_log import record_bytes
from tests.sources.rocketmq.test_ha_client import read

FRAME_BYTES = 50  # so that what has come before a connection ends is known to 50 bytes
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
    "in the last record": LENGTH - FRAME_BYTES,
}


def until(count: int) -> int:
    """Of the stream: whole frames that have at least so many bytes of the log."""
    frames = -(-count // FRAME_BYTES)
    return frames * (FRAME_BYTES + FRAME_HEAD.size)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_no_stream_goes_on_with_another_history(cut: int) -> None:
    old = serve_log(OLD, frame_bytes=FRAME_BYTES, stop_after=until(cut))
    taken = bytearray()
    with ScriptedMaster(old, serve_log(NEW, frame_bytes=FRAME_BYTES)) as master:
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
    old = serve_log(OLD, frame_bytes=FRAME_BYTES, stop_after=until(ENDS[6]))
    with ScriptedMaster(old, serve_log(other)) as master, pytest.raises(MasterReplaced):
        read(master.address, 0, LENGTH)


def test_a_difference_above_what_was_handed_over_is_no_other_history() -> None:
    cut = until(ENDS[6])
    handed_over = cut // (FRAME_BYTES + FRAME_HEAD.size) * FRAME_BYTES
    mixed = OLD[:handed_over] + NEW[handed_over:]
    with ScriptedMaster(serve_log(OLD, frame_bytes=FRAME_BYTES, stop_after=cut), serve_log(mixed)) as master:
        assert read(master.address, 0, LENGTH) == mixed


def test_a_connection_that_ends_before_it_has_shown_its_past_proves_nothing() -> None:
    """Two more that break off below what was handed over: it is compared with all of it all the same."""
    old = [serve_log(OLD, frame_bytes=FRAME_BYTES, stop_after=until(cut)) for cut in (2000, 1000, 500)]
    with ScriptedMaster(*old, serve_log(OLD)) as master:
        assert read(master.address, 0, LENGTH) == OLD
    with ScriptedMaster(*old, serve_log(NEW)) as master, pytest.raises(MasterReplaced):
        read(master.address, 0, LENGTH)


@pytest.mark.parametrize("past_damage", [False, True])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_record_that_is_cut_is_neither_a_row_nor_damage(cut: int, past_damage: bool) -> None:
    scripts = (serve_log(OLD, frame_bytes=FRAME_BYTES, stop_after=until(cut)), serve_log(NEW, frame_bytes=FRAME_BYTES))
    found = []
    with over_ha(scripts, holding(0, LENGTH), chunk_bytes=CHUNK_BYTES, past_damage=past_damage) as (log, _):
        reading = log.read(owned(0, LENGTH), committed=Offset(ALL), boundary=True)
        with pytest.raises(MasterReplaced, match="rocketmq/broker-a"):
            for piece in reading:
                found.append(kept(piece))  # noqa: PERF401 – what came before the error counts
    assert not [piece for piece in found if isinstance(piece, Damage)]
    assert OLD.startswith(b"".join(piece.raw or b"" for piece in found))
