"""Decodes what several partitions answered to one fetch, together: a thousand small answers cost little more than one.

Columns and canonical bytes are made once for as many answers as `BatchLimits` lets be decoded at once. The chunks are
slices of them. If one answer makes the decoder fail, each of them is decoded by itself: only that one has the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sources.decoding.undecodable import as_damage
from sources.kafka.cluster.settings import Isolation
from sources.kafka.format.batches import DEFAULT_LIMITS, AnswerBatches, BatchLimits
from sources.kafka.format.columns import canonical_and_edges, located, record_columns
from sources.kafka.format.transactions import Aborted
from sources.master import Chunk
from sources.offsets import Offset, OffsetRange


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """A partition's answer to a fetch: its batches; for the rest see `batches.decode_sound`."""

    records: bytes | memoryview
    wanted: OffsetRange
    aborted: Sequence[Aborted]
    log_end: Offset
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """The sound records that the wanted range begins with; None for none. `error` says what kept from decoding."""

    chunk: Chunk | None
    error: Exception | None = None


def decoded_together(
    answers: Iterable[FetchAnswer], isolation: Isolation, limits: BatchLimits = DEFAULT_LIMITS
) -> Iterator[DecodedAnswer]:
    """Yield the chunk of each answer, in order; their memory is shared. Raises nothing that concerns one answer."""
    waiting: list[_Taken] = []
    waiting_bytes = 0
    for answer in answers:
        taken = _taken(answer, isolation, limits)
        if waiting and waiting_bytes + taken.bytes > limits.max_decompressed_bytes:
            yield from _decoded(waiting, limits)
            waiting, waiting_bytes = [], 0
        waiting.append(taken)
        waiting_bytes += taken.bytes
    yield from _decoded(waiting, limits)


@dataclass(frozen=True, slots=True)
class _Taken:
    """An answer, cut into batches, of which nothing is decoded yet; or why it could not be cut."""

    answer: FetchAnswer
    batches: AnswerBatches
    error: Exception | None = None

    @property
    def bytes(self) -> int:
        return sum(len(body) for body in self.batches.bodies)


def _taken(answer: FetchAnswer, isolation: Isolation, limits: BatchLimits) -> _Taken:
    batches = AnswerBatches(answer.wanted, answer.aborted, isolation, limits, answer.log_end)
    try:
        batches.take(memoryview(answer.records).cast("B"))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this answer's
        return _Taken(answer, AnswerBatches(answer.wanted, (), isolation, limits, answer.log_end), error)
    return _Taken(answer, batches)


def _decoded(taken: Sequence[_Taken], limits: BatchLimits) -> Iterator[DecodedAnswer]:
    """Decode at once; if that fails, each by itself."""
    try:
        chunks = _chunks(taken, limits)
    except Exception as error:  # noqa: BLE001 - found out below whose it is
        if len(taken) == 1:
            yield DecodedAnswer(None, error)
            return
        chunks = None
    if chunks is None:
        for one in taken:
            yield from _decoded([one], limits)
        return
    for one, chunk in zip(taken, chunks, strict=True):
        yield DecodedAnswer(chunk, one.error)


def _chunks(taken: Sequence[_Taken], limits: BatchLimits) -> list[Chunk | None]:
    records, counts = _columns(taken, limits)
    offsets = records.column("offset").to_numpy()
    rows = located(records, [(one.answer.topic, one.answer.partition) for one in taken], counts)
    raw, edges = canonical_and_edges(records)
    view, behind = memoryview(raw), np.cumsum(counts).tolist()
    chunks: list[Chunk | None] = []
    for one, count, stop in zip(taken, counts, behind, strict=True):
        wanted, found = one.answer.wanted, one.batches
        if found.reached <= wanted.start:
            chunks.append(None)
            continue
        # the first and the last batch may reach beyond what is wanted
        first, end = (offsets[stop - count : stop].searchsorted((wanted.start, wanted.end)) + (stop - count)).tolist()
        covered = OffsetRange(wanted.start, min(found.reached, wanted.end))
        piece = view[edges[first] : edges[end]]
        chunks.append(Chunk(covered, rows.slice(first, end - first), piece, found.epoch))
    return chunks


def _columns(taken: Sequence[_Taken], limits: BatchLimits) -> tuple[pa.RecordBatch, list[int]]:
    """Return the records of all batches, and how many are of each answer."""
    if len(taken) == 1:
        records = taken[0].batches.columns()
        return records, [len(records)]
    batches = [batch for one in taken for batch in one.batches.batches]
    bodies = [body for one in taken for body in one.batches.bodies]
    with as_damage(None):
        records = record_columns(batches, bodies, limits.most_headers)
    return records, [sum(batch.record_count for batch in one.batches.batches) for one in taken]
