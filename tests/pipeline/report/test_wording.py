"""The state of a log in words: what a reader sees first."""

from typing import Any

import pytest

from pipeline.report.drawing.wording import Level, headlines, span, summary
from pipeline.report.facts import Facts, Flaw, LogFacts, RunFacts
from tests.pipeline.report.samples import BROKER, NOW, SHOP, bare, before, flawed, log


def test_a_whole_log_is_said_to_be_complete_through_offset_and_time() -> None:
    (said,) = headlines(bare(log()))
    assert said.level is Level.GOOD
    assert said.sentence == "Complete through offset 10,000, stored 2026-11-22 11:59:00 UTC."
    assert said.details == ("Last commit 59 s before this report; its newest record was then 400 ms old.", "No gaps.")


def test_a_gap_comes_first_with_its_size_and_what_is_whole_before_it() -> None:
    gap = flawed(Flaw.MISSING, 2500, 5000, all_of_log=2, units_of_log=3_000_000)
    (said,) = headlines(bare(log(complete_to=2500, complete_through=before(hours=1)), flaws=(gap,)))
    assert said.level is Level.BAD
    assert said.sentence == (
        "2 gaps, 3.0 MB missing. "
        "Complete through offset 2,500, stored 2026-11-22 11:00:00 UTC; the log goes on to 10,000."
    )
    assert "No gaps." not in said.details


NOTHING_THERE: dict[str, Any] = {"complete_to": None, "complete_through": None, "newest_waited_s": None}


@pytest.mark.parametrize(
    ("facts", "level", "sentence", "detail"),
    [
        (bare(log(SHOP), flaws=(flawed(Flaw.MISSING, 5, 8, SHOP),)), Level.BAD, "1 gap, 3 ids missing.", ""),
        (bare(log(), flaws=(flawed(Flaw.ACCEPTED, 0, 100),)), Level.GOOD, "Comp", "1 gap, 100 B, accepted as lost."),
        (bare(log(), flaws=(flawed(Flaw.DELETED, 0, 100),)), Level.GOOD, "Comp", "100 B deleted by retention."),
        (bare(log(open_incidents=2)), Level.BAD, "Complete through", "2 open incidents."),
        (bare(log(**NOTHING_THERE), flaws=(flawed(Flaw.DELETED, 0, 10_000),)), Level.GOOD,
         "Nothing of it is there now.", ""),
    ],
)  # fmt: skip
def test_what_is_no_whole_log(facts: Facts, level: Level, sentence: str, detail: str) -> None:
    (said,) = headlines(facts)
    assert said.level is level
    assert said.sentence.startswith(sentence)
    assert detail in (*said.details, "")
    assert "No gaps." not in said.details or not facts.flaws


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
        (bare(*(log(f"kafka/prod/orders/{at}") for at in range(2))), (Level.GOOD, "The topic is complete.")),
        (bare(log(), log(SHOP)), (Level.GOOD, "All 2 logs are complete.")),
        (bare(log(open_incidents=1), log(SHOP)), (Level.BAD, "1 of 2 logs needs attention.")),
        (bare(log(), unseen=(SHOP,)), (Level.UNSEEN, "1 log is complete; nothing is replicated yet of 1.")),
    ],
)
def test_all_in_one_sentence(facts: Facts, said: tuple[Level, str]) -> None:
    assert summary(facts) == said


def test_short_spans_keep_their_milliseconds() -> None:
    said = {None: "–", 0.0: "0 ms", 0.0421: "42 ms", 1.25: "1.2 s", 5: "5 s", 90: "1 min 30 s"}
    assert {seconds: span(seconds) for seconds in said} == said


def partition(number: int, **facts: Any) -> LogFacts:
    return log(f"kafka/prod/orders/{number}", **facts)


def test_the_partitions_of_a_topic_that_need_attention_stand_first() -> None:
    gap = flawed(Flaw.MISSING, 1, 2, "kafka/prod/orders/2")
    facts = bare(partition(0), partition(1), partition(2), log(), flaws=(gap,))
    orders, _ = headlines(facts)
    assert orders.sentence == "1 of 3 partitions needs attention."
    assert [one.log_id[-1] for one in orders.parts] == ["2", "0", "1"]
    assert summary(facts) == (Level.BAD, "1 of 2 logs and topics needs attention.")


def test_a_topic_of_which_partitions_are_there_is_not_unseen() -> None:
    facts = bare(partition(0), unseen=("kafka/prod/orders/1", "kafka/prod/new"))
    new, orders = headlines(facts)
    assert [(new.log_id, new.level), (orders.log_id, orders.level)] == [
        ("kafka/prod/new", Level.UNSEEN),
        ("kafka/prod/orders", Level.GOOD),
    ]
    assert [one.level for one in orders.parts] == [Level.GOOD, Level.UNSEEN]
    assert "Nothing is replicated yet of 1 more partition." in orders.details
    assert summary(facts) == (Level.UNSEEN, "1 topic is complete; nothing is replicated yet of 1.")


def run(phase: str, **facts: Any) -> RunFacts:
    given: dict[str, Any] = {"subject": BROKER, "is_live": False, "at": before(hours=3)}
    return RunFacts(phase=phase, **{**given, **facts})


OLD = "Nobody replicates it since 2026-11-22 09:00:00 UTC, 3 h before this report."


@pytest.mark.parametrize(
    ("said_last", "sentence"),
    [
        (run("stopped"), OLD),
        (run("done"), OLD),
        (run("running"), OLD),  # it was killed
        (run("failed", at=before(minutes=1), error="another master"), "The last job failed: another master"),
        (run("waiting", is_live=True, error="no route"), "The job waits: no route"),
        (run("running", is_live=True, lag_s=7200.0), "It is 2 h behind its master."),
    ],
)  # fmt: skip
def test_what_is_complete_and_old_is_as_loud_as_what_is_complete(said_last: RunFacts, sentence: str) -> None:
    facts = bare(log(last_committed=before(hours=3)), runs=(said_last,))
    (said,) = headlines(facts)
    assert (said.level, said.sentence) == (Level.STALE, sentence)
    assert said.details[0].startswith("Complete through offset 10,000")
    assert summary(facts) == (Level.STALE, f"The log may have gone on: {sentence[0].lower()}{sentence[1:]}")
    assert summary(bare(log(last_committed=before(hours=3)), log(SHOP), runs=(said_last,))) == (
        Level.STALE,
        "1 of 2 logs is not replicated any more, or late.",
    )


@pytest.mark.parametrize(
    "said_last", [run("running", is_live=True, lag_s=1.0), run("done", at=before(minutes=50)), run("stopped", at=NOW)]
)
def test_a_log_without_traffic_is_not_old(said_last: RunFacts) -> None:
    """Where no job is known the last commit counts."""
    assert summary(bare(log(last_committed=before(hours=30)), runs=(said_last,)))[0] is Level.GOOD
    assert summary(bare(log(last_committed=before(hours=3))))[0] is Level.STALE


def test_a_gap_is_louder_than_age_which_is_said_all_the_same() -> None:
    gap = flawed(Flaw.MISSING, 2500, 5000)
    (said,) = headlines(bare(log(complete_to=2500), flaws=(gap,), runs=(run("stopped"),)))
    assert said.level is Level.BAD
    assert said.sentence.startswith("1 gap")
    assert said.details[0] == OLD
