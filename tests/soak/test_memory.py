"""A log of 5 GB by path, in small batches and in large ones: the resident size is stated and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.test_memory import replicate
from tests.resident import Peak

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

GB = 1_000_000_000
PYTHON_LIMIT_MIB = 1200
JAVA_LIMIT_MIB = 1200


@pytest.mark.parametrize("max_bytes_per_trigger", [64_000_000, 2_000_000_000])
def test_five_gigabytes(tmp_path: Path, max_bytes_per_trigger: int) -> None:
    peak: Peak = replicate(tmp_path, 5 * GB, max_bytes_per_trigger)
    print(  # noqa: T201 - the figure for docs/soak.md
        f"\n5 GB in batches of {max_bytes_per_trigger / 1e6:,.0f} MB: {peak.seconds:,.0f} s, "
        f"Python {peak.python_mib:,.0f} MiB, Java {peak.java_mib:,.0f} MiB"
    )
    assert peak.python_mib < PYTHON_LIMIT_MIB
    assert peak.java_mib < JAVA_LIMIT_MIB
