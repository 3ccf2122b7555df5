"""Facts made by hand, small enough to know what has to be drawn of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from pipeline.report.facts import (
    Commits,
    Facts,
    Flaw,
    FlawedRange,
    GroupLag,
    IncidentFacts,
    LogFacts,
    Pending,
    ReportedIncidents,
    Slice,
    SlowestGroups,
    Timeline,
    TopicFacts,
    TopTopics,
    Waiting,
)

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
BROKER = "rocketmq/broker-a"
SHOP = "dister/shop"
INJECTED = "<script>window.injected = true</script>"


def no_session(_: int) -> SparkSession:
    raise AssertionError("nothing here takes a session")


def before(**span: float) -> datetime:
    """A time so long before NOW."""
    return NOW - timedelta(**span)


def log(log_id: str = BROKER, **facts: Any) -> LogFacts:
    """A whole log of 10,000 offsets, of which the last was stored a minute ago."""
    whole = {
        "records": 100,
        "bytes": 10_000,
        "begin": 0,
        "end": 10_000,
        "complete_to": 10_000,
        "complete_through": before(minutes=1),
        "open_incidents": 0,
        "oldest_stored": before(minutes=101),
        "newest_stored": before(minutes=1),
        "last_committed": before(seconds=59),
        "newest_waited_s": 0.4,
        "waited_p50_s": 0.5,
        "waited_p99_s": 2.0,
    }
    return LogFacts(log_id=log_id, **{**whole, **facts})


def flawed(flaw: Flaw, start: int, end: int, log_id: str = BROKER, **facts: Any) -> FlawedRange:
    """Between messages as `log` has them, one after the other at equal distances."""
    given = {
        "stored_after": before(minutes=101 - start / 100),
        "stored_before": before(minutes=101 - end / 100),
        "why": None,
        "all_of_log": 1,
        "units_of_log": end - start,
    }
    return FlawedRange(log_id=log_id, flaw=flaw, start=start, end=end, **{**given, **facts})


def commits(log_id: str | None, minutes_ago: int, records: int = 60, **facts: Any) -> Commits:
    given = {"bytes": 1000 * records, "waited_p50_s": 0.5, "waited_p99_s": 2.0}
    return Commits(log_id=log_id, at=before(minutes=minutes_ago), records=records, **{**given, **facts})


def group(name: str, messages: int, seconds: float | None) -> GroupLag:
    return GroupLag(
        log_id=BROKER, consumer_group=name, topic="orders", queues=4, messages_behind=messages, seconds_behind=seconds
    )


def waiting(source: str, count: int) -> Waiting:
    return Waiting(
        log_id=BROKER, source=source, topic="orders", count=count, first=before(hours=1), last=before(minutes=3)
    )


def slices(*counts: int, is_late: bool = False, start: datetime = NOW) -> tuple[Slice, ...]:
    """One a minute."""
    return tuple(
        Slice(at=start + timedelta(minutes=number), count=count, is_late=is_late) for number, count in enumerate(counts)
    )


def incident(**facts: Any) -> IncidentFacts:
    given = {
        "log_id": BROKER,
        "id": "0123456789ab",
        "condition": "below_minimum",
        "start": 2500,
        "end": 5000,
        "cause": "the master no longer holds this offset",
        "action": "skipped",
        "detected_at": before(hours=1),
        "state": "open",
        "note": None,
    }
    return IncidentFacts(**{**given, **facts})


def bare(*logs: LogFacts, **facts: Any) -> Facts:
    """A replica of these logs, and nothing else."""
    return Facts(warehouse="/data/lake", version=42, made_at=NOW, logs=logs, **facts)


def whole() -> Facts:
    """Something of everything: a broker's log that lacks its second quarter, and a whole one of dister."""
    return replace(
        bare(log(complete_to=2500, open_incidents=1), log(SHOP, begin=100, waited_p50_s=0.1)),
        unseen=("rocketmq/new",),
        timeline=Timeline(60, tuple(commits(log_id, ago) for log_id in (BROKER, SHOP) for ago in (9, 8, 5))),
        flaws=(
            flawed(Flaw.MISSING, 2500, 5000, why=f"below_minimum: {INJECTED}"),
            flawed(Flaw.ACCEPTED, 7000, 7500),
            flawed(Flaw.DELETED, 0, 1000),
        ),
        topics=TopTopics((topic(INJECTED, 30), topic("orders", 10)), of=2, messages=40, bytes=4000),
        groups=SlowestGroups((group(INJECTED, 12, 90.0), group("mail", 0, 0.0)), of=2, behind=1),
        transactions=Pending(
            {"committed": 7, "rolled_back": 2, "pending": 3, "given_up": 0},
            60,
            slices(1, 2, start=before(hours=1)),
            (waiting("PID_pay", 3),),
            1,
        ),
        delays=Pending(
            {"delivered": 4, "pending": 5, "cancelled": 0},
            60,
            (*slices(2, is_late=True, start=before(minutes=2)), *slices(1, 1, 1)),
            (waiting("timer", 5),),
            1,
        ),
        incidents=ReportedIncidents((incident(cause=INJECTED),), of=1, open=1),
    )


def topic(name: str, messages: int) -> TopicFacts:
    return TopicFacts(topic=name, messages=messages, bytes=100 * messages)
