"""Look at the fields of messages in a task, without making rows of them. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sinks.delta.files import in_columns
from sinks.typed.columns import MOST_CHARACTERS
from sinks.typed.formats.json_fields import taken_apart
from sinks.typed.formats.reading import Reading
from sinks.typed.readers import reader
from sinks.typed.step import guard
from sinks.typed.step.found_fields import FoundFields
from sinks.typed.step.parsing import MESSAGES, Told
from sinks.typed.step.places import MessagePlaces
from sinks.typed.step.task_reports import as_row


@dataclass(frozen=True, slots=True)
class FieldSurvey:
    """A task function, picklable, that only reports: which fields messages have, and how many cannot be read.

    Without a `reading` it only counts the messages.
    """

    reading: Reading | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        told = Told(FoundFields(_short))
        for batch in batches:
            for part, found in guard.in_sound_parts(self._look, in_columns(batch, MESSAGES)):
                if isinstance(found, Exception):
                    told.see_messages(part)
                else:
                    told.take(found)
        yield as_row(told.report())

    def _look(self, messages: pa.RecordBatch) -> Told:
        told = Told(FoundFields(_short))
        told.see_messages(messages)
        if self.reading is not None:
            objects, numbers, _ = taken_apart(messages["body"].to_pylist(), reader(self.reading))
            told.see_left(objects, numbers, MessagePlaces(messages))
            told.rows = len(objects)
        return told


def _short(field: str) -> str | None:
    """The field, unless its name is too long for any use."""
    return field if len(field) <= MOST_CHARACTERS else None
