"""dister's log as a master log: the entry log in its leader's folder.

The leader knows nothing of its readers, so there is nothing to acknowledge, and no session. An offset is an entry id
plus 1. So a leader that has other ids before the same id is a different one, and everything replicated is compared with
it (`proves_all`), not only the last record. Lines show differences that ids do not.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sources.bounds import ToldDoubt
from sources.dister import columns
from sources.dister.check_and_fix import Line, faithful_point, lines_of, safe_point
from sources.dister.columns import KEY_VALUES
from sources.dister.entry_log import EntryLog
from sources.dister.metadata import fetch, read_nodes
from sources.dister.states import PEERS_FILE, check_nodes
from sources.errors import naming
from sources.master import Chunk, Damage, MasterView, Traits
from sources.metadata import FetchedMetadata
from sources.offsets import LogId, Offset, OffsetRange
from sources.options import CheckAndFix
from sources.sole_log import SoleLog

MIB = 1024 * 1024
MAX_ENTRIES_PER_TRIGGER = 10_000
"""The number of entries that dister's leader sends to a follower at once."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisterLog(SoleLog):
    """The leader that keeps its data in `path`: the `sources.master.Master` of one `MasterLog`, and that log.

    `peers` is where its nodes are listed, a file or an http URL; with None in the folder, if they are there (as those
    of an embedded leader). With `past_damage`, `read` yields damage instead of raising it.
    """

    log_id: LogId
    path: str
    peers: str | None = None
    split_bytes: int = 256 * MIB
    chunk_bytes: int = 16 * MIB
    max_entries_per_trigger: int = MAX_ENTRIES_PER_TRIGGER
    check_and_fix: CheckAndFix = "safe"
    past_damage: bool = False
    _told: ToldDoubt = field(default_factory=ToldDoubt, init=False, repr=False, compare=False)

    @property
    def address(self) -> str:
        return self.path

    @property
    def traits(self) -> Traits:
        """Its constants by the rule of `check_and_fix`. The faithful one trusts what lies before the last entry, as
        dister does. Ids have gaps, but no offset is free: an entry takes all ids behind the one before it."""
        return Traits(
            restored_from=columns.COLUMNS,
            measured_by=columns.COLUMNS,
            cuts_at_records=True,
            proves_all=self.check_and_fix != "faithful",
            overrules=self.check_and_fix != "off",
            keyed_state=KEY_VALUES,
        )

    def check(self, *, is_replica: bool = True) -> None:
        """Refuse the leader of another group or version. If its nodes are listed nowhere, nobody can tell.

        It knows nothing of its readers, so anybody may read it.
        """
        listed = self._listed_at()
        if listed is None:
            log.warning("%s: without peers nothing tells which group and version %s is of", self.log_id, self.path)
            return
        with naming(self.log_id):
            check_nodes(read_nodes(listed), self.log_id.name)

    def bounds(self, known: Offset | None = None) -> OffsetRange:
        """Implement the contract; the end is behind the last entry."""
        with naming(self.log_id):
            return self._entries().bounds(known)

    def view(self) -> MasterView:
        """Implement the contract. dister deletes nothing."""
        return MasterView(role="leader", bounds=self.bounds(), retention=None)

    def boundary_after(self, offset: Offset, maximum: Offset) -> Offset:
        with naming(self.log_id):
            return self._entries().boundary_after(offset, maximum)

    def end_of_batch(self, start: Offset, maximum: Offset, max_bytes: int) -> Offset:
        """Implement the contract; the end is behind `max_entries_per_trigger` entries at the latest."""
        most = self.max_entries_per_trigger
        with naming(self.log_id):
            return self._entries().end_of_batch(start, maximum, entries=most, size_bytes=max_bytes)

    def plan(self, wanted: OffsetRange, *, cores: int = 1) -> tuple[OffsetRange, ...]:
        """Plan one piece, because a batch has few entries."""
        return () if wanted.is_empty else (wanted,)

    def size_bytes(self, wanted: OffsetRange) -> None:
        return None

    def read(self, owned: OffsetRange, *, committed: Offset | None, boundary: bool) -> Iterator[Chunk | Damage]:
        if owned.is_empty:
            return
        chunks = self._entries().chunks(owned, boundary, self.chunk_bytes)
        with naming(self.log_id), closing(chunks) as pieces:
            for piece in pieces:
                yield piece if isinstance(piece, Chunk) else replace(piece, error=piece.error.at(self.log_id))

    def raw(self, wanted: OffsetRange, *, committed: Offset | None) -> Generator[memoryview]:
        if wanted.is_empty:
            return
        with naming(self.log_id):
            yield from self._entries().raw(wanted, self.chunk_bytes)

    def restore(self, records: pa.RecordBatch) -> bytes:
        return columns.restore(records)

    def lengths(self, records: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return columns.lengths(records)

    def common_offset(self, records: Iterable[tuple[OffsetRange, bytes]]) -> Offset | None:
        """Implement the contract by the rule of `check_and_fix`; with "off" by the safe one."""
        bounds = self.bounds()
        if self.check_and_fix != "faithful":
            return safe_point(records, self._lines(bounds), bounds.start)
        common, walk = faithful_point(records, self._lines(bounds))
        log.info("%s: check and fix, faithful: %d windows, the same up to %d", self.log_id, walk.windows, common)
        return common

    def metadata(self) -> Iterator[FetchedMetadata]:
        return fetch(self.path, self._listed_at())

    def _listed_at(self) -> str | None:
        """Return where its nodes are listed: as given, or else in its own folder, as by an embedded leader."""
        own = Path(self.path) / PEERS_FILE
        return str(own) if self.peers is None and own.exists() else self.peers

    def _lines(self, wanted: OffsetRange) -> Iterator[Line]:
        for piece in self.read(wanted, committed=None, boundary=False):
            if isinstance(piece, Chunk):
                yield from lines_of(piece, self.lengths(piece.records))

    def _entries(self) -> EntryLog:
        return EntryLog(self.path, self._told, past_damage=self.past_damage)
