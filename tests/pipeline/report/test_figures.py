"""Figures over time and bars: each number is where it belongs, and foreign text is only text."""

from __future__ import annotations

import pytest

from pipeline.report.drawing import figures
from pipeline.report.drawing.palette import colour
from pipeline.report.drawing.plotting import Drawn, Key, plain
from pipeline.report.facts import Pending, SlowestGroups, Timeline, TopicFacts, TopTopics
from tests.pipeline.report.samples import BROKER, SHOP, commits, group, slices


def labels(drawn: Drawn) -> list[str]:
    return [one.text for one in drawn.figure.layout.annotations]


def test_throughput_is_a_second_and_zero_where_nothing_was_committed() -> None:
    timeline = Timeline(60, (commits(BROKER, 10, records=120), commits(BROKER, 8, records=60)))
    records, sizes = figures.throughput(timeline).figure.data
    assert list(records.x) == ["2026-11-22 11:50:00.000", "2026-11-22 11:51:00.000", "2026-11-22 11:52:00.000"]
    assert list(records.y) == [2.0, 0.0, 1.0]
    assert list(sizes.y) == pytest.approx([0.002, 0.0, 0.001])
    assert (records.yaxis, sizes.yaxis) == ("y", "y2")


def test_the_busiest_log_has_the_first_colour_and_the_rest_is_grey() -> None:
    timeline = Timeline(60, (commits(BROKER, 1, 5), commits(SHOP, 1, 50), commits(None, 1, 500)))
    drawn = figures.throughput(timeline)
    assert drawn.legend == (Key(SHOP, "series-1"), Key(BROKER, "series-2"), Key("all others", "others"))
    assert [one.line.color for one in drawn.figure.data[::2]] == [colour(key.colour) for key in drawn.legend]


def test_waits_are_the_median_and_the_worst_and_never_zero_on_a_logarithm() -> None:
    timeline = Timeline(
        60,
        (
            commits(BROKER, 3, waited_p50_s=0.0, waited_p99_s=90.0),
            commits(BROKER, 2, waited_p50_s=None, waited_p99_s=None),
        ),
    )
    median, worst = figures.waits(timeline).figure.data
    assert (list(median.y), list(median.text)) == ([0.001], ["0 ms"])
    assert (list(worst.y), list(worst.text)) == ([90.0], ["1 min 30 s"])
    assert (median.line.dash, worst.line.dash) == ("solid", "dot")


def test_topics_are_shares_of_all_and_say_their_numbers() -> None:
    shown = (TopicFacts(topic="a", messages=30, bytes=100), TopicFacts(topic="b", messages=10, bytes=300))
    drawn = figures.top_topics(TopTopics(shown, of=9, messages=80, bytes=400))
    messages, sizes = drawn.figure.data
    assert list(messages.x) == [37.5, 12.5]
    assert list(sizes.x) == [25, 75]
    assert labels(drawn) == ["a", "30 · 100 B", "b", "10 · 300 B"]


def test_groups_that_are_behind_are_measured_by_the_worst() -> None:
    slowest = SlowestGroups((group("slow", 100, 30.0), group("old", 50, 60.0), group("done", 0, 0.0)), of=3, behind=2)
    drawn = figures.slowest_groups(slowest)
    messages, seconds = drawn.figure.data
    assert (list(messages.x), list(seconds.x)) == ([1.0, 0.5], [0.5, 1.0])
    assert labels(drawn)[:2] == ["slow · orders", "100 · 30 s"]


def test_late_ones_are_bars_of_their_own() -> None:
    waiting = Pending({"pending": 4}, 60, (*slices(3, is_late=True), *slices(1)))
    late, due = figures.pending(waiting).figure.data
    assert (late.name, list(late.y), late.marker.color) == (figures.LATE, [3], colour("late"))
    assert (due.name, list(due.y), due.width) == ("pending", [1], 54_000)
    assert list(due.x) == ["2026-11-22 12:00:30.000"]  # the middle of the minute
    assert len(figures.pending(Pending({"pending": 1}, 60, slices(1))).figure.data) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>&'\"", "&lt;b&gt;&amp;&#x27;&quot;"),
        ("a\x00\u202eb\n", "a�\N{REPLACEMENT CHARACTER}b�"),
        ("x" * 34, "x" * 34),
        ("x" * 17 + "-" * 9 + "y" * 17, "x" * 17 + "…" + "y" * 16),
    ],
)
def test_foreign_text(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_no_foreign_text_stands_in_a_template() -> None:
    name = "%{x}<a href='https://example.org'>"
    timeline = Timeline(60, (commits(name, 1), commits(BROKER, 1)))
    made = [figures.throughput(timeline), figures.waits(timeline)]
    made.append(figures.slowest_groups(SlowestGroups((group(name, 1, 1.0),), of=1, behind=1)))
    for drawn in made:
        assert "<a" not in drawn.figure.to_json()
        assert all("{x}" not in (trace.hovertemplate or "") for trace in drawn.figure.data)
