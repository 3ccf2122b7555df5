"""One target, case after case, until the time is up: ``python -m tests.fuzz records --seconds 60 [--seed 7]``.

A case is made by its target and its number alone, so `--seed N --cases 1` does it again. A case that fails ends the run
with its number and its traceback; so does one that takes out of proportion to the bytes that it made, compared with the
cases before it; one that takes longer than `--case-s`, in C code, too; and one that wants more memory than the process
may have beyond what it started with.
"""

import argparse
import faulthandler
import random
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import bodies, configuration, frames, kafka, records
from tests.fuzz.mutations import Made

TARGETS: dict[str, Callable[[random.Random], None]] = {
    "records": records.check,
    "ha": frames.check_ha,
    "remoting": frames.check_remoting,
    "kafka": kafka.check,
    "configuration": configuration.check,
    "bodies": bodies.check,
}
ROOM_BYTES = 1 << 28


def run(target: str, *, seed: int, seconds: float, cases: int, case_s: float) -> int:
    """How many cases passed. Raises what a case raises, naming it."""
    check, deadline, number = TARGETS[target], time.monotonic() + seconds, seed
    check(random.Random(f"{target}/warm-up"))  # loads what it needs; that is no case's time or memory
    bound_memory()
    pace = Pace()
    while number < seed + cases and time.monotonic() < deadline:
        sys.stderr.write(f"\r{target} --seed {number} --cases 1 ")  # the last thing said before an end by force
        faulthandler.dump_traceback_later(case_s, exit=True)
        try:
            pace.hold(lambda case=number: check(random.Random(f"{target}/{case}")))  # type: ignore[misc]
        except BaseException as error:
            error.add_note(f"again: python -m tests.fuzz {target} --seed {number} --cases 1")
            raise
        number += 1
    faulthandler.cancel_dump_traceback_later()
    return number - seed


class Pace:
    """What a byte takes, as cases went so far; and that no case takes very much more."""

    MOST = 100.0
    """So many times as much: what is quadratic takes more than that for some ten thousand bytes."""

    _LEAST_BYTES = 4096  # a case of no bytes takes its time, too
    _CASES = 200

    def __init__(self) -> None:
        self._paces: deque[float] = deque(maxlen=self._CASES)

    def hold(self, case: Callable[[], None]) -> None:
        """Run `case`. Raises AssertionError if it was too slow, at another try, too."""
        found = self._of(case)
        if len(self._paces) < self._CASES:
            self._paces.append(found)
            return
        usual = statistics.median(self._paces)
        for _ in range(2):
            if found <= self.MOST * usual:
                break
            found = min(found, self._of(case))
        assert found <= self.MOST * usual, f"{found / usual:.0f} times as long as others, for its bytes"
        self._paces.append(found)

    def _of(self, case: Callable[[], None]) -> float:
        Made.size_bytes = 0
        started_s = time.process_time()
        case()
        return (time.process_time() - started_s) / (Made.size_bytes + self._LEAST_BYTES)


def bound_memory() -> None:
    """A case may make the process larger by ROOM_BYTES; then it is a MemoryError."""
    size = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()  # what it may write to
    resource.setrlimit(resource.RLIMIT_DATA, (size + ROOM_BYTES, resource.RLIM_INFINITY))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--cases", type=int, default=1 << 62)
    parser.add_argument("--case-s", type=float, default=60.0)
    given = parser.parse_args()
    cases = run(given.target, seed=given.seed, seconds=given.seconds, cases=given.cases, case_s=given.case_s)
    sys.stdout.write(f"\n{given.target}: {cases} cases passed\n")


if __name__ == "__main__":
    main()
