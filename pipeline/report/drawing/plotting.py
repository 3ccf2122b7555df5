"""What all figures of a report share: colours and looks, how times and foreign text get into them. Pure.

`PALETTE` is the one place that names colours. Figures are made with the light ones; the page exchanges each for its
dark one where the reader's screen is dark, so no two colours may be equal. People who do not see red and green can tell
series apart; red is for what is wrong alone.

Text of plotly.js knows a few HTML tags, links among them, and ``%{…}`` in templates. So what comes from data goes into
labels and hover texts through `plain`, and never into a template.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import plotly.graph_objects as go

PALETTE: Final = {
    "page": ("#f7f7f4", "#111110"),
    "card": ("#ffffff", "#1b1b1a"),
    "ink": ("#161614", "#f2f1ec"),
    "muted": ("#5c5b56", "#b4b2a8"),
    "grid": ("#e4e3dd", "#383733"),
    "good": ("#12875a", "#35b984"),
    "whole": ("#86bfa4", "#2c7a58"),
    "bad": ("#cf2f35", "#ff5f62"),
    "deleted": ("#e4a4a2", "#8d4a4b"),
    "late": ("#c27a00", "#e0a030"),
    "series-1": ("#2a78d6", "#3987e5"),
    "series-2": ("#149c6b", "#199e70"),
    "series-3": ("#b98000", "#c98500"),
    "series-4": ("#4a3aa7", "#9085e9"),
    "series-5": ("#d9568c", "#d55181"),
    "series-6": ("#0f6f78", "#4fb3bd"),
    "series-7": ("#8a5a2b", "#b98a5a"),
    "series-8": ("#7a8b2e", "#a9bb55"),
    "others": ("#96958d", "#7f7e77"),
}
"""Name -> (light, dark)."""

SERIES: Final = tuple(name for name in PALETTE if name.startswith("series-"))
NAME_LENGTH: Final = 34
"""Characters of a name beside a value, where both have a line."""
_LINE_LENGTH: Final = 44
"""Characters that fit into a line on a phone."""
_ROW_PX: Final = 42
_AXIS_PX: Final = 44
"""The height of an axis of time, whose labels have two lines."""
_BAR: Final = 0.3


def colour(name: str) -> str:
    """The colour as figures have it."""
    return PALETTE[name][0]


def for_dark_screens() -> dict[str, str]:
    """Light colour -> the dark one in its place."""
    return dict(PALETTE.values())


def style_rules() -> str:
    """The colours as CSS custom properties ``--name``."""
    light = "".join(f"--{name}:{one};" for name, (one, _) in PALETTE.items())
    dark = "".join(f"--{name}:{one};" for name, (_, one) in PALETTE.items())
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a figure's legend: a name, a colour of the palette, and the look that page.css gives it."""

    name: str
    colour: str
    mark: str = "line"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure and its legend, which the page writes as text."""

    figure: go.Figure
    legend: tuple[Key, ...] = field(default=())


def with_marks(text: str) -> str:
    """Return `text` with a mark for each character that cannot be seen."""
    return "".join(char if char.isprintable() else "�" for char in text)


def plain(text: str, limit: int = NAME_LENGTH) -> str:
    """Escape `text` so that plotly.js shows each character of it; shorten it in its middle."""
    shown = with_marks(text)
    if len(shown) > limit:
        shown = f"{shown[: limit // 2]}…{shown[-(limit - limit // 2 - 1) :]}"
    return html.escape(shown)


def on_axis(at: datetime) -> str:
    """A time as an axis wants it: UTC, without a zone."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def figure(traces: Iterable[Any], *, height: int, **layout: Any) -> go.Figure:
    """A figure that takes its width from the page and its background from it."""
    made = go.Figure(list(traces), layout_template="none")
    look(made, height=height, **layout)
    return made


def look(made: go.Figure, *, height: int, **layout: Any) -> None:
    made.update_layout(
        {
            "height": height,
            "autosize": True,
            "showlegend": False,
            "dragmode": False,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 4, "r": 12, "t": 8, "b": 8},
            "font": {"family": "system-ui, sans-serif", "size": 12, "color": colour("muted")},
            "hoverlabel": {
                "bgcolor": colour("card"),
                "bordercolor": colour("grid"),
                "font": {"color": colour("ink"), "size": 12},
                "align": "left",
                "namelength": -1,
            },
            **layout,
        }
    )
    made.update_xaxes(
        automargin=True,
        fixedrange=True,
        showgrid=False,
        zeroline=False,
        linecolor=colour("grid"),
        tickcolor=colour("grid"),
        nticks=6,
        tickangle=0,
    )
    made.update_yaxes(automargin=True, fixedrange=True, gridcolor=colour("grid"), zeroline=False, nticks=5)


def rows_figure(traces: Iterable[Any], labels: Sequence[tuple[str, str]], **xaxis: Any) -> go.Figure:
    """Horizontal bars, row 0 at the top, each under its name and, at the right, what its bars say in words.

    Names stand above the bars, so that bars have the whole width on a phone.
    """
    # Plotly makes no room for labels where that would leave a low picture too little
    margin = {"l": 4, "r": 12, "t": 8, "b": _AXIS_PX}
    made = figure(traces, height=_ROW_PX * len(labels) + _AXIS_PX + 8, barmode="overlay", margin=margin)
    made.update_yaxes(visible=False, range=[len(labels) - 0.5, -0.75])
    made.update_xaxes(**xaxis)
    # Set at once: Plotly validates all that are there each time one is added
    made.update_layout(
        annotations=[one for row, (name, words) in enumerate(labels) for one in _above(row, name, words)]
    )
    return made


def _above(row: int, name: str, words: str) -> Iterator[dict[str, Any]]:
    label = plain(name, _LINE_LENGTH - len(words))
    for text, at, anchor, ink in ((label, 0, "left", "ink"), (html.escape(words), 1, "right", "muted")):
        where = {"x": at, "y": row - 0.2, "xref": "paper", "yanchor": "bottom", "xanchor": anchor}
        yield {"text": text, "showarrow": False, "font": {"color": colour(ink)}, **where}


def bar(rows: Sequence[float], starts: Sequence[Any], lengths: Sequence[Any], name: str, **more: Any) -> go.Bar:
    """One bar a row, from `starts` on; bars of one row may overlap."""
    given = {"width": _BAR, "hoverinfo": "text", **more}
    return go.Bar(orientation="h", y=list(rows), base=list(starts), x=list(lengths), name=name, **given)
