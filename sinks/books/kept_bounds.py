"""Bounds of ledger rows that upkeep must keep: no row is joined with another across one of them. Pure.

Retention and repair choose bounds of rows, take records out of the table log, and change the ledger afterwards. If rows
were joined in between, a row would claim records that are gone. So they first commit their bounds to the ledger, in one
domain. A join writes that domain, too: Kernel refuses the second of two commits that were built on the same version, so
a join either came before, which is seen then, or heeds the bound.

A bound stays after its repair, and costs a row there. Those that retention has passed are removed by the next join.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from sources.offsets import LogId, Offset

BOUNDS_DOMAIN: Final = "logtwin/ledger/bounds"
Bounds = Mapping[str, frozenset[Offset]]
"""The bounds to keep, by the id of the log."""


def bounds_in(text: str | None) -> Bounds:
    """The bounds that the domain's `text` says; None before the first. Raises ValueError for what nobody wrote."""
    said = {} if text is None else json.loads(text)
    if not isinstance(said, dict) or not all(isinstance(one, list) for one in said.values()):
        raise ValueError(f"the domain {BOUNDS_DOMAIN} is no map of lists: {text}")
    return {name: frozenset(map(Offset, offsets)) for name, offsets in said.items()}


def text_of(bounds: Bounds) -> str:
    """The inverse of `bounds_in`."""
    return json.dumps({name: sorted(offsets) for name, offsets in sorted(bounds.items()) if offsets})


def with_kept(bounds: Bounds, log_id: LogId, kept: Iterable[Offset]) -> Bounds:
    return {**bounds, str(log_id): bounds.get(str(log_id), frozenset()) | frozenset(kept)}


def above(bounds: Bounds, fronts: Mapping[str, Offset]) -> Bounds:
    """Without the bounds that no row can reach over: the log has none before its front."""
    return {
        name: frozenset(one for one in offsets if one > fronts.get(name, Offset(0))) for name, offsets in bounds.items()
    }
