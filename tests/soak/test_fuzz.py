"""An hour of fuzzing: whatever bytes come, a named error or the right rows, in bounded time and memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.fuzz.__main__ import TARGETS
from tests.resident import PROJECT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

SECONDS = float(os.environ.get("LOGTWIN_FUZZ_S", "3600"))
"""Of all targets together."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_named_error_or_the_right_rows(target: str) -> None:
    seed = random.SystemRandom().randrange(1 << 40)
    limits = ("--seconds", str(SECONDS / len(TARGETS)), "--seed", str(seed))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", target, *limits], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]  # it ends with the command that does the case again
    print(done.stdout)  # noqa: T201 - make soak shows it, and docs/soak.md keeps it
