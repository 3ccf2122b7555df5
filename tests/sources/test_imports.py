"""What a process that plans a stream has to import: Spark starts one for each query, and does not fork it."""

from __future__ import annotations

import subprocess
import sys

from tests.resident import PROJECT

PROGRAM = """
import sys
import sources.datasource
print(*sorted({"numba", "pandas", "sources.dister.log", "sources.kafka.streaming"} & set(sys.modules)))
import sources.kafka.topic
print(*sorted({"numba", "pandas", "sources.dister.log"} & set(sys.modules)))
"""


def test_planning_imports_neither_numba_nor_pandas_nor_other_masters() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
