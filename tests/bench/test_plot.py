"""bench.plot: the picture is SVG, the same for the same figures, and says each figure, its goal and how it ended."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bench.contest import Figure, Goal
from bench.plot import DARK, LIGHT, svg
from tests.bench.figures import figure

MET = figure("catch-up, 1 KB", 4.4, 4.0, 5.0)
MISSED = figure("freshness p99", 0.9, 0.8, goal=Goal(most=0.7))


def texts(*figures: Figure) -> list[str]:
    root = ElementTree.fromstring(svg(figures))  # noqa: S314 - our own picture
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_each_figure_has_its_name_its_ratio_and_its_goal() -> None:
    said = texts(MET, MISSED)
    assert {"catch-up, 1 KB", "4.40 ×", "goal ≥ 4"} <= set(said)
    assert {"freshness p99", "0.85 ×", "goal ≤ 0.7, missed"} <= set(said)


def test_a_missed_goal_has_another_colour() -> None:
    assert svg([MISSED]).count(LIGHT["missed"]) > svg([MET]).count(LIGHT["missed"])


def test_every_colour_in_it_has_one_for_the_dark() -> None:
    text = svg([MET, MISSED])
    elements = text.partition("</style>")[2]
    assert set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", elements)) <= set(LIGHT.values())
    assert "prefers-color-scheme: dark" in text
    assert all(colour in text for colour in DARK.values())
