"""A log of 5 GB by path, in small batches and in large ones: the resident size is stated and bounded."""

from pathlib import Path

import pytest

from tests.pipeline.test_memory import replicate
from tests.resident import Peak

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

GB = 1_000_000_000
LARGEST_LIMIT_MIB = 300
"""One process: Python with pyarrow and pandas is about 100 MiB, a chunk of 16 MiB is held a few times over."""
PYTHON_LIMIT_MIB = 1500
"""All of them: driver, planner, Spark's forking servers, and two workers (source, sink) for each of two cores."""
JAVA_LIMIT_MIB = 1200


@pytest.mark.parametrize("max_bytes_per_trigger", [64_000_000, 2_000_000_000])
def test_five_gigabytes(tmp_path: Path, max_bytes_per_trigger: int) -> None:
    peak: Peak = replicate(tmp_path, 5 * GB, max_bytes_per_trigger)
    print(  # noqa: T201 - the figure for docs/soak.md
        f"\n5 GB in batches of {max_bytes_per_trigger / 1e6:,.0f} MB: {peak.seconds:,.0f} s, "
        f"Python {peak.python_mib:,.0f} MiB (largest {peak.largest_python_mib:,.0f}), Java {peak.java_mib:,.0f} MiB"
    )
    assert peak.largest_python_mib < LARGEST_LIMIT_MIB
    assert peak.python_mib < PYTHON_LIMIT_MIB
    assert peak.java_mib < JAVA_LIMIT_MIB
