"""Catching up costs the same for every batch, wherever in the log it is: counted in bytes, not in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sources.dister.log import DisterLog
from sources.master import Chunk
from sources.offsets import LogId, Offset, OffsetRange
from tests.dister.odd_leader import OddLeader

ENTRIES = 30_000
BATCH = 1_000
KEYS = 10_000


def test_thirty_thousand_entries_in_batches_of_one_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job reads for a batch: its end, the entry before it, and the batch."""
    with OddLeader(tmp_path, seed=1) as node:
        node.set_many({f"key {number * 7919 % KEYS}": f"value {number:06}"} for number in range(ENTRIES))
    log = DisterLog(log_id=LogId("dister", "large"), path=str(tmp_path), max_entries_per_trigger=BATCH)
    pread, counted = os.pread, 0

    def counting(file: int, length: int, at: int) -> bytes:
        nonlocal counted
        data = pread(file, length, at)
        counted += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    costs: list[int] = []
    position = link = Offset(0)
    while position < (maximum := log.bounds(position).end):
        counted = 0
        end = log.end_of_batch(position, maximum, 10**9)
        rows = 0
        for piece in log.read(OffsetRange(link, end), committed=position, boundary=True):
            assert isinstance(piece, Chunk)
            rows += piece.records.num_rows
            last = piece.records.column("offset")[-1].as_py()
        assert rows == BATCH + (position > 0)  # and the entry before it
        costs.append(counted)
        position, link = end, Offset(last)
    assert len(costs) == ENTRIES // BATCH
    later = costs[len(costs) // 3 :]
    assert max(later) < 1.5 * min(later)
    assert max(later) < 1_500_000
