"""Colours: exchanged one by one on dark screens, and legible on both."""

from __future__ import annotations

import pytest

from pipeline.report.drawing.palette import PALETTE, SERIES, for_dark_screens

_TEXTS = [("ink", "card", 7.0), ("muted", "card", 4.5), ("ink", "page", 7.0), ("muted", "page", 4.5)]
_MARKS = [(name, "card", 3.0) for name in (*SERIES, "good", "bad", "late")]


def test_no_colour_stands_for_two() -> None:
    assert len(for_dark_screens()) == len(PALETTE)


@pytest.mark.parametrize("screen", [0, 1])
@pytest.mark.parametrize(("name", "ground", "least"), [*_TEXTS, *_MARKS])
def test_contrast(screen: int, name: str, ground: str, least: float) -> None:
    lighter, darker = sorted((_luminance(PALETTE[name][screen]), _luminance(PALETTE[ground][screen])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= least


def _luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
