"""Tests in several processes, each of which collects and runs its part of them: ``python -m tests.parts 3 ARGS``.

For tests that take milliseconds: pytest-xdist would collect all of them in each process, and send three results for
each, which costs a third of what they cost themselves.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import chain, cycle
from pathlib import Path
from typing import Final

PYTEST: Final = (sys.executable, "-m", "pytest")
NOTHING_COLLECTED: Final = 5


def part(modules: Iterable[Path], place: int, count: int) -> frozenset[Path]:
    """One of `count` parts that take about equally long: the modules are dealt out to and fro, the largest first."""
    by_size = sorted(modules, key=lambda module: (-module.stat().st_size, module))
    places = cycle(chain(range(count), reversed(range(count))))
    return frozenset(module for module, its_place in zip(by_size, places, strict=False) if its_place == place)


def main(count: int, arguments: Sequence[str]) -> int:
    """Run all parts side by side; print what each says when it has ended. Returns the exit code of all together."""
    if any(".py" in one for one in arguments):  # a module that is named belongs to every part
        return subprocess.call([*PYTEST, *arguments])
    color = f"--color={'yes' if sys.stdout.isatty() else 'no'}"
    with ExitStack() as files:
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        processes = [
            subprocess.Popen(
                [*PYTEST, "-q", color, "-o", f"cache_dir=.pytest_cache/{place}", f"--part={place}/{count}", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for place, output in enumerate(outputs)
        ]
        for process, output in zip(processes, outputs, strict=True):
            process.wait()
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    codes = {process.returncode for process in processes}
    return max(codes - {0, NOTHING_COLLECTED}, key=abs, default=min(codes))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
