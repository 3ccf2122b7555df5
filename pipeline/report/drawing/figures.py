"""Facts as figures over time, and as bars: throughput, waits, topics, consumer groups, what is pending. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import log10
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pipeline.monitoring.display import number, size
from pipeline.report.drawing.plotting import SERIES, Drawn, Key, bar, colour, figure, look, on_axis, plain, rows_figure
from pipeline.report.drawing.wording import span
from pipeline.report.facts import Commits, Pending, Slice, SlowestGroups, Timeline, TopTopics

OTHERS: Final = "all others"
LATE: Final = "due before the newest record of the log was stored"
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_FEW_POINTS: Final = 30  # so few are drawn as points, too: a line of one point is invisible
_SHORTEST_WAIT_S: Final = 0.001  # a logarithm has no zero
_WAITS_S: Final = {
    0.001: "1 ms", 0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h",
    36_000: "10 h", 86_400: "1 d", 864_000: "10 d", 8_640_000: "100 d", 86_400_000: "1000 d",
}  # fmt: skip


def throughput(timeline: Timeline) -> Drawn:
    """Records and megabytes a second, one above the other, a line a log."""
    made = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.12)
    times = _times(timeline)
    series = _series(timeline)
    for name, tint, commits in series:
        for row, (amount, unit) in enumerate((("records", 1.0), ("bytes", 1e6)), start=1):
            values = [getattr(commits[at], amount) / unit / timeline.width_s if at in commits else 0.0 for at in times]
            made.add_trace(_line(name, tint, times, values, ",.3~r"), row=row, col=1)
    look(made, height=380, template="none", hovermode="x unified", margin={"l": 4, "r": 12, "t": 26, "b": 8})
    made.update_yaxes(rangemode="tozero")
    made.update_xaxes(type="date")
    for row, title in enumerate(("records/s", "MB/s")):
        _title(made, title, 1 - row * 0.56)
    return Drawn(made, _legend(series))


def waits(timeline: Timeline) -> Drawn:
    """How long records waited from store to commit: the median commit as a line, one in a hundred as dots."""
    made = figure([], height=280, hovermode="x unified", margin={"l": 4, "r": 12, "t": 14, "b": 8})
    series = _series(timeline)
    for name, tint, commits in series:
        times = [at for at, one in commits.items() if one.waited_p50_s is not None]
        for share, dash in (("p50", "solid"), ("p99", "dot")):
            waits_s = [getattr(commits[at], f"waited_{share}_s") or 0.0 for at in times]
            values = [max(_SHORTEST_WAIT_S, wait_s) for wait_s in waits_s]
            texts = [span(wait_s) for wait_s in waits_s]
            line = _line(f"{name}, {share}", tint, times, values, "")
            made.add_trace(line.update(line_dash=dash, text=texts, hovertemplate="%{text}"))
    made.update_xaxes(type="date")
    made.update_yaxes(type="log", tickvals=list(_WAITS_S), ticktext=list(_WAITS_S.values()), range=_decades(made.data))
    styles = (Key("median commit", "muted"), Key("99 of 100 commits", "muted", "dots"))
    return Drawn(made, (*_legend(series), *styles))


def _decades(lines: Sequence[go.Scatter]) -> list[float]:
    """From a tick at or below all values to one above, as exponents: a logarithm without ticks says nothing."""
    values = [value for line in lines for value in line.y]
    below = max((at for at in _WAITS_S if at <= min(values)), default=min(_WAITS_S))
    above = min((at for at in _WAITS_S if at > max(values)), default=max(values))
    return [log10(below), log10(above)]


def top_topics(topics: TopTopics) -> Drawn:
    """Each topic's share of all messages, and of all bytes."""
    shown = topics.topics
    labels = [(one.topic, f"{number(one.messages)} · {size(one.bytes)}") for one in shown]
    messages = [100 * one.messages / max(1, topics.messages) for one in shown]
    sizes = [100 * one.bytes / max(1, topics.bytes) for one in shown]
    upper, lower = ("messages, share of all", messages), ("bytes of bodies, share of all", sizes)
    return _pairs(labels, upper, lower, ticksuffix=" %")


def slowest_groups(slowest: SlowestGroups) -> Drawn:
    """How far each group is behind, in messages and in time, against the one that is furthest."""
    shown = [one for one in slowest.groups if one.messages_behind or one.seconds_behind]
    has_logs = len({one.log_id for one in shown}) > 1
    names = [f"{one.consumer_group} · {one.topic}" + (f" · {one.log_id}" if has_logs else "") for one in shown]
    labels = [
        (name, f"{number(one.messages_behind)} · {span(one.seconds_behind)}")
        for name, one in zip(names, shown, strict=True)
    ]
    messages = _shares([one.messages_behind or 0 for one in shown])
    seconds = _shares([one.seconds_behind or 0.0 for one in shown])
    return _pairs(labels, ("messages", messages), ("time", seconds), visible=False)


def pending(waiting: Pending) -> Drawn:
    """How many wait, by their time; the late ones stand out."""
    bars, legend = [], []
    for is_late, key in ((True, Key(LATE, "late", "box")), (False, Key("pending", "series-1", "box"))):
        slices = [one for one in waiting.slices if one.is_late is is_late]
        if slices:
            bars.append(_slice_bars(slices, waiting.width_s, key))
            legend.append(key)
    made = figure(bars, height=220, barmode="stack")
    made.update_xaxes(type="date")
    made.update_yaxes(rangemode="tozero", tickformat=",d")
    is_any_late = any(one.is_late for one in waiting.slices)
    return Drawn(made, tuple(legend) if is_any_late else ())


def _slice_bars(slices: Sequence[Slice], width_s: float, key: Key) -> go.Bar:
    """Draw each slice over its span of time, up to a narrow gap."""
    half = timedelta(seconds=width_s / 2)
    middles = [on_axis(one.at + min(half, _LAST - one.at)) for one in slices]
    counts, width_ms = [one.count for one in slices], 900 * width_s
    return go.Bar(x=middles, y=counts, width=width_ms, marker_color=colour(key.colour), name=key.name)


def _series(timeline: Timeline) -> list[tuple[str, str, dict[datetime, Commits]]]:
    """Name, colour and commits by time of each log, the one with the most bytes first; the nameless rest last."""
    by_log: dict[str | None, dict[datetime, Commits]] = {}
    for one in sorted(timeline.commits, key=lambda one: one.at):
        by_log.setdefault(one.log_id, {})[one.at] = one
    rest = by_log.pop(None, None)
    named = sorted(by_log.items(), key=lambda item: -sum(one.bytes for one in item[1].values()))
    series = [(log_id or "", tint, commits) for (log_id, commits), tint in zip(named, SERIES, strict=False)]
    return series if rest is None else [*series, (OTHERS, "others", rest)]


def _times(timeline: Timeline) -> list[datetime]:
    """Every span from the first commit to the last, also those without any."""
    if not timeline.commits:
        return []
    first, last = min(one.at for one in timeline.commits), max(one.at for one in timeline.commits)
    steps = round((last - first).total_seconds() / timeline.width_s)
    return [first + timedelta(seconds=timeline.width_s * step) for step in range(steps + 1)]


def _line(name: str, tint: str, times: Sequence[datetime], values: Sequence[float], number_format: str) -> go.Scatter:
    return go.Scatter(
        x=[on_axis(at) for at in times],
        y=list(values),
        name=plain(name),
        mode="lines+markers" if len(times) <= _FEW_POINTS else "lines",
        line={"color": colour(tint), "width": 2},
        marker={"color": colour(tint), "size": 5},
        hovertemplate=f"%{{y:{number_format}}}",
    )


def _legend(series: Sequence[tuple[str, str, Any]]) -> tuple[Key, ...]:
    return tuple(Key(name, tint) for name, tint, _ in series) if len(series) > 1 else ()


def _title(made: go.Figure, text: str, at: float) -> None:
    """Write a title above a part of a figure."""
    where = {"xref": "paper", "yref": "paper", "x": 0, "y": at, "xanchor": "left", "yanchor": "bottom"}
    made.add_annotation(text=text, showarrow=False, font={"color": colour("ink")}, **where)


def _pairs(
    labels: Sequence[tuple[str, str]],
    upper: tuple[str, list[float]],
    lower: tuple[str, list[float]],
    **xaxis: Any,
) -> Drawn:
    """Draw two thin bars a row."""
    traces, legend = [], []
    for (name, values), tint, shift in ((upper, "series-1", -0.01), (lower, "series-4", 0.2)):
        at = [row + shift for row in range(len(labels))]
        traces.append(bar(at, [0] * len(at), values, name, width=0.18, marker_color=colour(tint), hoverinfo="skip"))
        legend.append(Key(name, tint, "box"))
    return Drawn(rows_figure(traces, labels, rangemode="tozero", **xaxis), tuple(legend))


def _shares(values: Sequence[float]) -> list[float]:
    """Return each value as a share of the greatest."""
    greatest = max(values, default=0) or 1
    return [value / greatest for value in values]
