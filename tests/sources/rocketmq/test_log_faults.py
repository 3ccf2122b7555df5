"""Faults of a log over HA. Each is a named error with log, offset, expected, found and a hint."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sources.errors import AboveMaximum, CorruptRecord, LogtwinError
from sources.rocketmq.wire.remoting import Command
from tests.sources.rocketmq.log_reading import damaged, over_ha, read, serving
from tests.sources.rocketmq.scripted_master import HAScript, holding, serve_log
from tests.truth import Fixture


def failure(
    scripts: tuple[HAScript, ...], answer: Callable[[Command], bytes], start: int = 0, end: int = 1000, **options: Any
) -> LogtwinError:
    with over_ha(scripts, answer, **options) as (log, master):
        with pytest.raises(LogtwinError) as caught:
            read(log, start, end, committed=start)
        assert set(master.reports) <= {max(start, 1)}
    error = caught.value
    assert error.log == "rocketmq/broker-a"
    assert None not in (error.expected, error.found, error.hint)
    return error


@pytest.mark.parametrize(("start", "end", "offset"), [(9000, 9100, 9000), (5000, 9000, 9000)])
def test_above_the_maximum(start: int, end: int, offset: int) -> None:
    """HA-70."""
    error = failure((serve_log(b""),), holding(4096, 8192), start=start, end=end)
    assert isinstance(error, AboveMaximum)
    assert error.offset == offset
    assert error.expected == "8192 or less: the master holds [4096, 8192)"


@pytest.mark.parametrize("at", [4, 100], ids=["magic", "body or behind it"])
def test_a_record_that_was_damaged(fixture_550: Fixture, at: int) -> None:
    """HA-70: the same offsets with other bytes do not pass for the log."""
    row = next(row for row in fixture_550.rows[10:] if row["size"] > 500)
    place = row["physical_offset"]
    log_bytes = damaged(fixture_550.log, place + at)
    error = failure((serve_log(log_bytes),), holding(0, len(log_bytes)), end=place + 1)
    assert isinstance(error, CorruptRecord)
    assert error.offset == place


def test_a_start_that_is_no_record_boundary(fixture_550: Fixture) -> None:
    """HA-70."""
    start = fixture_550.rows[10]["physical_offset"] + 3
    error = failure((serve_log(fixture_550.log),), holding(0, fixture_550.max_offset), start=start, end=start + 5000)
    assert isinstance(error, CorruptRecord)
    assert error.offset == start
    assert error.problem == "no record starts at the offset to read from"


def test_a_search_ends_where_no_record_can_be() -> None:
    noise = b"\0" + random.Random(1).randbytes(20_000)
    with (
        serving(noise, parallel_reads=True, max_record_bytes=2000, chunk_bytes=500) as (log, _),
        pytest.raises(CorruptRecord, match="no record boundary") as caught,
    ):
        read(log, 100, 200, boundary=False)
    assert (caught.value.offset, caught.value.expected) == (
        100,
        "one within 4000 bytes, twice the size limit of a record",
    )
