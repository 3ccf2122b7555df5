"""The colours of a report, for light and for dark screens: the one place that names them.

Figures are made with the light ones; the page exchanges each for its dark one where the reader's screen is dark, so no
two colours may be equal. Series are told apart by people who do not see red and green; red is for what is wrong alone.
"""

from __future__ import annotations

from typing import Final

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
