"""Batches that real brokers wrote, against what Kafka's own consumer read in them."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.kafka.format.batch_header import Batch, batch_at
from sources.kafka.format.batches import DecodedBatches
from sources.kafka.format.columns import canonical
from sources.kafka.format.transactions import Isolation
from sources.offsets import OffsetRange
from tests.peers.kafka import VERSIONS
from tests.peers.kafka_fixture import BY_THE_BROKER, COMPACTED, OWN_TIMES, PRODUCED, TOPICS, TRANSACTIONS
from tests.sources.kafka.batches import ALL, COMMITTED, UNCOMMITTED, decoded, rows_of
from tests.sources.kafka.broker_logs import BrokerLog, extract
from tests.spans import span


@pytest.fixture(scope="module", params=VERSIONS)
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BrokerLog]:
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
    logs: dict[str, BrokerLog], topic: str, isolation: Isolation
) -> None:
    found = read(logs[topic], ALL, isolation)
    assert rows_of(found.records) == logs[topic].truth(isolation)
    assert found.reached == max(batch.end for batch in batches_of(logs[topic]))


@pytest.mark.parametrize("isolation", list(Isolation), ids=lambda isolation: isolation.name)
@pytest.mark.parametrize("topic", [PRODUCED, TRANSACTIONS, COMPACTED])
def test_read_in_random_pieces_it_is_the_same(logs: dict[str, BrokerLog], topic: str, isolation: Isolation) -> None:
    log, chance = logs[topic], random.Random(topic)
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


def test_what_the_logs_hold(logs: dict[str, BrokerLog]) -> None:
    """So that the tests above are about what they seem to be about."""
    produced = list(batches_of(logs[PRODUCED]))
    assert {batch.compression for batch in produced} == {0, 1, 2, 3, 4}
    assert len({batch.leader_epoch for batch in produced}) > 1
    for topic, compression in zip(BY_THE_BROKER, (1, 2, 3, 4), strict=True):
        assert {batch.compression for batch in batches_of(logs[topic])} == {compression}
    assert all(batch.has_log_append_time for batch in batches_of(logs[OWN_TIMES]))
    rows = logs[PRODUCED].truth(UNCOMMITTED)
    for name in ("key", "value"):
        assert {None, b""} <= {row[name] for row in rows}
    headers = [header for row in rows for header in row["headers"]]
    assert {("null", None), ("empty", b"")} <= set(headers)
    assert {"", "größe"} <= {key for key, _ in headers}
    compacted = list(batches_of(logs[COMPACTED]))  # which lost records and whole batches
    assert any(0 < one.record_count <= one.last_offset_delta for one in compacted if not one.is_control)
    assert any(one.record_count == 0 for one in compacted)
    assert any(before.end < after.base_offset for before, after in itertools.pairwise(compacted))
