"""How many rows a typed table has, and what it could not take: the same figures and words wherever they are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.monitoring.display import count
from sinks.typed.dead_letters import UnfitCount

_NOTHING: Final = UnfitCount()


@dataclass(frozen=True, slots=True)
class TypedCounts:
    """The counts of a typed table; docs/json.md documents every key.

    `rows` are those that queries see. `deleted` keys have a row each, too, in the Delta table itself.
    """

    rows: int
    deleted: int = 0
    unfit: UnfitCount = _NOTHING

    def as_json(self) -> dict[str, int | None]:
        unfit = self.unfit
        figures = (self.rows, self.deleted, unfit.values, unfit.messages, unfit.without_row)
        return dict(zip(NO_COUNTS, figures, strict=True))

    def __str__(self) -> str:
        deleted = f" ({self.deleted:,} deleted since)" if self.deleted else ""
        return f"{count(self.rows, 'row')}{deleted}, {unfit_words(self.unfit)}"


NO_COUNTS: Final[dict[str, int | None]] = dict.fromkeys(
    ("rows", "deleted", "unfit_values", "unfit_messages", "without_row")
)
"""Of a table that is not made yet."""


def unfit_words(unfit: UnfitCount) -> str:
    if not unfit.values:
        return "no value unfit"
    without_row = f", {unfit.without_row:,} of these without a row" if unfit.without_row else ""
    return f"{count(unfit.values, 'value')} unfit in {count(unfit.messages, 'message')}{without_row}"
