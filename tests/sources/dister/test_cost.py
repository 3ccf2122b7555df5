"""What reading costs, in bytes: it grows with what is asked for, not with the log."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.offsets import Offset
from tests.sources.dister.entry_logs import log_of, owned, set_line, write

ENTRIES = 100_000
BATCH = 1_000


class Counter:
    """How many bytes were read since it was asked last."""

    def __init__(self) -> None:
        self._bytes = 0

    def pread(self, file: int, length: int, at: int) -> bytes:
        data = _PREAD(file, length, at)
        self._bytes += len(data)
        return data

    def taken(self) -> int:
        taken, self._bytes = self._bytes, 0
        return taken


_PREAD = os.pread


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    found = Counter()
    monkeypatch.setattr(os, "pread", found.pread)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A full batch file and the beginning of the next, some 10 MB."""
    indexes = range(ENTRIES // 2, ENTRIES + ENTRIES // 2)
    lines = [set_line(index * 10_000 + index % 7919, value="v" * 60) for index in indexes]
    yield write(
        tmp_path_factory.mktemp("leader"), {0: b"".join(lines[: ENTRIES // 2]), 1: b"".join(lines[ENTRIES // 2 :])}
    )


def offset_behind(index: int) -> Offset:
    return Offset(index * 10_000 + index % 7919 + 1)


def test_bounds_cost_nearly_nothing_and_a_batch_the_same_anywhere(folder: Path, counter: Counter) -> None:
    log = log_of(folder, max_entries_per_trigger=BATCH)
    maximum = offset_behind(149_999)
    for known in (None, offset_behind(120_000), maximum):
        assert log.bounds(known).end == maximum
        assert counter.taken() < 1_000_000

    costs = []
    for index in range(54_321, 149_000, 20_001):
        start = offset_behind(index)
        end = log.end_of_batch(start, maximum, 10**9)
        assert end == offset_behind(index + BATCH)
        (chunk,) = log.read(owned(start, end), committed=None, boundary=True)
        assert chunk.covered == owned(start, end)
        costs.append(counter.taken())

    assert max(costs) < 2_500_000
    assert max(costs) < 1.5 * min(costs)
