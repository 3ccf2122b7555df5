"""Reading a log whole, and what it must have been."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sources.master import Chunk, Damage, MasterLog
from sources.offsets import LogId, Offset
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.remoting import Command
from tests.sources.rocketmq.scripted_master import HAScript, ScriptedBroker, ScriptedMaster, holding, serve_log
from tests.spans import span
from tests.truth import Fixture

LOG_ID = LogId("rocketmq", "broker-a")
ALL = 2**62
owned = span


def read(log: MasterLog, start: int, end: int, *, committed: int | None = ALL, boundary: bool = True) -> list[Chunk]:
    """Chunks whose `raw` outlives the iteration."""
    return list(chunks_of(pieces(log, start, end, committed=committed, boundary=boundary)))


def pieces(
    log: MasterLog, start: int, end: int, *, committed: int | None = ALL, boundary: bool = True
) -> list[Chunk | Damage]:
    """Chunks and damage whose `raw` outlives the iteration."""
    position = None if committed is None else Offset(committed)
    return list(map(kept, log.read(owned(start, end), committed=position, boundary=boundary)))


def kept(piece: Chunk | Damage) -> Chunk | Damage:
    return piece if piece.raw is None else replace(piece, raw=memoryview(bytes(piece.raw)))


def chunks_of(found: Iterable[Chunk | Damage]) -> Iterator[Chunk]:
    """The pieces; raises what is damaged."""
    for piece in found:
        if isinstance(piece, Damage):
            raise piece.error
        yield piece


def offsets(chunks: list[Chunk]) -> list[int]:
    return [offset for chunk in chunks for offset in chunk.records.column("offset").to_pylist()]


def raw(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk.raw for chunk in chunks)


def truth_between(fixture: Fixture, start: int, end: int) -> list[int]:
    """Offsets of the records that start in [start, end)."""
    return [row["physical_offset"] for row in fixture.rows if start <= row["physical_offset"] < end]


def assert_is(chunks: list[Chunk], fixture: Fixture, start: int, end: int) -> None:
    """The chunks join, and hold exactly the records that start in [start, end)."""
    expected = truth_between(fixture, start, end)
    ends = {row["physical_offset"]: row["physical_offset"] + row["size"] for row in fixture.rows}
    assert offsets(chunks) == expected
    assert chunks[0].covered.start == expected[0]
    assert chunks[-1].covered.end == ends[expected[-1]]
    assert [chunk.covered.end for chunk in chunks[:-1]] == [chunk.covered.start for chunk in chunks[1:]]
    assert raw(chunks) == fixture.log[expected[0] : ends[expected[-1]]]


@contextmanager
def over_ha(
    scripts: tuple[HAScript, ...], answer: Callable[[Command], bytes], **options: Any
) -> Iterator[tuple[RocketMQLog, ScriptedMaster]]:
    """A log over HA from scripted peers; patient, because this machine may be busy."""
    with ScriptedMaster(*scripts) as master, ScriptedBroker(answer) as broker:
        options = {"connect_timeout_ms": 10_000, "connect_attempts": 2} | options
        yield RocketMQLog(log_id=LOG_ID, master=master.address, remoting=broker.address, **options), master


def serving(log: bytes, **options: Any) -> Any:
    return over_ha((serve_log(log),), holding(0, len(log)), **options)


def damaged(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 0x55]) + log[at + 1 :]
