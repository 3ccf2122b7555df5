"""The possible results of comparing a replica with its master, claim by claim. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from sources.loss import Condition
from sources.offsets import Offset, OffsetRange

LISTED = 10
"""How many of the differing records are named for each claim."""


class Verdict(Enum):
    """The result of a comparison, which says whose bytes are wrong."""

    EQUAL = "equal"
    REPLICA_DAMAGED = "replica_damaged"  # only the rows give other bytes
    REWRITTEN = "rewritten"  # only the master has other bytes
    LEDGER_WRONG = "ledger_wrong"  # only the ledger's checksum differs
    ALL_DIFFER = "all_differ"
    UNREADABLE = "replica_unreadable"  # a file of the table cannot be read
    MASTER_LACKS = "master_lacks"  # the master's log ends before it
    MASTER_UNREADABLE = "master_unreadable"  # the master's files cannot be read there

    @property
    def condition(self) -> Condition | None:
        """The condition that an incident of this verdict has; None for EQUAL."""
        return _CONDITIONS.get(self)


_CONDITIONS = {
    Verdict.REPLICA_DAMAGED: Condition.REPLICA_DAMAGED,
    Verdict.UNREADABLE: Condition.REPLICA_DAMAGED,
    Verdict.LEDGER_WRONG: Condition.REPLICA_DAMAGED,
    Verdict.REWRITTEN: Condition.REWRITTEN,
    Verdict.ALL_DIFFER: Condition.REWRITTEN,
    Verdict.MASTER_LACKS: Condition.ABOVE_MAXIMUM,
    Verdict.MASTER_UNREADABLE: Condition.GAP,
}


class DifferenceKind(Enum):
    """How a record differs."""

    CHANGED = "changed"  # its row gives other bytes than the master's, or no record at all
    MISSING = "missing"  # no row follows the one before it; counted once, however many are missing there
    TWICE = "twice"  # another row has the same offset
    SURPLUS = "surplus"  # its row starts inside another record, or where the replica has a hole


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that differs. `entry_id` is its id, if offsets are ids and the record's end is known.

    If several records are missing in a row, it is the id of the last one.
    """

    offset: Offset
    kind: DifferenceKind
    entry_id: int | None = None

    def __str__(self) -> str:
        return f"{self.offset}{'' if self.entry_id is None else f' (id {self.entry_id})'} {self.kind.value}"

    def as_json(self) -> dict[str, Any]:
        named = {} if self.entry_id is None else {"id": self.entry_id}
        return {"offset": self.offset, "kind": self.kind.value, **named}


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of the tables about a range: checksum, number and bytes of its records, or that it is a hole."""

    range: OffsetRange
    checksum: str | None = None
    records: int | None = None
    bytes: int = 0

    @property
    def is_hole(self) -> bool:
        return self.checksum is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result for one claim.

    `differing` counts the records that differ, and `differences` names the first of them. `compacted` counts the
    records that the master has dropped since, which were compared with the ledger only. `with_master` is False if the
    master no longer holds the range: then the rows were compared with the ledger. `error` says what could not be read.
    """

    claim: Claim
    verdict: Verdict
    rows: int = 0
    differences: tuple[Difference, ...] = ()
    differing: int = 0
    compacted: int = 0
    with_master: bool = True
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "start": self.claim.range.start,
            "end": self.claim.range.end,
            "verdict": self.verdict.value,
            "rows": self.rows,
            "records": self.claim.records,
            "differing": self.differing,
            "differences": [one.as_json() for one in self.differences],
            "compacted": self.compacted,
            "with_master": self.with_master,
            "error": self.error,
        }
