"""Random histories of a group of eight logs, without Spark; two hundred with it: tests/soak/test_schedules.py."""

from pathlib import Path

import pytest

from tests.pipeline import group_in_process
from tests.pipeline.group_world import World

pytestmark = [pytest.mark.timeout(300), pytest.mark.job]


@pytest.mark.parametrize("seed", range(2))
def test_every_log_is_its_masters_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    World(group_in_process.use_plain(monkeypatch), tmp_path, seed, asks_all=True).run()
