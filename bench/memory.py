"""Peak memory of ``logtwin replicate --available-now`` by path: logs of 5 and 20 GiB against one of 1 GiB.

This measures the memory of driver, Spark's Python processes and JVM together at the worst moment, sampled five times a
second: their own resident pages, without those of mapped files (the log, which is page cache). Pages that forked
processes still share are divided between them. Everything has its default: batches of 1 GiB, a heap of up to 1 GB.
Messages have 1 KB, half of it random. The shorter logs are the first files of the longest, as hard links.

There is one round, whatever is asked for: a peak does not depend on the speed of the machine. The log of 1 GiB is
measured first and again at the end, which shows the noise; the larger ones are compared with the mean of the two.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.contest import Figure, Goal, Round, Settings
from tests.large_log import write_large_log
from tests.resident import MIB, Peak, run_measured

SIZES_GIB = (5, 20)
FILES_IN_GIB = 4
LEAST_FILE_BYTES = 8 * MIB  # a block of tests.large_log fits in
GOAL = Goal(most=1.2)
ROOM = 1.8
"""Disk space needed, by the bytes of the largest log: a table has half of its log's bytes, and a little must be left.
"""


def measure(settings: Settings) -> Iterator[Figure]:
    file_bytes = max(LEAST_FILE_BYTES, settings.scaled(1024 * MIB // FILES_IN_GIB))
    log = settings.folder / "log"
    size_bytes = max(SIZES_GIB) * FILES_IN_GIB * file_bytes
    free_bytes = shutil.disk_usage(settings.folder).free
    if free_bytes < ROOM * size_bytes:
        raise SystemExit(f"memory: {ROOM * size_bytes / 1e9:.0f} GB of disk are needed, {free_bytes / 1e9:.0f} free")
    write_large_log(log, size_bytes, file_size_bytes=file_bytes)
    print(f"memory: a log of {size_bytes / 1e9:.1f} GB in files of {file_bytes / MIB:.0f} MiB", flush=True)
    first = _peak(log, 1, file_bytes)
    peaks = {size_gib: _peak(log, size_gib, file_bytes) for size_gib in SIZES_GIB}
    again = _peak(log, 1, file_bytes)
    shutil.rmtree(log)
    for size_gib, peak in peaks.items():
        yield Figure(
            work=f"memory of a log of {size_gib} GiB by path",
            ours=f"{size_gib} GiB",
            against="1 GiB",
            unit="MiB at most, driver, workers and JVM together",
            rounds=(Round(peak.together_mib, (first.together_mib + again.together_mib) / 2),),
            goal=GOAL,
            details={
                "bytes_of_1_gib": FILES_IN_GIB * file_bytes,  # less at a smaller scale
                f"{size_gib} GiB": _as_details(peak),
                "1 GiB": _as_details(first),
                "1 GiB again": _as_details(again),
            },
        )


def _peak(log: Path, size_gib: int, file_bytes: int) -> Peak:
    """Replicate the first `size_gib` of `log` into a new table. Raises SystemExit if its end is not reached."""
    folder = log.with_name("run")
    part = folder / "log"
    part.mkdir(parents=True)
    files = sorted(log.iterdir())[: size_gib * FILES_IN_GIB]
    for path in files:
        (part / path.name).hardlink_to(path)
    job = folder / "job.toml"
    job.write_text(f'warehouse = "{folder}/lake"\n[[logs]]\nid = "rocketmq/big"\npath = "{part}"\n')
    peak = run_measured(["replicate", "--config", str(job), "--available-now"])
    end = len(files) * file_bytes
    if f"done at offset {end}," not in peak.said:
        raise SystemExit(f"memory: not done at offset {end}: {peak.said[-1000:]}")
    shutil.rmtree(folder)
    print(
        f"memory: {size_gib} GiB in {peak.seconds:.0f} s: {peak.together_mib:,.0f} MiB at most, Python "
        f"{peak.python_mib:,.0f}, JVM {peak.java_mib:,.0f} (heap {peak.heap_mib:,.0f})",
        flush=True,
    )
    return peak


def _as_details(peak: Peak) -> dict[str, Any]:
    """The peaks. Each is at its own moment, so the parts add up to more than the whole."""
    return {
        "together_mib": round(peak.together_mib),
        "python_mib": round(peak.python_mib),
        "largest_python_mib": round(peak.largest_python_mib),
        "java_mib": round(peak.java_mib),
        "java_heap_mib": round(peak.heap_mib),
        "seconds": round(peak.seconds, 1),
    }
