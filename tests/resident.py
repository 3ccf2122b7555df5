"""How much memory a process and its children hold."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

PROJECT = Path(__file__).parents[1]
MIB = 1024 * 1024


@dataclass(frozen=True)
class Peak:
    """Peaks over a run, in MiB, each of its own moment.

    Python: the driver and all task processes together at one moment, and the largest. Heap: that part of Java's memory.
    """

    together_mib: float  # Python and Java at one moment
    python_mib: float
    largest_python_mib: float
    java_mib: float
    heap_mib: float
    seconds: float
    said: str


def _anonymous_mib(process: psutil.Process) -> float:
    """Resident memory that is the process's own; of pages that it still shares with those forked from it, its part.

    Pages of mapped files belong to the page cache. A JVM that is forking, as Hadoop's local file system makes it do,
    would otherwise count twice. `smaps_rollup` as proc(5) describes it (Linux).
    """
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) / 1024


def held_mib(pid: int, aside: int | None = None) -> list[tuple[str, float]]:
    """Program and memory of a process and each below it, but `aside` and those below it; none of one that has ended.

    The program is that of the executable: a process that the JVM is just forking has its memory, but the name of
    whichever thread forks it.
    """
    held: list[tuple[str, float]] = []
    try:
        for process in [psutil.Process(pid), *below(psutil.Process(pid), aside)]:
            with contextlib.suppress(psutil.Error, OSError):
                held.append((Path(process.exe()).name, _anonymous_mib(process)))
    except psutil.Error:
        return held
    return held


def below(process: psutil.Process, aside: int | None = None) -> list[psutil.Process]:
    """All processes below `process`, but `aside` and those below it."""
    found = process.children(recursive=True)
    left_out = [one for root in found if root.pid == aside for one in (root, *root.children(recursive=True))]
    return [one for one in found if one not in left_out]


def heap_mib(pid: int) -> float:
    """Resident memory of the heaps of the JVMs below a process (Linux); 0 where none is to be seen.

    A heap of up to 3 GB is all that a JVM has in the lowest 4 GiB of its addresses, so that a reference takes 32 bits.
    """
    with contextlib.suppress(psutil.Error, OSError):
        javas = [one for one in psutil.Process(pid).children(recursive=True) if Path(one.exe()).name == "java"]
        return sum(_low_mib(Path(f"/proc/{one.pid}/smaps").read_text()) for one in javas)
    return 0.0


def _low_mib(smaps: str) -> float:
    """What of the mappings that begin below 4 GiB is resident; `smaps` as proc(5) describes it."""
    kib, is_low = 0, False
    for line in smaps.splitlines():
        first, *rest = line.split()
        if first == "Rss:":
            kib += int(rest[0]) * is_low
        elif not first.endswith(":"):
            is_low = int(first.partition("-")[0], 16) < 4 * 1024**3
    return kib / 1024


def run_watched(arguments: Sequence[str], look: Callable[[int], None], *, every_s: float = 0.2) -> str:
    """Run ``python -m pipeline`` with `arguments` to its end, and `look` at the process meanwhile; what it said.

    Raises AssertionError unless it ends well.
    """
    command = [sys.executable, "-m", "pipeline", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None:
            look(process.pid)
            time.sleep(every_s)
        said = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, said[-3000:]
    return said


def run_measured(arguments: Sequence[str]) -> Peak:
    """The peaks of such a run."""
    started = time.monotonic()
    together = python = largest = java = heap = 0.0

    def look(pid: int) -> None:
        nonlocal together, python, largest, java, heap
        held = held_mib(pid)
        together = max(together, sum(mib for _, mib in held))
        pythons = [mib for name, mib in held if name != "java"]
        python, largest = max(python, sum(pythons)), max(largest, *pythons, 0.0)
        java = max(java, *(mib for name, mib in held if name == "java"), 0.0)
        heap = max(heap, heap_mib(pid))

    said = run_watched(arguments, look)
    return Peak(together, python, largest, java, heap, time.monotonic() - started, said)
