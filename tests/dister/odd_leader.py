"""What happens to a leader's log when a node fails, follows another one, or is of another version."""

from collections.abc import Iterable
from itertools import groupby, islice

from sources.dister.embedded.leader import EmbeddedLeader
from sources.dister.embedded.leader_log import Change, LeaderLog, act_of, apply, ascending
from sources.dister.entries import Entry, canonical_head, encode_line
from sources.dister.layout import batch_number

_ENTRIES_A_TURN = 10_000


class OddLog(LeaderLog):
    """One that can be damaged as well as written."""

    _torn: tuple[Entry, bytes] | None = None

    def write_many(self, changes: Iterable[Change]) -> int:
        """Many, one after the other, but faster than by `set`. Return the last id."""
        upcoming = iter(changes)
        while part := [(act_of(change), change) for change in islice(upcoming, _ENTRIES_A_TURN)]:
            with self._turn():
                numbered = [(self._next_id(None), act, change) for act, change in part]
                self._append([(entry_id, encode_line(entry_id, act, change)) for entry_id, act, change in numbered])
        return self.last_id

    def skip_to(self, index: int) -> None:
        """Give the next id at least this index, as if all writes before it had failed."""
        with self._turn():
            self._index = max(self._index, index - 1)

    def follow(self, entries: Iterable[Entry]) -> int:
        """Append the entries of another leader whose ids are above its own last id. Return their number."""
        with self._turn():
            new = [(entry.id, entry.line + b"\n") for entry in ascending(entries, self._last_id)]
            self._append(new)
        return len(new)

    def append_torn(self, change: Change, *, size_bytes: int, rnd: int | None = None) -> Entry:
        """Write the first `size_bytes` of an entry's line, as a kill or a full disk leaves it.

        As in dister, the next write is glued to it, unless `complete_torn` writes the rest before.
        """
        entry = self.fail(change, rnd=rnd)
        with self._turn():
            line = entry.line + b"\n"
            self._files.append(batch_number(entry.id), line[:size_bytes])
            self._torn = (entry, line[size_bytes:])
        return entry

    def complete_torn(self) -> None:
        with self._turn():
            if self._torn is not None:
                (entry, rest), self._torn = self._torn, None
                self._append([(entry.id, rest)])

    def append_act(self, act: int, items_json: bytes) -> int:
        """Append an entry of any act with any items, unchecked, as another version or a faulty client would."""
        with self._turn():
            entry_id = self._next_id(None)
            self._append([(entry_id, canonical_head(entry_id, act) + items_json + b"\n")])
            return entry_id

    def append_raw(self, data: bytes) -> None:
        """Append any bytes to the newest batch file; no id is used."""
        with self._turn():
            batches = self._files.batches()
            self._files.append(batches[-1].number if batches else 0, data)

    def _append(self, lines: Iterable[tuple[int, bytes]]) -> None:
        for number, group in groupby(lines, key=lambda line: batch_number(line[0])):
            part = list(group)
            self._files.append(number, b"".join(line for _, line in part))
            self._last_id = part[-1][0]

    def _look(self) -> None:
        super()._look()
        self._torn = None


class OddLeader(OddLog, EmbeddedLeader):
    """Such a node, with its services and peers."""


def replay(entries: Iterable[Entry]) -> dict[str, str]:
    """Return every key and its value."""
    data: dict[str, str] = {}
    for entry in entries:
        apply(entry, data)
    return data
