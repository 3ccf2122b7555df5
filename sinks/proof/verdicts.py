"""What comparing a replica with its master can come to, claim by claim. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from sources.loss import Condition
from sources.offsets import Offset, OffsetRange

LISTED = 10
"""Of the records that differ, so many are named for each claim."""


class Verdict(Enum):
    """What a comparison says, and so whose bytes are wrong."""

    EQUAL = "equal"
    REPLICA_DAMAGED = "replica_damaged"  # the rows alone give other bytes
    REWRITTEN = "rewritten"  # the master alone has other bytes
    LEDGER_WRONG = "ledger_wrong"  # the checksum alone was made of other bytes
    ALL_DIFFER = "all_differ"
    UNREADABLE = "replica_unreadable"  # a file of the table cannot be read
    MASTER_LACKS = "master_lacks"  # the master's log ends before it
    MASTER_UNREADABLE = "master_unreadable"  # the master's files cannot be read there

    @property
    def condition(self) -> Condition | None:
        """What came apart, in the words of incidents; None where nothing did."""
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


class Kind(Enum):
    """How a record differs."""

    CHANGED = "changed"  # its row gives other bytes than the master's, or none that are a record
    MISSING = "missing"  # no row follows the one before it; counted once, however many are missing there
    TWICE = "twice"  # another row has the same offset
    SURPLUS = "surplus"  # its row starts inside another record, or where the replica has a hole


@dataclass(frozen=True, slots=True)
class Difference:
    """Where offsets are ids and the record's end is known, `entry_id` is its own: of several missing ones the last."""

    offset: Offset
    kind: Kind
    entry_id: int | None = None

    def __str__(self) -> str:
        return f"{self.offset}{'' if self.entry_id is None else f' (id {self.entry_id})'} {self.kind.value}"

    def as_json(self) -> dict[str, Any]:
        named = {} if self.entry_id is None else {"id": self.entry_id}
        return {"offset": self.offset, "kind": self.kind.value, **named}


@dataclass(frozen=True, slots=True)
class Claim:
    """What the tables say of a range: checksum, number and bytes of its records by the ledger; none of a hole."""

    range: OffsetRange
    checksum: str | None = None
    records: int | None = None
    bytes: int = 0

    @property
    def is_hole(self) -> bool:
        return self.checksum is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What came out for a claim. `differing` counts what `differences` names the first of, and `compacted` the records
    that the master has dropped since: they were held against the ledger alone.

    `with_master` is False where the master no longer holds the range: there the rows were held against the ledger.
    `error` says what could not be read.
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
