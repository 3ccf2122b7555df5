"""The results as a picture: one row for each figure, its ratios on a log axis, and the goal's side of the axis shaded.

It is SVG for light and dark displays: the colours are those of LIGHT, and a style sheet in the file replaces them by
those of DARK if the reader's system asks for it. Met and missed goals differ by shape and place as well as by colour.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.contest import Figure

LIGHT: Final = {
    "paper": "#fdfdfe", "text": "#1f2329", "faint": "#5a636d", "grid": "#d5dae0", "wanted": "#dcecf7",
    "goal": "#22577a", "met": "#0072b2", "missed": "#c94f00",
}  # fmt: skip
DARK: Final = {
    "paper": "#0e1116", "text": "#e7ecf2", "faint": "#9aa4af", "grid": "#39414b", "wanted": "#16324a",
    "goal": "#9fc9e8", "met": "#56b4e9", "missed": "#ff9a4d",
}  # fmt: skip
"""Blue and vermilion are from the palette of Okabe and Ito: they differ with every common colour blindness."""

_WIDTH_IN, _ROW_IN, _AROUND_IN = 10.0, 0.52, 1.3
_LABELS_SHARE, _VALUES_SHARE = 0.40, 0.13  # of the width, left and right of the axis


def svg(figures: Sequence[Figure]) -> str:
    """The text of the picture; an empty axis if there are no figures."""
    style: Any = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "bench",  # the same figures give the same file
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": LIGHT["text"],
    }
    with mpl.rc_context(style):
        picture = _drawn(figures)
        out = io.StringIO()
        picture.savefig(out, format="svg", facecolor=LIGHT["paper"], metadata={"Date": None})
    return _with_dark_colours(out.getvalue())


def _drawn(figures: Sequence[Figure]) -> Picture:
    height_in = _AROUND_IN + _ROW_IN * max(1, len(figures))
    picture = Picture(figsize=(_WIDTH_IN, height_in))
    below, above = 0.45 / height_in, 0.85 / height_in
    axes = picture.add_axes((_LABELS_SHARE, below, 1 - _LABELS_SHARE - _VALUES_SHARE, 1 - below - above))
    _prepare(axes, figures)
    for row, figure in enumerate(figures):
        _draw(axes, row, figure)
    _explain(picture, height_in)
    return picture


def _prepare(axes: Axes, figures: Sequence[Figure]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*_limits(figures))
    axes.set_ylim(len(figures) - 0.4, -0.6)  # the first on top
    axes.set_yticks([])
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g} ×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="both", length=0, labelcolor=LIGHT["faint"])
    axes.grid(axis="x", color=LIGHT["grid"], linewidth=0.6)
    axes.axvline(1, color=LIGHT["faint"], linewidth=1, zorder=1.5)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _limits(figures: Sequence[Figure]) -> tuple[float, float]:
    """The limits of the axis, with room for every ratio, every goal and 1."""
    goals = [_bound(figure) for figure in figures]
    shown = [1.0, *goals, *(ratio for figure in figures for ratio in figure.ratios)]
    return min(0.5, min(shown) / 1.3), max(2.0, max(shown) * 1.3)


def _bound(figure: Figure) -> float:
    bound = figure.goal.least if figure.goal.least is not None else figure.goal.most
    if bound is None:
        raise ValueError(f"{figure.work} has no goal")
    return bound


def _draw(axes: Axes, row: int, figure: Figure) -> None:
    colour = LIGHT["met" if figure.is_met else "missed"]
    bound, (low, high) = _bound(figure), axes.get_xlim()
    wanted = (bound, high) if figure.goal.least is not None else (low, bound)
    axes.fill_betweenx((row - 0.36, row + 0.36), *wanted, color=LIGHT["wanted"], linewidth=0, zorder=0.5)
    axes.plot((bound, bound), (row - 0.36, row + 0.36), color=LIGHT["goal"], linewidth=2, solid_capstyle="butt")
    axes.plot((min(figure.ratios), max(figure.ratios)), (row, row), color=colour, linewidth=2.5, zorder=3)
    axes.plot(figure.ratio, row, color=colour, zorder=4, **_mark(figure.is_met))
    _label(axes, row, figure, colour)


def _mark(is_met: bool) -> dict[str, Any]:
    if is_met:
        return {"marker": "o", "markersize": 8}
    return {"marker": "D", "markersize": 7, "markerfacecolor": LIGHT["paper"], "markeredgewidth": 2}


def _label(axes: Axes, row: int, figure: Figure, colour: str) -> None:
    beside = axes.get_yaxis_transform()
    left: dict[str, Any] = {"transform": beside, "ha": "right", "clip_on": False}
    axes.text(-0.02, row - 0.04, _short(figure.work), va="bottom", weight="bold", **left)
    pair = _short(f"{figure.ours} / {figure.against}")
    axes.text(-0.02, row + 0.04, pair, va="top", size=8, color=LIGHT["faint"], **left)
    right: dict[str, Any] = {"transform": beside, "ha": "left", "clip_on": False}
    axes.text(1.02, row - 0.04, f"{figure.ratio:.2f} ×", va="bottom", weight="bold", color=colour, **right)
    said = f"goal {figure.goal}" + ("" if figure.is_met else ", missed")
    axes.text(1.02, row + 0.04, said, va="top", size=8, color=LIGHT["faint"], **right)


def _short(text: str, most: int = 62) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _explain(picture: Picture, height_in: float) -> None:
    met = Line2D([], [], color=LIGHT["met"], linewidth=2.5, **_mark(True))
    missed = Line2D([], [], color=LIGHT["missed"], linewidth=2.5, **_mark(False))
    goal = Patch(facecolor=LIGHT["wanted"], edgecolor=LIGHT["goal"])
    entries = {"goal met": met, "missed": missed, "where the goal wants the median": goal}
    picture.text(0.015, 1 - 0.28 / height_in, "Ours / against, by figure", size=12, weight="bold", va="center")
    said = "median of the rounds, with the least and the greatest"
    picture.text(0.015, 1 - 0.55 / height_in, said, size=8.5, color=LIGHT["faint"], va="center")
    where = (0.99, 1 - 0.40 / height_in)
    picture.legend(
        list(entries.values()), list(entries), loc="center right", bbox_to_anchor=where, ncols=3, frameon=False
    )


def _with_dark_colours(text: str) -> str:
    """Add the rules for DARK, which override the colours that matplotlib writes into each element's style."""
    rules = [
        f'[style*="{kind}: {LIGHT[name]}"] {{ {kind}: {DARK[name]} !important }}'
        for name in LIGHT
        for kind in ("fill", "stroke")
    ]
    sheet = "<style>@media (prefers-color-scheme: dark) { " + " ".join(rules) + " }</style>"
    head, opened, rest = text.partition("<defs>")
    return f"{head}{sheet}{opened}{rest}"
