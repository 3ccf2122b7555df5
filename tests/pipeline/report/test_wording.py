"""The state of a log in words: what a reader sees first."""

from __future__ import annotations

import pytest

from pipeline.report.facts import Facts, Flaw
from pipeline.report.wording import Level, headlines, span, summary
from tests.pipeline.report.samples import BROKER, SHOP, bare, before, flawed, log


def test_a_whole_log_is_said_to_be_complete_through_offset_and_time() -> None:
    (said,) = headlines(bare(log()))
    assert said.level is Level.GOOD
    assert said.sentence == "Complete through offset 10,000, stored 2026-11-22 11:59:00 UTC."
    assert said.details == (
        "Last commit 59 s before this report; its newest record was then 400 ms old.",
        "No gaps.",
    )


def test_a_gap_comes_first_with_its_size_and_what_is_whole_before_it() -> None:
    gap = flawed(Flaw.MISSING, 2500, 5000, all_of_log=2, units_of_log=3_000_000)
    (said,) = headlines(bare(log(complete_to=2500, complete_through=before(hours=1)), flaws=(gap,)))
    assert said.level is Level.BAD
    assert said.sentence == (
        "2 gaps, 3.0 MB missing. "
        "Complete through offset 2,500, stored 2026-11-22 11:00:00 UTC; the log goes on to 10,000."
    )
    assert "No gaps." not in said.details


def test_offsets_of_dister_are_ids() -> None:
    (said,) = headlines(bare(log(SHOP), flaws=(flawed(Flaw.MISSING, 5, 8, SHOP),)))
    assert said.sentence.startswith("1 gap, 3 ids missing.")


@pytest.mark.parametrize(
    ("flaw", "words"),
    [(Flaw.ACCEPTED, "1 gap, 100 B, accepted as lost."), (Flaw.DELETED, "100 B deleted by retention.")],
)
def test_what_somebody_wanted_to_be_missing_is_said_and_no_alarm(flaw: Flaw, words: str) -> None:
    (said,) = headlines(bare(log(), flaws=(flawed(flaw, 0, 100),)))
    assert said.level is Level.GOOD
    assert words in said.details
    assert "No gaps." not in said.details


def test_an_open_incident_is_an_alarm_also_where_nothing_is_missing() -> None:
    (said,) = headlines(bare(log(open_incidents=2)))
    assert said.level is Level.BAD
    assert said.sentence.startswith("Complete through")
    assert said.details[0] == "2 open incidents."


def test_a_log_whose_records_are_all_deleted() -> None:
    nothing = log(complete_to=None, complete_through=None, newest_waited_s=None)
    (said,) = headlines(bare(nothing, flaws=(flawed(Flaw.DELETED, 0, 10_000),)))
    assert said.sentence == "Nothing of it is there now."


def test_what_needs_attention_stands_first_and_what_has_nothing_yet_is_named() -> None:
    gap = flawed(Flaw.MISSING, 1, 2, "rocketmq/z")
    facts = bare(log(BROKER), log("rocketmq/z"), flaws=(gap,), unseen=("rocketmq/m",))
    assert [(one.log_id, one.level) for one in headlines(facts)] == [
        ("rocketmq/z", Level.BAD),
        ("rocketmq/m", Level.UNSEEN),
        (BROKER, Level.GOOD),
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (bare(), (Level.UNSEEN, "Nothing is replicated yet.")),
        (bare(log()), (Level.GOOD, "The log is complete.")),
        (bare(log(), log(SHOP)), (Level.GOOD, "All 2 logs are complete.")),
        (bare(log(open_incidents=1), log(SHOP)), (Level.BAD, "1 of 2 logs needs attention.")),
        (bare(log(), unseen=(SHOP,)), (Level.UNSEEN, "1 log is complete; nothing is replicated yet of 1.")),
    ],
)
def test_all_in_one_sentence(facts: Facts, said: tuple[Level, str]) -> None:
    assert summary(facts) == said


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "–"), (0.0, "0 ms"), (0.0421, "42 ms"), (1.25, "1.2 s"), (5, "5 s"), (90, "1 min 30 s")],
)
def test_short_spans_keep_their_milliseconds(seconds: float | None, words: str) -> None:
    assert span(seconds) == words
