"""How far behind each partition is, of what the tables say of the replica and of the master."""

from datetime import timedelta
from typing import Any

import pytest

from sinks.tables import INCIDENTS, LEDGER, metadata_table
from sources.metadata import KAFKA_PARTITIONS
from tests.sinks.views.lake import Asked, Row, version
from tests.sinks.views.made_logs import NOON
from tests.sinks.views.made_topics import loss, ranges_of

pytestmark = pytest.mark.spark

MINUTE = timedelta(minutes=1)


def seen(partition: int, start: int | None = None, stable: int | None = None, end: int | None = None) -> Row:
    """A partition at the master; without bounds nobody leads it."""
    leader = None if end is None else 1
    return {"partition": partition, "leader": leader, "log_start": start, "last_stable": stable, "log_end": end}


def with_group(row: Row, offset: int | None) -> Row:
    return row | {"consumer_group": "lakehouse", "group_offset": offset}


def fetched(topic: str, *partitions: Row) -> list[Row]:
    """The master of a topic as it is since noon, for all that is known."""
    return [version(f"kafka/prod/{topic}", NOON, one) for one in partitions]


ENDS_COMMITTED = {0: (150, 1), 1: (100, 1), 2: (100, 0), 3: (100, 1), 4: (150, 1), 5: (100, 1)}
"""Of topic idle: where the replica is, and how many minutes after noon it came there."""

MADE_ROWS = {
    metadata_table(KAFKA_PARTITIONS): [
        # ahead: of partition 0 a minute later more is seen, of 1 the same
        version("kafka/prod/ahead", NOON, with_group(seen(0, 0, 120, 120), 100), NOON + MINUTE),
        version("kafka/prod/ahead", NOON + MINUTE, with_group(seen(0, 0, 170, 180), 130)),
        *fetched("ahead", with_group(seen(1, 5, 90, 90), None)),
        *fetched("plain", seen(0, 20, 50, 50)),
        version("kafka/prod/unknown", NOON, seen(3, 0, 7, 7), NOON + MINUTE),
        *fetched("unknown", seen(4), with_group(seen(5, 0, 50, 50), 60), seen(6, 0, 170, 180), seen(7, 0, 0, 0)),
        *fetched("idle", *(with_group(seen(number, 0, 100, 100), 60) for number in range(3))),
        *fetched("idle", *(with_group(seen(number, 0, 100, 100), 100) for number in (3, 4))),
        *fetched("idle", with_group(seen(5, 0, 100, 100), None)),
        *fetched("passed", seen(0, 0, 45, 45), seen(1, 30, 40, 40)),
    ],
    LEDGER: [
        *ranges_of("kafka/prod/ahead/0", (0, 100), last_store_timestamp=NOON + MINUTE, committed_at=NOON),
        *ranges_of("kafka/prod/ahead/0", (100, 150), last_store_timestamp=NOON, committed_at=NOON + MINUTE),
        *ranges_of("kafka/prod/ahead/1", (5, 90)),
        *ranges_of("kafka/prod/unknown/3", (0, 10)),
        *ranges_of("kafka/prod/unknown/4", (0, 10)),
        *ranges_of("kafka/prod/unknown/5", (0, 60)),
        *ranges_of("kafka/prod/unknown/6", (0, 175)),
        *(
            one
            for number, (end, minutes) in ENDS_COMMITTED.items()
            for one in ranges_of(f"kafka/prod/idle/{number}", (0, end), committed_at=NOON + minutes * MINUTE)
        ),
        *ranges_of("kafka/prod/passed/0", (0, 100)),
        *ranges_of("kafka/prod/passed/0", (0, 40), epoch=1),
        *ranges_of("kafka/prod/passed/1", (0, 10)),
    ],
    INCIDENTS: [loss("kafka/prod/passed/1", 10, 30, "skipped"), loss("kafka/prod/passed/1", 30, 39, "reported")],
}


def lag(asked: Asked, log_id: str, *columns: str) -> tuple[Any, ...]:
    (row,) = asked.rows("kafka_lag", f"kafka/prod/{log_id}")
    return tuple(row[name] for name in columns)


PLACE = ("topic", "partition", "position", "log_start", "last_stable", "log_end", "leader")
BEHIND = ("offsets_behind", "offsets_waiting", "consumer_group", "group_offset", "group_offsets_behind")


@pytest.mark.parametrize(
    ("log_id", "place", "behind"),
    [
        ("ahead/0", ("ahead", 0, 150, 0, 170, 180, 1), (30, 10, "lakehouse", 130, 50)),
        ("ahead/1", ("ahead", 1, 90, 5, 90, 90, 1), (0, 0, "lakehouse", None, 85)),
        ("plain/0", ("plain", 0, None, 20, 50, 50, 1), (30, 0, None, None, None)),  # nothing of it is there
    ],
)
def test_each_partition_is_as_far_behind_as_the_master_was_seen_ahead(
    asked: Asked, log_id: str, place: tuple[Any, ...], behind: tuple[Any, ...]
) -> None:
    assert lag(asked, log_id, *PLACE) == place
    assert lag(asked, log_id, *BEHIND) == behind
    times = lag(asked, "ahead/0", "committed_at", "newest_timestamp", "seen_from")
    assert times == (NOON + MINUTE,) * 3


@pytest.mark.parametrize(
    ("log_id", "found"),
    [
        ("unknown/3", (10, None, None, None, None)),  # no metadata of it any more
        ("unknown/4", (10, None, None, None, None)),  # nobody leads it
        ("unknown/5", (60, None, None, None, None)),  # the end that was seen is older
        ("unknown/6", (175, 180, 5, 5, None)),  # read past the last stable offset
        ("unknown/7", (None, 0, 0, 0, None)),  # empty
    ],
)
def test_what_is_not_known_is_null(asked: Asked, log_id: str, found: tuple[Any, ...]) -> None:
    assert lag(asked, log_id, "position", "log_end", *BEHIND[:2], BEHIND[-1]) == found


@pytest.mark.parametrize(
    ("number", "found"),
    [
        (0, (None, None, None, None, None, None)),  # the replica has come further since
        (1, (100, 100, 0, 0, None, None)),  # it has come to that end since, and so may the group have
        (2, (100, 100, 0, 0, 60, 40)),  # committed before it was looked at: the group stands still
        (3, (100, 100, 0, 0, 100, 0)),
        (4, (None, None, None, None, None, None)),
        (5, (100, 100, 0, 0, None, None)),
    ],
)
def test_what_was_seen_before_the_position_was_reached_is_null(
    asked: Asked, number: int, found: tuple[Any, ...]
) -> None:
    """Nothing of two moments is subtracted; and an idle partition, whose end no fetch finds changed, is known."""
    columns = ("last_stable", "log_end", "offsets_behind", "offsets_waiting", "group_offset", "group_offsets_behind")
    assert lag(asked, f"idle/{number}", *columns) == found


def test_the_position_is_that_of_the_newest_history_and_behind_what_was_passed(asked: Asked) -> None:
    assert lag(asked, "passed/0", "position", "offsets_behind") == (40, 5)
    assert lag(asked, "passed/1", "position", "offsets_behind") == (30, 10)
