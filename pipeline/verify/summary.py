"""The result of a verification: counted, judged and shown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.monitoring.display import count, extent, number, size
from pipeline.verify.queues import JUMPS_LISTED, Jump
from sinks.proof.verdicts import Compared, Verdict
from sinks.values.incident import Action, Incident
from sources.errors import Divergent
from sources.loss import Condition
from sources.offsets import UNITS, LogId, Offset

DIFFERENCES_LISTED = 100
"""How many of the differing claims are described; all of them are counted, and become incidents."""

_MEANING = {
    Verdict.REPLICA_DAMAGED: "the replica is damaged: its rows give other bytes than were replicated",
    Verdict.REWRITTEN: "the master is rewritten: it has other bytes than were replicated",
    Verdict.LEDGER_WRONG: "the ledger is wrong: table and master agree, its checksum does not",
    Verdict.ALL_DIFFER: "table, master and ledger all differ",
    Verdict.UNREADABLE: "the replica cannot be read",
    Verdict.MASTER_LACKS: "the master's log ends before it; the replica is what was replicated",
    Verdict.MASTER_UNREADABLE: "the master cannot be read there; the replica is what was replicated",
}


def describe(found: Compared) -> str:
    """A difference in one sentence: whose bytes are wrong, and where."""
    words = [f"{found.claim.range}: {_MEANING[found.verdict]}"]
    if found.claim.records not in (None, found.rows):
        words.append(f"{found.rows:,} rows, by the ledger {found.claim.records:,} records")
    if found.differing:
        listed = ", ".join(map(str, found.differences))
        more = found.differing - len(found.differences)
        words.append(f"{found.differing:,} differ: {listed}{f' and {more:,} more' if more else ''}")
    if found.error is not None:
        words.append(found.error)
    return "; ".join(words)


def incident_of(found: Compared, position: Offset) -> Incident | None:
    """The incident of a difference; None if equal. An endless range from the `position` on becomes one offset."""
    condition, claimed = found.verdict.condition, found.claim.range
    if condition is None:
        return None
    return Incident(
        condition=condition,
        start=claimed.start,
        end=claimed.end if claimed.start < position else Offset(claimed.start + 1),
        cause=describe(found),
        action=Action.REPORTED,
        detected_at=time.time_ns() // 1000,
    )


def incident_of_jump(jump: Jump) -> Incident:
    """The incident of a jump between records that are the master's own, at the record where the queue goes on."""
    return Incident(
        condition=Condition.QUEUE_JUMP,
        start=jump.at,
        end=Offset(jump.at + 1),
        cause=_jump(jump),
        action=Action.REPORTED,
        detected_at=time.time_ns() // 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary:
    """The result for one log; docs/json.md documents every field of the JSON. Claims are ranges of the ledger.

    `bytes` and `claims` are what this run compared, `earlier_bytes` what an interrupted run before it had proven.
    `compacted` counts the records, among those, that the master has dropped by compaction since.
    `holes` is how much of the log is in holes, in what its offsets count.
    `jumps` is None if the queues were not checked, or there are none.
    """

    log_id: LogId
    master: str
    position: Offset
    seed: int | None
    seconds: float
    bytes: int
    claims: int
    earlier_bytes: int
    without_master_bytes: int
    compacted: int
    holes: int
    differing: int
    differences: tuple[Compared, ...]
    jumps: tuple[Jump, ...] | None

    @property
    def faults(self) -> list[Jump]:
        return [jump for jump in self.jumps or () if jump.is_fault]

    @property
    def problem(self) -> Divergent | None:
        """The first difference as an error; None if replica and master are equal."""
        if self.differences:
            first = self.differences[0]
            more = f"; {self.differing:,} ranges differ in all" if self.differing > 1 else ""
            at = first.differences[0].offset if first.differences else first.claim.range.start
            hint = None if first.verdict.condition is None else first.verdict.condition.hint_for(self.log_id.kind)
            return Divergent(f"{describe(first)}{more}", log=self.log_id, offset=at, hint=hint)
        return next((_queue_problem(self.log_id, jump, len(self.faults)) for jump in self.faults), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "log": str(self.log_id),
            "master": self.master,
            "position": self.position,
            "equal": self.problem is None,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "bytes": self.bytes,
            "mb_per_s": round(_mb_per_s(self), 1),
            "claims": self.claims,
            "earlier_bytes": self.earlier_bytes,
            "without_master_bytes": self.without_master_bytes,
            "compacted": self.compacted,
            **{f"holes_{unit}": self.holes if unit == self.log_id.unit else None for unit in UNITS},
            "differing": self.differing,
            "differences": [{**one.as_json(), "text": describe(one)} for one in self.differences],
            "jumps": None if self.jumps is None else [jump.as_json() for jump in self.jumps],
        }


@dataclass(slots=True)
class Tally:
    """The sums over the results of one run."""

    bytes: int = 0
    claims: int = 0
    without_master_bytes: int = 0
    compacted: int = 0
    differing: int = 0
    differences: list[Compared] = field(default_factory=list)

    def add(self, results: Sequence[Compared]) -> None:
        for one in results:
            if one.verdict is not Verdict.EQUAL:
                self.differing += 1
                self.differences += [one] if len(self.differences) < DIFFERENCES_LISTED else []
            if not one.claim.is_hole:
                self.claims += 1
                self.compacted += one.compacted
                self.bytes += one.claim.bytes
                self.without_master_bytes += 0 if one.with_master else one.claim.bytes


_TELLS_RATE_BYTES: Final = 10_000_000
"""Less takes as long as Spark takes to begin: no rate of anything."""


def lines(one: VerifySummary) -> Iterator[tuple[str, str]]:
    """The result as lines of text for a person, each with its style."""
    compared = f"{size(one.bytes)} in {count(one.claims, 'range')} compared with {one.master}"
    rate = f", {_mb_per_s(one):,.0f} MB/s" if one.bytes >= _TELLS_RATE_BYTES else ""
    yield f"{one.log_id}: {compared} in {one.seconds:,.1f} s{rate}", "bold"
    if one.seed is not None:
        yield f"  a sample, chosen by the seed {one.seed}", ""
    if one.earlier_bytes:
        yield f"  {size(one.earlier_bytes)} more were proven before an interruption", ""
    if one.without_master_bytes:
        yield f"  of them {size(one.without_master_bytes)} with the ledger alone: the master no longer holds them", ""
    if one.compacted:
        yield f"  {one.compacted:,} records with the ledger alone: compaction has taken them from the master", ""
    if one.holes:
        yield f"  {extent(one.holes, one.log_id)} in holes: nothing to compare", ""
    for found in one.differences:
        yield f"  {describe(found)}", "red"
    if one.differing > len(one.differences):
        yield f"  and {one.differing - len(one.differences):,} more", "red"
    yield from _queue_lines(one.jumps)
    yield ("  equal", "green") if one.problem is None else ("  not equal", "bold red")


def _queue_lines(jumps: Sequence[Jump] | None) -> Iterator[tuple[str, str]]:
    if jumps is None:
        return
    if not jumps:
        yield "  queue offsets have no gap and no repeat", ""
    for jump in jumps:
        told = "" if jump.incident is None else f"; it is the master's own: incident {jump.incident}"
        yield f"  {_jump(jump)}{told}", "red" if jump.is_fault else ""
    if len(jumps) >= JUMPS_LISTED:
        yield "  and perhaps more", ""


def _jump(jump: Jump) -> str:
    where = f"queue {jump.queue_id} of {jump.topic} goes on at offset {jump.at} with {number(jump.found)}"
    return f"{where} instead of {number(jump.expected)}: {jump.why.value}"


def _queue_problem(log_id: LogId, jump: Jump, count: int) -> Divergent:
    return Divergent(
        f"queue offsets jump: {count} times, first in queue {jump.queue_id} of {jump.topic}",
        log=log_id,
        offset=jump.at,
        expected=f"queue offset {jump.expected}",
        found=f"{jump.found}: {jump.why.value}",
        hint="If logtwin verify without --sample or a range finds the bytes equal, the jump is the master's own, and "
        "becomes an incident that can be accepted.",
    )


def _mb_per_s(one: VerifySummary) -> float:
    return one.bytes / 1e6 / one.seconds if one.seconds else 0.0
