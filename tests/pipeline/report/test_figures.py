"""Figures over time and bars: each number is where it belongs, what is missing is red and visible however small it
is, colours are legible, and foreign text is only text.
"""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.report.drawing import figures
from pipeline.report.drawing.coverage_figures import ROWS, over_offsets, over_time
from pipeline.report.drawing.plotting import PALETTE, SERIES, Drawn, Key, colour, for_dark_screens, plain
from pipeline.report.facts import Flaw, Pending, SlowestGroups, Timeline, TopicFacts, TopTopics
from tests.pipeline.report.samples import BROKER, SHOP, bare, before, commits, flawed, group, log, slices

_TEXTS = [("ink", "card", 7.0), ("muted", "card", 4.5), ("ink", "page", 7.0), ("muted", "page", 4.5)]
_MARKS = [(name, "card", 3.0) for name in (*SERIES, "good", "bad", "late")]


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


def test_foreign_text() -> None:
    told = {"<b>&'\"": "&lt;b&gt;&amp;&#x27;&quot;", "a\x00\u202eb\n": "a�\N{REPLACEMENT CHARACTER}b�"}
    told |= {"x" * 34: "x" * 34, "x" * 17 + "-" * 9 + "y" * 17: "x" * 17 + "…" + "y" * 16}
    assert {text: plain(text) for text in told} == told


def test_no_foreign_text_stands_in_a_template() -> None:
    name = "%{x}<a href='https://example.org'>"
    timeline = Timeline(60, (commits(name, 1), commits(BROKER, 1)))
    made = [figures.throughput(timeline), figures.waits(timeline)]
    made.append(figures.slowest_groups(SlowestGroups((group(name, 1, 1.0),), of=1, behind=1)))
    made.append(hovered := over_offsets(bare(log(), flaws=(flawed(Flaw.MISSING, 2500, 5000, why=name),))))
    assert "2,500 – 5,000, 2.5 kB" in trace(hovered, "missing").hovertext[0]
    for drawn in made:
        assert "<a" not in drawn.figure.to_json()
        assert all("{x}" not in (trace.hovertemplate or "") for trace in drawn.figure.data)


def trace(drawn: Drawn, name: str) -> Any:
    (found,) = (one for one in drawn.figure.data if one.name == name)
    return found


def test_by_offset_in_hundredths_of_what_the_replica_ever_held() -> None:
    facts = bare(log(begin=2000), log(SHOP), flaws=(flawed(Flaw.MISSING, 4000, 8000),))
    drawn = over_offsets(facts)
    whole, missing, marks = trace(drawn, "there"), trace(drawn, "missing"), trace(drawn, "marks")
    assert (list(whole.base), list(whole.x)) == ([0, 0], [100, 100])
    assert (list(missing.y), list(missing.base), list(missing.x)) == ([0], [25], [50])  # what is bad stands first
    assert list(marks.x) == [50]
    assert missing.marker.color == marks.marker.color == colour("bad")
    assert [key.name for key in drawn.legend] == ["there", "missing"]
    assert [one.text for one in drawn.figure.layout.annotations][:2] == [BROKER, "2,000 – 10,000"]


def test_by_time_between_the_messages_around_it() -> None:
    facts = bare(
        log(), flaws=(flawed(Flaw.MISSING, 0, 1, stored_after=before(minutes=51), stored_before=before(minutes=41)),)
    )
    drawn = over_time(facts)
    whole, missing, marks = trace(drawn, "there"), trace(drawn, "missing"), trace(drawn, "marks")
    assert (list(whole.base), list(whole.x)) == (["2026-11-22 10:19:00.000"], [100 * 60_000])
    assert (list(missing.base), list(missing.x)) == (["2026-11-22 11:09:00.000"], [10 * 60_000])
    assert list(marks.x) == ["2026-11-22 11:14:00.000"]


@pytest.mark.parametrize(
    ("flaw", "tint", "pattern", "is_marked"),
    [
        (Flaw.MISSING, "bad", "", True),
        (Flaw.DOUBTFUL, "bad", "x", True),
        (Flaw.ACCEPTED, "bad", "/", False),
        (Flaw.DELETED, "deleted", "", False),
    ],
)
def test_each_flaw_has_a_look(flaw: Flaw, tint: str, pattern: str, is_marked: bool) -> None:
    drawn = over_offsets(bare(log(), flaws=(flawed(flaw, 0, 5000),)))
    found = trace(drawn, flaw.value)
    assert (found.marker.color, found.marker.pattern.shape) == (colour(tint), pattern)
    assert ("marks" in [one.name for one in drawn.figure.data]) is is_marked


def test_what_lies_beyond_the_log_is_cut_at_its_end() -> None:
    drawn = over_offsets(bare(log(), flaws=(flawed(Flaw.DOUBTFUL, 9000, 90_000),)))
    assert (list(trace(drawn, "open incident").base), list(trace(drawn, "open incident").x)) == ([90], [10])


def test_without_a_time_there_is_no_bar_over_time_and_one_neighbour_is_enough_for_a_mark() -> None:
    unknown = flawed(Flaw.MISSING, 1, 2, stored_after=None, stored_before=None)
    facts = bare(log(), log(SHOP, oldest_stored=None, newest_stored=None), flaws=(unknown,))
    assert [one.name for one in over_time(facts).figure.data] == ["there"]
    assert len(over_time(facts).figure.layout.annotations) == 2
    half_known = replace(facts, flaws=(replace(unknown, stored_after=before(minutes=11)),))
    assert list(trace(over_time(half_known), "marks").x) == ["2026-11-22 11:49:00.000"]


def test_of_very_many_logs_the_worst_are_drawn() -> None:
    logs = [log(f"rocketmq/b{number:03}") for number in range(ROWS + 10)]
    facts = bare(*logs, flaws=(flawed(Flaw.MISSING, 0, 10, logs[-1].log_id),))
    drawn = over_offsets(facts)
    assert len(trace(drawn, "there").y) == ROWS
    assert list(trace(drawn, "missing").y) == [0]


def test_a_topic_is_one_row_in_which_a_flaw_lies_where_it_lies_in_its_partition() -> None:
    parts = [log(f"kafka/prod/orders/{number}", end=1000 * (number + 1)) for number in range(100)]
    drawn = over_offsets(bare(*parts, log(), flaws=(flawed(Flaw.MISSING, 500, 1000, parts[1].log_id),)))
    assert len(trace(drawn, "there").y) == 2
    missing = trace(drawn, "missing")
    assert (list(missing.y), list(missing.base), list(missing.x)) == ([0], [25], [25])
    shown = {one.text for one in drawn.figure.layout.annotations}
    assert any("100 partitions" in text for text in shown)
    assert len(trace(over_time(bare(*parts)), "there").y) == 1


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
