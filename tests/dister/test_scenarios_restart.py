"""Scenarios 50 and 51: what a restart goes by. The table's own position, and nothing that may be lost beside it."""

from __future__ import annotations

import shutil

import pytest

from sinks.batch.result import BatchStep
from tests.dister.twin import Killed, Twin, dying_after
from tests.dister_folders import append_log, leader, write_log


def test_scenario_50_killed_at_any_step_the_table_alone_tells(twin: Twin) -> None:
    """DI-34: the position in the table alone keeps every entry from coming in twice, or not at all."""
    written = 0
    for step in BatchStep:
        append_log(twin.folder, leader(5, first=written + 1))
        written += 5
        with pytest.raises(Killed):
            twin.replicate(dying_after(1, step), max_entries_per_trigger=3)
    twin.replicate()
    assert twin.ids() == leader(written)
    twin.assert_equal()


def test_scenario_51_all_that_stands_beside_the_table_log_is_lost(twin: Twin) -> None:
    """Position and link are in the table log itself. The map is made anew from it."""
    write_log(twin.folder, leader(8))
    lake = twin.lake / "only-the-log"
    alone = Twin(twin.spark, twin.folder, lake, twin.group)
    alone.take()
    position = alone.position
    for kept in (path for path in lake.iterdir() if path.name not in ("log", "ledger")):
        shutil.rmtree(kept)
    assert alone.position == position
    alone.open()
    alone.assert_equal()
    append_log(twin.folder, leader(4, first=9))
    alone.replicate()
    alone.assert_equal()
    assert alone.went_back_to is None
