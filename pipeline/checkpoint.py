"""Spark's checkpoint of a topic's query against the table's position. The table is right; the checkpoint is a cache.

Spark stores the end of every planned batch in ``offsets/<batch>`` and an empty mark in ``commits/<batch>`` once it was
processed. Started on a checkpoint, a query repeats the last batch without a mark, or goes on after the last with one.
Where that is not where the table is (a table that was restored, a checkpoint that was copied), or one of the files that
Spark would read is torn (it does not sync them, so a power failure leaves them empty), the checkpoint is moved aside
and the query starts afresh from the position.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.fs as pafs

from sinks.place import placed
from sinks.storage_errors import failed_by
from sources.errors import ConfigurationError
from sources.kafka.topic_offsets import TopicBounds, TopicOffsets


@dataclass(frozen=True, slots=True)
class Planned:
    """What a checkpoint holds: the end of its last batch, of the one before, and whether the last is done.

    Without `end` it is torn, and leads nowhere.
    """

    end: TopicOffsets | None
    previous_end: TopicOffsets | None
    is_done: bool

    @property
    def resumes_at(self) -> TopicOffsets | None:
        """Where a query started on it would go on; None where nobody wrote it down (the very first batch)."""
        return self.end if self.is_done else self.previous_end

    def __str__(self) -> str:
        return "is torn" if self.end is None else f"plans up to {self.end.next}"


TORN = Planned(None, None, False)


def agrees_in_topic(planned: Planned | None, position: TopicOffsets, bounds: TopicBounds) -> bool:
    """Whether a query may go on from `planned` to reach exactly what follows `position`, in every partition.

    It may start below the position (the handshake skips what is committed) but not above it, and not below what the
    master holds; a batch commits up to where it was planned to end, and no further. The very first batch cannot be
    repeated: its start is not in the checkpoint, and what the source would answer today is another. One that has
    planned for another topic of the same name leads nowhere.
    """
    if planned is None:
        return True
    if planned.end is None or planned.resumes_at is None or planned.end.topic_id != position.topic_id:
        return False
    resumes, ends = planned.resumes_at, planned.end
    minima = bounds.earliest
    return resumes.topic_id == position.topic_id and all(
        minima.at(number) <= resumes.at(number) <= position.at(number) <= ends.at(number)
        for number in {*position.next, *resumes.next, *ends.next}
    )


class Checkpoint:
    """The checkpoint folder of one topic's query.

    All raise ReplicaError where the folder cannot be looked at, the constructor as `Place.open` does.
    """

    def __init__(self, uri: str) -> None:
        place = placed(uri, "checkpoints")
        self.uri = str(place)
        self._fs, self._path = place.open()

    def planned(self) -> Planned | None:
        """What it holds, None where nothing was ever planned, TORN where Spark could not read it."""
        with self._named("looked at"):
            batches, done = self._batches("offsets"), self._batches("commits")
            if self._is_empty("metadata") or any(self._is_empty(f"commits/{batch}") for batch in done[-1:]):
                return TORN
            if not batches:
                return None
            ends = [self._end(batch) for batch in batches[-2:]]
            if None in ends:
                return TORN
            return Planned(ends[-1], ends[0] if len(ends) > 1 else None, batches[-1] in done)

    def move_aside(self, now: datetime) -> str:
        """Rename the folder, so that nothing is lost and nothing is in the way; the new name."""
        aside = f"{self._path.rstrip('/')}.disagreed-{now:%Y%m%dT%H%M%S%f}"
        with self._named("moved aside"):
            self._fs.move(self._path, aside)
        return aside

    @contextmanager
    def _named(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise failed_by(error)(
                f"the checkpoint {self.uri} cannot be {done}",
                found=error,
                hint="See that its storage can be reached, read and written; a checkpoint is a cache, safe to delete.",
            ) from error

    def _batches(self, folder: str) -> list[int]:
        found = self._fs.get_file_info(pafs.FileSelector(f"{self._path}/{folder}", allow_not_found=True))
        return sorted(int(info.base_name) for info in found if info.is_file and info.base_name.isdigit())

    def _is_empty(self, name: str) -> bool:
        found = self._fs.get_file_info(f"{self._path}/{name}")
        return bool(found.is_file and found.size == 0)

    def _end(self, batch: int) -> TopicOffsets | None:
        with self._fs.open_input_stream(f"{self._path}/offsets/{batch}") as stream:
            return _end_in(stream.readall())


def _end_in(planned: bytes) -> TopicOffsets | None:
    """None where it is empty, cut short or of another stream."""
    try:
        return TopicOffsets.from_json(json.loads(planned.decode().splitlines()[-1]))
    except (IndexError, ValueError, RecursionError, ConfigurationError):
        return None
