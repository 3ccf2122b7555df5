"""Where messages are: in which log, and at which offsets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from sinks.typed.columns import PLACE, MessagePlace

Span: TypeAlias = tuple[str, int, int, int]
"""A log id, the offsets of its first message and of its last, and the greatest index in an inner batch."""


class MessagePlaces:
    """The places of the messages in a batch, by row."""

    def __init__(self, messages: pa.RecordBatch) -> None:
        self._messages = messages

    def __getitem__(self, row: int) -> MessagePlace:
        log_ids, offsets, indexes = self._lists
        return MessagePlace(log_ids[row], offsets[row], indexes[row] or 0)

    @cached_property
    def _lists(self) -> tuple[list[str], list[int], list[int | None]]:
        log_ids, offsets, indexes = (self._messages[one.name].to_pylist() for one in PLACE[:3])
        return log_ids, offsets, indexes


def spans(batches: Iterable[pa.RecordBatch]) -> tuple[int, tuple[Span, ...]]:
    """How many messages there are, and the span of each log. Holds no message."""
    messages, found = 0, dict[str, Span]()
    for batch in batches:
        messages += batch.num_rows
        places = MessagePlaces(batch)
        for one in map(places.__getitem__, range(batch.num_rows)):
            _, first, last, index = found.get(one.log_id, (one.log_id, one.offset, one.offset, 0))
            found[one.log_id] = one.log_id, min(first, one.offset), max(last, one.offset), max(index, one.index)
    return messages, tuple(found.values())
