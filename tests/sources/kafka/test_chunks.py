"""Answers decoded together: they are what each of them is by itself, and what is wrong with one is its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord, OutOfMemory
from sources.kafka.format.batch_header import Batch
from sources.kafka.format.batches import DEFAULT_LIMITS, AnswerBatches, BatchLimits, decode_sound
from sources.kafka.format.chunks import DecodedAnswer, FetchAnswer, decoded_together
from sources.kafka.format.columns import canonical, located
from sources.kafka.format.record_columns import record_columns
from sources.kafka.format.transactions import Aborted
from sources.master import Chunk
from sources.offsets import END, Offset, OffsetRange
from sources.records import KAFKA_SCHEMA
from tests.sources.kafka.batches import ALL, COMMITTED, HEADER_BYTES, Sent, Written, log_of, logs
from tests.spans import span

ONE_BY_ONE = BatchLimits(max_decompressed_bytes=1)


def an_answer(
    written: Sequence[Written], wanted: OffsetRange = ALL, *, number: int = 0, aborted: Sequence[Aborted] = ()
) -> FetchAnswer:
    return FetchAnswer(log_of(written), wanted, aborted, END, "orders" if number % 2 else "refunds", number)


def values(count: int, at: int = 0) -> Written:
    return Written(at, tuple(Sent(delta, None, b"%d" % (at + delta)) for delta in range(count)))


def alone(answer: FetchAnswer, limits: BatchLimits) -> Chunk | None:
    """What the answer is by itself, put together from the parts."""
    found = decode_sound(answer.records, answer.wanted, answer.aborted, COMMITTED, limits, answer.log_end)
    if found.reached <= answer.wanted.start:
        return None
    covered = OffsetRange(answer.wanted.start, min(found.reached, answer.wanted.end))
    records = located(found.records, answer.topic, answer.partition)
    return Chunk(covered, records, memoryview(canonical(records)), found.epoch)


def same(found: Sequence[DecodedAnswer], answers: Sequence[FetchAnswer], limits: BatchLimits = DEFAULT_LIMITS) -> bool:
    assert [one.error for one in found] == [None] * len(answers)
    for one, answer in zip(found, answers, strict=True):
        expected = alone(answer, limits)
        if one.chunk is None or expected is None:
            assert one.chunk is expected
            continue
        assert (one.chunk.covered, one.chunk.mark) == (expected.covered, expected.mark)
        assert one.chunk.records.schema == KAFKA_SCHEMA
        assert one.chunk.records.to_pylist() == expected.records.to_pylist()
        assert bytes(one.chunk.raw) == bytes(expected.raw)
    return True


@given(st.lists(st.tuples(logs(max_batches=2), st.integers(0, 400), st.integers(0, 400)), max_size=4), st.booleans())
def test_together_they_are_what_each_is_alone(
    given_logs: list[tuple[list[Written], int, int]], one_by_one: bool
) -> None:
    answers = []
    for number, (written, start, size) in enumerate(given_logs):
        base = written[0].base_offset if written else 0
        answers.append(an_answer(written, span(base + start, base + start + size), number=number))
    limits = ONE_BY_ONE if one_by_one else DEFAULT_LIMITS
    assert same(list(decoded_together(answers, COMMITTED, limits)), answers, limits)


def test_they_are_decoded_at_once_as_far_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []
    plain = record_columns

    def counted(batches: Sequence[Batch], *more: Any) -> pa.RecordBatch:
        at_once.append(len(batches))
        return plain(batches, *more)

    monkeypatch.setattr("sources.kafka.format.chunks.record_columns", counted)
    answers = [an_answer([values(2)], span(0, 2), number=number) for number in range(8)]
    body_bytes = len(answers[0].records) - HEADER_BYTES
    assert same(list(decoded_together(answers, COMMITTED)), answers)
    assert at_once == [8]
    assert same(list(decoded_together(answers, COMMITTED, BatchLimits(max_decompressed_bytes=3 * body_bytes))), answers)
    assert at_once == [8, 3, 3, 2]


def test_what_makes_the_decoder_fail_concerns_one_answer_alone() -> None:
    """The CRC of a batch is right, but its second record has the offset of the first."""
    twice = Written(0, (Sent(0, None, b"a"), Sent(0, None, b"b")))
    answers = [an_answer([one], span(0, 2), number=number) for number, one in enumerate((values(2), twice, values(2)))]
    found = list(decoded_together(answers, COMMITTED))
    assert [(one.chunk is None, one.error) for one in found] == [(False, None), (True, None), (False, None)]
    error = decode_sound(answers[1].records, span(0, 2), (), COMMITTED).error  # what a reader finds out then
    assert isinstance(error, CorruptRecord)


def test_a_lack_of_memory_is_that_of_the_answer_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = AnswerBatches.take

    def take(batches: AnswerBatches, view: memoryview) -> None:
        if batches._wanted.end == Offset(3):
            raise OutOfMemory("too large")
        plain(batches, view)

    monkeypatch.setattr(AnswerBatches, "take", take)
    answers = [an_answer([values(2)], span(0, end)) for end in (2, 3, 2)]
    found = list(decoded_together(answers, COMMITTED))
    assert [type(one.error) for one in found] == [type(None), OutOfMemory, type(None)]
    assert [one.chunk is None for one in found] == [False, True, False]
