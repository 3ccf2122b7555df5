"""Fuzzing, an hour or a minute: whatever bytes come, a named error or the right rows, in bounded time and memory."""

import os
import random
import subprocess
import sys

import pytest

from tests.fuzz.__main__ import TARGETS
from tests.resident import PROJECT

HOUR_S = float(os.environ.get("LOGTWIN_FUZZ_S", "3600"))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "all_targets_s",
    [pytest.param(60.0, marks=pytest.mark.nightly), pytest.param(HOUR_S, marks=pytest.mark.soak)],
    ids=["minute", "hour"],
)
def test_a_named_error_or_the_right_rows(target: str, all_targets_s: float) -> None:
    seed = random.SystemRandom().randrange(1 << 40)
    limits = ("--seconds", str(all_targets_s / len(TARGETS)), "--seed", str(seed))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", target, *limits], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]  # it ends with the command that does the case again
    print(done.stdout)  # noqa: T201 - make soak shows it, and docs/soak.md keeps it
