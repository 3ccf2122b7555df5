"""Where the time of the tests goes: ``make test ARGS="-p tests.measuring"``, then ``python -m tests.measuring``.

Each pytest process writes what it ran into `FOLDER`: for each test its marker, the wall time of its set-up, call and
teardown, and the processor time that the process and all that it started used meanwhile, by kind of process. Processor
time is sampled: what lives less than `EVERY_S` is not seen.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

FOLDER: Final = Path(os.environ.get("LOGTWIN_MEASURED", "build/measured"))
EVERY_S: Final = 0.5
MARKERS: Final = ("browser", "airflow", "peer", "spark")
OWN: Final = "pytest"
# The first that a command line contains names the kind of a process.
_KINDS: Final = (
    ("org.apache.spark.deploy", "Spark JVM"),
    ("pyspark.daemon", "Python worker"),
    ("pyspark/daemon", "Python worker"),
    ("kafka.Kafka", "broker"),
    ("org.apache.rocketmq", "broker"),
    ("airflow", "Airflow"),
    ("chrom", "Chromium"),
    ("azurite", "Azurite"),
    ("java", "other JVM"),
    ("python", "other Python"),
)


class Measuring:
    """The plugin of one pytest process."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._cpu: dict[str, float] = defaultdict(float)
        self._seen: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._look = threading.Lock()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._take()
        phases: dict[str, float] = {}
        item.stash[_PHASES] = phases
        result = yield
        marker = next((name for name in MARKERS if item.get_closest_marker(name)), "pure")
        self.rows.append({"test": item.nodeid, "marker": marker, **phases, "cpu": self._take()})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        item.stash[_PHASES][call.when] = call.duration
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self._ended.set()
        self._sampler.join()
        FOLDER.mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        (FOLDER / f"{name}.json").write_text(json.dumps(self.rows))

    def _sample(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._count()

    def _count(self) -> None:
        with self._look:
            own = psutil.Process()
            for process in (own, *own.children(recursive=True)):
                try:
                    used, key = sum(process.cpu_times()[:2]), (process.pid, process.create_time())
                    kind = OWN if process.pid == own.pid else _kind(" ".join(process.cmdline()))
                except psutil.Error:  # it has ended
                    continue
                self._cpu[kind] += used - self._seen.get(key, 0.0)
                self._seen[key] = used

    def _take(self) -> dict[str, float]:
        """The processor seconds since the last call, by kind."""
        with self._look:
            used, self._cpu = self._cpu, defaultdict(float)
        return dict(used)


_PHASES: Final = pytest.StashKey[dict[str, float]]()


def _kind(command: str) -> str:
    return next((kind for part, kind in _KINDS if part in command), "other")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Measuring(), "measuring-this-process")
    else:
        shutil.rmtree(FOLDER, ignore_errors=True)


def _tables(tests: Sequence[dict[str, Any]], most: int) -> Iterator[str]:
    yield from _table("marker", tests, lambda one: one["marker"], most)
    yield from _table("folder", tests, lambda one: "/".join(one["test"].split("::")[0].split("/")[:3]), most)
    yield from _table("module", tests, lambda one: one["test"].split("::")[0], most)
    yield from _table("test", tests, lambda one: one["test"], most)


def _table(
    title: str, tests: Sequence[dict[str, Any]], group: Callable[[dict[str, Any]], str], most: int
) -> Iterator[str]:
    counts, walls, setups = Counter[str](), Counter[str](), Counter[str]()
    cpu: dict[str, Counter[str]] = {}
    for one in tests:
        key = group(one)
        counts[key] += 1
        walls[key] += sum(one.get(phase, 0.0) for phase in ("setup", "call", "teardown"))
        setups[key] += one.get("setup", 0.0)
        cpu.setdefault(key, Counter()).update(one["cpu"])
    kinds = [kind for kind, _ in sum(cpu.values(), Counter[str]()).most_common()]
    yield f"\n| {title} | tests | wall s | of it set-up | processor s | {' | '.join(kinds)} |"
    yield "|---" * (5 + len(kinds)) + "|"
    for key, wall in walls.most_common(most):
        by_kind = " | ".join(f"{cpu[key][kind]:.1f}" for kind in kinds)
        yield f"| {key} | {counts[key]} | {wall:.1f} | {setups[key]:.1f} | {sum(cpu[key].values()):.1f} | {by_kind} |"


def main(most: int = 60) -> None:
    """Print the tables of all processes together."""
    tests = [one for path in sorted(FOLDER.glob("*.json")) for one in json.loads(path.read_text())]
    print("\n".join(_tables(tests, most)))  # noqa: T201  # what it is for


if __name__ == "__main__":
    main()
