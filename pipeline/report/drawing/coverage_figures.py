"""What of each log the replica holds, as bars: over its offsets, and over its master's time. Pure.

A range that is lost may be a millionth of a log: each alarming one has a mark under its bar that is visible at any
scale, beside the bar of its true length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import plotly.graph_objects as go

from pipeline.monitoring.display import count, number
from pipeline.report.drawing.plotting import Drawn, Key, bar, colour, on_axis, plain, rows_figure
from pipeline.report.drawing.wording import extent_of, headlines, time
from pipeline.report.facts import Facts, Flaw, FlawedRange, LogFacts, ReportSubject, subjects

ROWS: Final = 60
"""Logs that are drawn; tables have all."""
_WHY_LENGTH: Final = 60
_MARK_BELOW: Final = 0.27

_LOOKS: Final = {
    Flaw.DELETED: ("deleted", "box"),
    Flaw.ACCEPTED: ("bad", "stripes"),
    Flaw.DOUBTFUL: ("bad", "checks"),
    Flaw.MISSING: ("bad", "box"),
}
"""Colour and mark; what is worse is drawn over what is better."""
_PATTERNS: Final = {"box": "", "stripes": "/", "checks": "x"}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a bar lies, in the axis's terms."""

    start: Any
    middle: Any
    length: float


_Placed = Callable[[LogFacts, FlawedRange | None], _Place]
"""Where the bar of a log lies, or of a flaw in it; of a flaw in a partition, by that partition."""


def over_offsets(facts: Facts) -> Drawn:
    """In hundredths of what lies between the least offset that the replica ever held and the end of its log.

    A topic is one row, in which a flaw lies where it lies in its partition.
    """
    drawn = drawn_subjects(facts)
    labels = [(one.name, _extent(one)) for one in drawn]
    return _coverage(drawn, facts.flaws, labels, _by_offset, range=[-0.5, 100.5], ticksuffix=" %")


def over_time(facts: Facts) -> Drawn:
    """Draw logs by when the master stored the records. Logs without messages have no row."""
    drawn = [one for one in drawn_subjects(facts) if one.whole.oldest_stored and one.whole.newest_stored]
    labels = [(one.name, time(one.whole.newest_stored).removesuffix(" UTC")) for one in drawn]
    flaws = [one for one in facts.flaws if one.stored_after is not None or one.stored_before is not None]
    return _coverage(drawn, flaws, labels, _by_time, type="date")


def drawn_subjects(facts: Facts) -> list[ReportSubject]:
    by_name = {one.name: one for one in subjects(facts.logs)}
    return [by_name[one.log_id] for one in headlines(facts) if one.log_id in by_name][:ROWS]


def _extent(one: ReportSubject) -> str:
    if one.is_topic:
        return count(len(one.logs), "partition")
    return f"{number(one.whole.begin)} – {number(one.whole.end)}"


def range_words(one: FlawedRange) -> str:
    """``500 – 600, 100 B``."""
    return f"{number(one.start)} – {number(one.end)}, {extent_of(one.log_id, one.end - one.start)}"


def _coverage(
    drawn: Sequence[ReportSubject],
    flaws: Sequence[FlawedRange],
    labels: Sequence[tuple[str, str]],
    placed: _Placed,
    **xaxis: Any,
) -> Drawn:
    found = {log.log_id: (row, log) for row, one in enumerate(drawn) for log in one.logs}
    rows = [(one, *found[one.log_id]) for one in flaws if one.log_id in found]
    places = [(one, row, placed(log, one)) for one, row, log in rows]
    traces: list[Any] = [_whole_bars([placed(one.whole, None) for one in drawn])]
    legend = [Key("there", "whole", "box")]
    for flaw, (tint, mark) in _LOOKS.items():
        of_flaw = [one for one in places if one[0].flaw is flaw]
        if of_flaw:
            key = Key(flaw.value, tint, mark)
            traces.append(_flaw_bars(of_flaw, key))
            legend.append(key)
    alarming = [one for one in places if one[0].flaw.is_alarming]
    if alarming:
        traces.append(_marks(alarming))
    return Drawn(rows_figure(traces, labels, **xaxis), tuple(legend))


_PlacedFlaw = tuple[FlawedRange, int, _Place]
"""A flaw, the row of its log, and where it lies there."""


def _whole_bars(places: Sequence[_Place]) -> go.Bar:
    starts, lengths = [one.start for one in places], [one.length for one in places]
    return bar(range(len(places)), starts, lengths, "there", marker_color=colour("whole"), hoverinfo="skip")


def _flaw_bars(flaws: Sequence[_PlacedFlaw], key: Key) -> go.Bar:
    tint = colour(key.colour)
    return bar(
        [row for _, row, _ in flaws],
        [place.start for _, _, place in flaws],
        [place.length for _, _, place in flaws],
        key.name,
        marker={
            "color": tint,
            "line": {"width": 1, "color": tint},
            "pattern": {"shape": _PATTERNS[key.mark], "fgcolor": tint, "bgcolor": colour("card"), "size": 6},
        },
        hovertext=[_hover(one) for one, _, _ in flaws],
    )


def _marks(flaws: Sequence[_PlacedFlaw]) -> go.Scatter:
    return go.Scatter(
        x=[place.middle for _, _, place in flaws],
        y=[row + _MARK_BELOW for _, row, _ in flaws],
        mode="markers",
        name="marks",
        marker={"symbol": "triangle-up", "size": 9, "color": colour("bad")},
        hoverinfo="text",
        hovertext=[_hover(one) for one, _, _ in flaws],
        cliponaxis=False,
    )


def _hover(one: FlawedRange) -> str:
    times = f"stored {time(one.stored_after)} – {time(one.stored_before)}"
    lines = [plain(one.log_id), f"<b>{one.flaw.value}</b>", range_words(one), times]
    return "<br>".join([*lines, *([plain(one.why, _WHY_LENGTH)] if one.why else [])])


def _by_offset(log: LogFacts, flaw: FlawedRange | None) -> _Place:
    start, end = (log.begin, log.end) if flaw is None else (max(flaw.start, log.begin), min(flaw.end, log.end))
    share = 100 / max(1, log.end - log.begin)
    first, length = share * (start - log.begin), share * max(0, end - start)
    return _Place(first, first + length / 2, length)


def _by_time(log: LogFacts, flaw: FlawedRange | None) -> _Place:
    """Lengths are milliseconds. Where only one of the two times is known, it lasts no time."""
    both = (log.oldest_stored, log.newest_stored) if flaw is None else (flaw.stored_after, flaw.stored_before)
    known = [at for at in both if at is not None]
    start, lasting = known[0], max(timedelta(0), known[-1] - known[0])
    return _Place(on_axis(start), on_axis(start + lasting / 2), lasting / timedelta(milliseconds=1))
