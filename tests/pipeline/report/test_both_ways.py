"""What a report reads is what the rows add up to, counted plainly; and what it does not ask has no answer."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.report.facts import Facts, Flaw, LogFacts, Pending, SlowestGroups, TopTopics
from pipeline.report.finding import questions
from pipeline.report.finding.queries import _Questions, read_facts
from pipeline.report.finding.questions import DELAY_TOPICS, TRANSACTION_TOPICS, worth_asking
from pipeline.report.finding.ranges import width_s
from sinks.delta.delta_log import newest
from sinks.tables import INCIDENTS, KAFKA_LOG, LEDGER, LOG, TableSpec, metadata_table
from sinks.views.definition import view
from sources.metadata import CONSUMER_OFFSETS, KAFKA_PARTITIONS
from tests.pipeline.report.samples import no_session
from tests.sinks.views.lake import Row, version, write
from tests.sinks.views.made_logs import message

Rows = list[Row]
NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
ALL = frozenset({"topics", "groups", "transactions", "delays"})
NOTHING = {"topics": TopTopics(), "groups": SlowestGroups(), "transactions": Pending(), "delays": Pending()}


def in_two_files(lake: Path, spec: TableSpec, rows: Rows) -> None:
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        write(lake, spec, part)


def at(chance: random.Random, *, days: int = 3) -> datetime:
    return NOW - timedelta(microseconds=chance.randrange(days * 86_400 * 1_000_000))


def ranges(chance: random.Random, log_id: str) -> Iterator[Row]:
    """In any order, next to each other or apart or over each other, some deleted, some without a message."""
    for start in chance.sample(range(0, 4000, 50), chance.randrange(1, 12)):
        size, has_times = chance.choice((50, 50, 50, 100, 120, 700)), chance.random() < 0.8
        first, last = sorted((at(chance), at(chance)))
        yield {
            "log_id": log_id,
            "epoch": chance.randrange(2),
            "start": start,
            "end": start + size,
            "records": chance.randrange(9),
            "bytes": size,
            "checksum": "sha256:00",
            "first_store_timestamp": first if has_times else None,
            "last_store_timestamp": last if has_times else None,
            "committed_at": at(chance),
            "origin": chance.choice(("stream", "stream", "stream", "backfill", "repair")),
            "deleted_at": at(chance) if chance.random() < 0.3 else None,
        }


def incidents(chance: random.Random, log_id: str) -> Iterator[Row]:
    for number in range(chance.randrange(4)):
        start, state = chance.randrange(0, 4500, 50), chance.choice(("open", "open", "healed", "closed"))
        yield {
            "log_id": log_id,
            "epoch": 0,
            "id": f"{log_id}-{number}",
            "condition": "gap",
            "start": start,
            "end": start + chance.choice((50, 200, 1500)),
            "cause": state,  # of several reasons of one state any is given
            "action": chance.choice(("skipped", "quarantined", "reported", "repaired")),
            "detected_at": at(chance),
            "state": state,
            "note": chance.choice((None, "known")),
        }


LOG_IDS = [
    master.format(number)
    for master in ("rocketmq/broker-{}", "dister/shop-{}", "kafka/prod/orders/{}", "rocketmq/ßroker-{}")
    for number in range(40)
]


@pytest.fixture(scope="module")
def made() -> tuple[Rows, Rows]:
    """The ledger and the incidents of logs of all masters, with whatever these can have; of each log many rows."""
    chance = random.Random(29)
    ledger = [row for log_id in LOG_IDS for row in ranges(chance, log_id)]
    return ledger, [row for log_id in LOG_IDS for row in incidents(chance, log_id)] + list(lost_alone())


def lost_alone() -> Iterator[Row]:
    """Of a log of which the ledger has nothing yet."""
    common = {"log_id": "rocketmq/lost", "epoch": 0, "condition": "gap", "cause": "open", "state": "open"}
    yield common | {"id": "a", "start": 0, "end": 100, "action": "skipped", "detected_at": NOW, "note": None}
    yield common | {"id": "b", "start": 300, "end": 400, "action": "reported", "detected_at": NOW, "note": None}


@pytest.fixture(scope="module")
def lake(made: tuple[Rows, Rows], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """None of the logs has a record."""
    lake = tmp_path_factory.mktemp("lake")
    for spec, rows in zip((LOG, LEDGER, INCIDENTS), ([], *made), strict=True):
        in_two_files(lake, spec, rows)
    return lake


@pytest.fixture(scope="module")
def found(lake: Path) -> Facts:
    return read_facts(str(lake), [], no_session)


def of_log(rows: Rows, log_id: str) -> Rows:
    return [row for row in rows if row["log_id"] == log_id]


STEP = 10
"""All ranges begin and end at a multiple of it."""


def plain_holes(ledger: Rows, incidents: Rows) -> Iterator[tuple[Flaw, int, int]]:
    """Step by step, what covers it."""
    there = [one for one in incidents if one["state"] != "healed"]
    of_the_log = [*ledger, *(one for one in there if one["action"] != "reported")]

    def flaw_at(at: int) -> Flaw | None:
        kinds = {one.get("state", "deleted" if one.get("deleted_at") else "live") for one in covering(at)}
        for kind, flaw in (
            ("live", None),
            ("open", Flaw.MISSING),
            ("closed", Flaw.ACCEPTED),
            ("deleted", Flaw.DELETED),
        ):
            if kind in kinds:
                return flaw
        return Flaw.MISSING

    def covering(at: int) -> Rows:
        return [one for one in (*ledger, *there) if one["start"] <= at < one["end"]]

    steps = range(min(one["start"] for one in of_the_log), max(one["end"] for one in of_the_log), STEP)
    for flaw, pieces in groupby(steps, key=flaw_at):
        first, *rest = pieces
        if flaw is not None:
            yield flaw, first, (rest or [first])[-1] + STEP


def test_holes_are_what_nothing_live_covers(found: Facts, made: tuple[Rows, Rows]) -> None:
    holes = [one for one in found.flaws if one.flaw is not Flaw.DOUBTFUL]
    for log_id in (*LOG_IDS, "rocketmq/lost"):
        expected = list(plain_holes(*(of_log(rows, log_id) for rows in made)))
        ours = [one for one in holes if one.log_id == log_id]
        assert [(one.flaw, one.start, one.end) for one in ours] == expected, log_id
        for one in ours:
            of_kind = [end - start for flaw, start, end in expected if flaw is one.flaw]
            assert (one.all_of_log, one.units_of_log) == (len(of_kind), sum(of_kind))
    assert {one.flaw for one in holes} == {Flaw.MISSING, Flaw.ACCEPTED, Flaw.DELETED}
    assert {one.log_id for one in found.flaws} - {one.log_id for one in found.logs} == {"rocketmq/lost"}


def known(rows: Rows, name: str) -> list[datetime]:
    return [row[name] for row in rows if row[name] is not None]


def greatest(rows: Rows, name: str) -> datetime | None:
    return max(known(rows, name), default=None)


def waits_s(rows: Rows, since: str) -> list[float]:
    """How long what the live job wrote had waited."""
    counts = [row for row in rows if row["origin"] == "stream" and row[since] is not None]
    return [max(0.0, (row["committed_at"] - row[since]).total_seconds()) for row in counts]


def percentile(values: list[float], share: float) -> float | None:
    return next((one for at, one in enumerate(sorted(values), 1) if at >= share * len(values)), None)


def plain_log(log_id: str, ledger: Rows, incidents: Rows) -> LogFacts:
    live = sorted((row for row in ledger if not row["deleted_at"]), key=lambda row: row["start"])
    lost = [one for one in incidents if one["state"] != "healed" and one["action"] != "reported"]
    whole: Rows = []
    for row in live:
        if not whole or row["start"] <= max(one["end"] for one in whole):
            whole.append(row)
    waited = waits_s(ledger, "first_store_timestamp")
    newest_waited = waits_s(sorted(ledger, key=lambda row: row["start"]), "last_store_timestamp")
    return LogFacts(
        log_id=log_id,
        records=sum(row["records"] for row in live),
        bytes=sum(row["bytes"] for row in live),
        begin=min(row["start"] for row in (*ledger, *lost)),
        end=max(row["end"] for row in (*ledger, *lost)),
        complete_to=max((row["end"] for row in whole), default=None),
        complete_through=greatest(whole, "last_store_timestamp"),
        open_incidents=sum(one["state"] == "open" for one in incidents),
        oldest_stored=min(known(ledger, "first_store_timestamp"), default=None),
        newest_stored=greatest(ledger, "last_store_timestamp"),
        last_committed=greatest(ledger, "committed_at"),
        newest_waited_s=newest_waited[-1] if newest_waited else None,
        waited_p50_s=percentile(waited, 0.5),
        waited_p99_s=percentile(waited, 0.99),
    )


def test_each_log_is_what_its_ranges_add_up_to(found: Facts, made: tuple[Rows, Rows]) -> None:
    plain = (plain_log(log_id, *(of_log(rows, log_id) for rows in made)) for log_id in sorted(LOG_IDS))
    assert found.logs == tuple(plain)


def test_commits_are_summed_by_log_or_topic_and_span(found: Facts, made: tuple[Rows, Rows]) -> None:
    """The topic's partitions together; of so many logs most are the rest."""
    ledger, _ = made
    named = {one.log_id for one in found.timeline.commits} - {None}
    assert "kafka/prod/orders" in named
    spans: dict[tuple[str | None, int], Rows] = {}
    for row in ledger:
        subject = "kafka/prod/orders" if row["log_id"].startswith("kafka/") else row["log_id"]
        at_s = int(row["committed_at"].timestamp() // found.timeline.width_s * found.timeline.width_s)
        spans.setdefault((subject if subject in named else None, at_s), []).append(row)
    plain = {
        key: (sum(row["records"] for row in rows), sum(row["bytes"] for row in rows), percentile(waited, 0.5))
        for key, rows in spans.items()
        for waited in [waits_s(rows, "first_store_timestamp")]
    }
    assert plain == {
        (one.log_id, round(one.at.timestamp())): (one.records, one.bytes, one.waited_p50_s)
        for one in found.timeline.commits
    }


def worth(lake: Path) -> frozenset[str]:
    log, kafka_log = (newest(spec.path(str(lake))) for spec in (LOG, KAFKA_LOG))
    return worth_asking(str(lake), log, kafka_log)


@pytest.mark.spark
@pytest.mark.nightly
def test_what_is_not_worth_asking_has_no_answer(spark: SparkSession, lake: Path, found: Facts) -> None:
    assert worth(lake) == frozenset()
    for name, expected in _Questions.opened(spark.newSession(), str(lake), ALL).all(lambda _: None).items():
        assert getattr(found, name) == expected == NOTHING[name]


@pytest.mark.parametrize("spec", [LOG, KAFKA_LOG], ids=lambda spec: spec.name)
def test_a_replica_of_no_broker_takes_no_session(tmp_path: Path, spec: TableSpec) -> None:
    in_two_files(tmp_path, spec, [{"log_id": "dister/shop", "offset": 1, "kind": "entry"}] if spec is LOG else [])
    found = read_facts(str(tmp_path), ["rocketmq/new"], no_session)
    assert {name: getattr(found, name) for name in NOTHING} == NOTHING
    assert (found.logs, found.unseen, found.version) == ((), ("rocketmq/new",), 1)
    assert not found.has_metadata


def logged(lake: Path, *rows: dict[str, Any]) -> frozenset[str]:
    in_two_files(lake, LOG, list(rows))
    return worth(lake)


PARKED = [(name, {"transactions"}) for name in TRANSACTION_TOPICS] + [(name, {"delays"}) for name in DELAY_TOPICS]


@pytest.mark.parametrize(("topic", "more"), PARKED)
@pytest.mark.parametrize("most", [0, 500], ids=["by statistics", "by a look"])
def test_a_topic_in_which_messages_wait_is_reason_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, more: set[str], most: int
) -> None:
    monkeypatch.setattr(questions, "_MOST_FILES", most)
    assert logged(tmp_path, message(0, topic="zebra"), message(1, topic="zebra")) == {"topics"}
    assert logged(tmp_path, message(2, topic="zebra"), message(3, topic=topic)) == {"topics"} | more


def test_a_prepared_message_is_reason_to_ask_for_transactions(tmp_path: Path) -> None:
    assert logged(tmp_path, message(0, sys_flag=1), message(1, sys_flag=8)) == {"topics"}
    assert logged(tmp_path, message(2, sys_flag=5), message(3, sys_flag=1)) == {"topics", "transactions"}


def test_of_very_many_files_what_statistics_do_not_rule_out_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [message(number, topic=name) for number, name in enumerate(("A", "zebra", "A", "zebra"))]
    assert logged(tmp_path, *rows) == {"topics"}
    monkeypatch.setattr(questions, "_MOST_FILES", 0)
    assert worth(tmp_path) == {"topics", "transactions", "delays"}


def test_an_offset_of_a_group_that_is_current_is_reason_to_ask(tmp_path: Path) -> None:
    assert "groups" not in logged(tmp_path, message(0), message(1))
    for is_current in (False, True):
        offset = version("rocketmq/broker-a", NOW, {"topic": "orders"}, None if is_current else NOW)
        write(tmp_path, metadata_table(CONSUMER_OFFSETS), [offset])
        assert ("groups" in worth(tmp_path)) == is_current


def test_records_of_a_topic_are_reason_to_ask_for_topics_and_with_partitions_for_groups(tmp_path: Path) -> None:
    in_two_files(tmp_path, KAFKA_LOG, [{"log_id": "kafka/prod/orders/0", "offset": at} for at in range(2)])
    assert worth(tmp_path) == {"topics"}
    write(tmp_path, metadata_table(KAFKA_PARTITIONS), [version("kafka/prod/orders/0", NOW, {"partition": 0})])
    assert worth(tmp_path) == {"topics", "groups"}


@pytest.mark.parametrize(("name", "topics"), [("transactions", TRANSACTION_TOPICS), ("delayed_messages", DELAY_TOPICS)])
def test_the_topics_are_those_of_the_views(name: str, topics: tuple[str, ...]) -> None:
    assert all(f"'{topic}'" in view(name).query for topic in topics)


@pytest.mark.parametrize(
    ("name", "nothing"), [("groups", SlowestGroups()), ("transactions", Pending()), ("delays", Pending())]
)
def test_no_rows_are_a_figure_of_nothing(name: str, nothing: object) -> None:
    spark: Any = Mock()
    spark.sql.return_value.toArrow.return_value = pa.table({"state": pa.array([], pa.string())})
    told: list[str] = []
    assert _Questions(spark, [name]).all(told.append) == {name: nothing}
    assert told == ["1 of 1 questions are answered"]
    spark.interruptAll.assert_not_called()


def test_a_question_that_fails_ends_the_others() -> None:
    spark: Any = Mock()
    spark.sql.side_effect = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        _Questions(spark, ["groups"]).all(lambda text: None)
    spark.interruptAll.assert_called_once_with()


@pytest.mark.parametrize(
    ("period_s", "width"),
    [
        (0, 1),
        (119, 1),
        (120, 2),
        (3600, 60),
        (86_400, 900),
        (365 * 86_400, 7 * 86_400),
        (200 * 364 * 86_400, 364 * 86_400),
    ],
)
def test_the_shortest_that_fits_or_the_longest(period_s: int, width: int) -> None:
    assert width_s(NOW - timedelta(seconds=period_s), NOW, 120) == width
