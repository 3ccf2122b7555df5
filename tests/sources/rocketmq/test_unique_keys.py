"""UNIQ_KEY, against its layout and keys that real brokers made."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from sources.rocketmq.embedded.unique_keys import UniqueKeys


def test_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 2, 3, 4, 5, 6, 789_000, UTC)
    monkeypatch.setattr("time.time_ns", lambda: int(now.timestamp() * 1000) * 1_000_000)
    key = bytes.fromhex(next(UniqueKeys(bytes((10, 1, 2, 3)))))
    assert key[:4] == bytes((10, 1, 2, 3))
    assert int.from_bytes(key[4:6], "big") == os.getpid() & 0xFFFF
    since_month_start_ms = ((2 * 24 + 4) * 3600 + 5 * 60 + 6) * 1000 + 789
    assert int.from_bytes(key[10:14], "big") == since_month_start_ms
    assert int.from_bytes(key[14:], "big") == 0
