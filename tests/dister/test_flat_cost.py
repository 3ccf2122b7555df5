"""Catching up costs the same for every batch, wherever in the log it is: counted in bytes, not in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sources.dister.log import DisterLog
from sources.master import Chunk
from sources.offsets import LogId, Offset, OffsetRange
from tests.dister_folders import leader, write_log

ENTRIES, BATCH = 90_000, 1_000


def test_a_batch_costs_the_same_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job reads for a batch: its end, the entry before it, and the batch."""
    ids = leader(ENTRIES)
    size_bytes = len(write_log(tmp_path, ids))
    log = DisterLog(log_id=LogId("dister", "large"), path=str(tmp_path), max_entries_per_trigger=BATCH)
    pread, counted = os.pread, 0

    def counting(file: int, length: int, at: int) -> bytes:
        nonlocal counted
        data = pread(file, length, at)
        counted += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    costs: list[int] = []
    for done in range(30_000, ENTRIES, 19_500):
        counted = 0
        position, link = (Offset(ids[number] + 1) for number in (done - 1, done - 2))
        end = log.end_of_batch(position, log.bounds(position).end, 10**9)
        rows = 0
        for piece in log.read(OffsetRange(link, end), committed=position, boundary=True):
            assert isinstance(piece, Chunk)
            rows += piece.records.num_rows
        assert (end, rows) == (ids[done + BATCH - 1] + 1, BATCH + 1)  # and the entry before it
        costs.append(counted)
    assert max(costs) < 1.5 * min(costs)
    assert max(costs) < size_bytes / 2
