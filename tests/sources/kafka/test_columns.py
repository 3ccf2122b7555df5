import itertools
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.errors import CorruptRecord, OutOfMemory
from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.batch_header import Batch, batch_at
from sources.kafka.format.batches import DEFAULT_LIMITS, AnswerBatches, BatchLimits, DecodedBatches, decode_sound
from sources.kafka.format.chunks import DecodedAnswer, FetchAnswer, decoded_together
from sources.kafka.format.columns import canonical, canonical_lengths, located, record_columns, texts
from sources.kafka.format.transactions import Aborted
from sources.master import Chunk
from sources.offsets import END, Offset, OffsetRange
from sources.records import KAFKA_SCHEMA
from tests.peers.kafka import VERSIONS
from tests.peers.kafka_fixture import BY_THE_BROKER, COMPACTED, OWN_TIMES, PRODUCED, TOPICS, TRANSACTIONS
from tests.sources.kafka.batches import (
    ALL,
    COMMITTED,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    UNCOMMITTED,
    Row,
    Sent,
    Written,
    decoded,
    log_of,
    logs,
    rows_of,
    written,
)
from tests.sources.kafka.broker_logs import BrokerLog, extract
from tests.spans import span


def records_of(batches: list[Written]) -> pa.RecordBatch:
    return decoded(log_of(batches)).records


def test_every_column_has_a_comment() -> None:
    assert all(field.metadata[b"comment"] for field in KAFKA_SCHEMA)
    assert KAFKA_SCHEMA.names == [
        "offset", "leader_epoch", "topic", "partition", "timestamp", "timestamp_type", "key", "value", "headers",
    ]  # fmt: skip


def test_records_with_their_place() -> None:
    records = located(records_of([written(5, b"a", b"b")]), [("orders", 3)], [2])
    assert records.schema.equals(KAFKA_SCHEMA, check_metadata=True)
    assert [(row["topic"], row["partition"], row["value"]) for row in records.to_pylist()] == [
        ("orders", 3, b"a"),
        ("orders", 3, b"b"),
    ]
    assert located(records_of([]), [("orders", 3)], [0]).schema.equals(KAFKA_SCHEMA)


def test_the_canonical_bytes_written_by_hand() -> None:
    headers = (("h", b"xy"), ("", None))
    batch = Written(258, (Sent(0, b"k", None, headers, 5), Sent(1, None, b"", (), -1)), epoch=7)
    assert canonical(records_of([batch])) == bytes.fromhex(
        "0000000000000102" "00000007" "0000000000000005" "00" "00000001" "ffffffff" "00000013"
        "6b" "" "00000001" "00000002" "68" "7879" "00000000" "ffffffff"
        "0000000000000103" "00000007" "ffffffffffffffff" "00" "ffffffff" "00000000" "00000000"
    )  # fmt: skip
    late = Written(0, (Sent(0, None, None, (), 5),), epoch=-1, attributes=LOG_APPEND_TIME)
    assert canonical(records_of([late])) == bytes.fromhex(
        "0000000000000000" "ffffffff" "0000000000000005" "01" "ffffffff" "ffffffff" "00000000"
    )  # fmt: skip


def plain_record(row: Row) -> bytes:
    """The same of one record, one field after the other."""
    headers = b"".join(
        struct.pack(">ii", len(key.encode()), length(value)) + key.encode() + (value or b"")
        for key, value in row["headers"]
    )
    return struct.pack(
        ">qiqbiii", row["offset"], or_minus_1(row["leader_epoch"]), or_minus_1(row["timestamp"]),
        row["timestamp_type"] == "log_append_time", length(row["key"]), length(row["value"]), len(headers),
    ) + (row["key"] or b"") + (row["value"] or b"") + headers  # fmt: skip


def length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def or_minus_1(value: int | None) -> int:
    return -1 if value is None else value


@given(logs(), st.data())
def test_canonical_bytes_and_lengths_are_those_of_the_dumb_way(batches: list[Written], data: st.DataObject) -> None:
    records = records_of(batches)
    part = records.slice(data.draw(st.integers(0, len(records))))  # of arrays that do not begin where their buffers do
    rows = rows_of(part)
    assert (
        canonical(part) == canonical(located(part, [("orders", 1)], [len(part)])) == b"".join(map(plain_record, rows))
    )
    apart = [len(plain_record(row)) for row in rows]
    assert canonical_lengths(part).tolist() == apart
    assert (
        canonical_lengths(located(part, [("orders", 1)], [len(part)]).select(["key", "value", "headers"])).tolist()
        == apart
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("47 72 c3 b6 c3 9f 65", "Größe"),
        ("f0 9f 98 80", "\U0001f600"),
        ("ff", "\ufffd"),
        ("41 80 42", "A\ufffdB"),
        ("c0 80", "\ufffd\ufffd"),  # what Java's own modified UTF-8 has for a zero
        ("e2 82", "\ufffd"),
        ("e2 82 41", "\ufffdA"),
        ("f0 9f 98 41", "\ufffdA"),
        ("f5 80 80 80", "\ufffd\ufffd\ufffd\ufffd"),
        ("ed a0 bd ed b8 80", "\ufffd\ufffd"),  # a surrogate pair, each half encoded by itself
        ("ed a0 41", "\ufffdA"),
        ("ed bf", "\ufffd"),
        ("f0 ed a0 41", "\ufffd\ufffdA"),
    ],
)  # fmt: skip
def test_header_keys_that_are_no_utf_8_are_replaced_as_java_does(key: str, text: str) -> None:
    """As OpenJDK 17 printed them: ``new String(bytes, UTF_8)``."""
    keys = pa.array([b"sound", bytes.fromhex(key.replace(" ", ""))])
    assert texts(keys).to_pylist() == ["sound", text]


# answers decoded together: they are what each of them is by itself, and what is wrong with one is its own


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
    records = located(found.records, [(answer.topic, answer.partition)], [len(found.records)])
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
    for number, (sent, start, size) in enumerate(given_logs):
        base = sent[0].base_offset if sent else 0
        answers.append(an_answer(sent, span(base + start, base + start + size), number=number))
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


# batches that real brokers wrote, against what Kafka's own consumer read in them


@pytest.fixture(scope="module", params=VERSIONS)
def of_brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BrokerLog]:
    """By topic."""
    folder: Path = extract(request.param, tmp_path_factory.mktemp(f"kafka-{request.param}"))
    return {topic: BrokerLog(folder / topic) for topic in TOPICS}


def read(log: BrokerLog, wanted: OffsetRange, isolation: Isolation) -> DecodedBatches:
    return decoded(log.records, wanted, log.aborted(wanted) if isolation is COMMITTED else (), isolation)


def batches_of(log: BrokerLog) -> Iterator[Batch]:
    view, at = memoryview(log.records), 0
    while (batch := batch_at(view, at)) is not None:
        yield batch
        at += len(batch.whole)


@pytest.mark.parametrize("isolation", list(Isolation), ids=lambda isolation: isolation.name)
@pytest.mark.parametrize("topic", TOPICS)
def test_every_field_of_every_record_is_what_kafkas_consumer_reads(
    of_brokers: dict[str, BrokerLog], topic: str, isolation: Isolation
) -> None:
    found = read(of_brokers[topic], ALL, isolation)
    assert rows_of(found.records) == of_brokers[topic].truth(isolation)
    assert found.reached == max(batch.end for batch in batches_of(of_brokers[topic]))


@pytest.mark.parametrize("isolation", list(Isolation), ids=lambda isolation: isolation.name)
@pytest.mark.parametrize("topic", [PRODUCED, TRANSACTIONS, COMPACTED])
def test_read_in_random_pieces_it_is_the_same(
    of_brokers: dict[str, BrokerLog], topic: str, isolation: Isolation
) -> None:
    log, chance = of_brokers[topic], random.Random(topic)
    whole = read(log, ALL, isolation)
    edges = sorted({0, whole.reached, *(chance.randrange(whole.reached) for _ in range(20))})
    pieces = []
    for start, end in itertools.pairwise(edges):
        wanted = span(start, end)
        answer = b"".join(batch.whole for batch in batches_of(log) if batch.end > start)
        piece = decoded(answer, wanted, log.aborted(wanted) if isolation is COMMITTED else (), isolation)
        assert piece.reached >= end
        pieces.append(canonical(piece.records))
    assert b"".join(pieces) == canonical(whole.records)


def test_what_the_logs_hold(of_brokers: dict[str, BrokerLog]) -> None:
    """So that the tests above are about what they seem to be about."""
    produced = list(batches_of(of_brokers[PRODUCED]))
    assert {batch.compression for batch in produced} == {0, 1, 2, 3, 4}
    assert len({batch.leader_epoch for batch in produced}) > 1
    for topic, compression in zip(BY_THE_BROKER, (1, 2, 3, 4), strict=True):
        assert {batch.compression for batch in batches_of(of_brokers[topic])} == {compression}
    assert all(batch.has_log_append_time for batch in batches_of(of_brokers[OWN_TIMES]))
    rows = of_brokers[PRODUCED].truth(UNCOMMITTED)
    for name in ("key", "value"):
        assert {None, b""} <= {row[name] for row in rows}
    headers = [header for row in rows for header in row["headers"]]
    assert {("null", None), ("empty", b"")} <= set(headers)
    assert {"", "größe"} <= {key for key, _ in headers}
    compacted = list(batches_of(of_brokers[COMPACTED]))  # which lost records and whole batches
    assert any(0 < one.record_count <= one.last_offset_delta for one in compacted if not one.is_control)
    assert any(one.record_count == 0 for one in compacted)
    assert any(before.end < after.base_offset for before, after in itertools.pairwise(compacted))
