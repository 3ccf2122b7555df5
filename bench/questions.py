"""How long an operator's question takes, as a command typed in a shell, against a count in a plain Spark session.

Each question is a process of its own. It is compared with a process that starts Spark with Delta, as anybody would, and
counts the rows of the table `log` in the same warehouse: the cost of a question that has to start a JVM. The warehouses
are the demo's, of a broker and of a dister leader. A table of LARGE_FILES is compared with the demo's by the same
questions: it has as many files and versions as an unmaintained log after hours of one commit a second.

`logtwin warm` has written a class archive. A first round, which does not count, brings the pages of files into memory.
A round runs each process once. The server runs all the time, idle; commands that are not to find it look in another
folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.contest import Figure, Goal, Round, Settings, warmed_by_turns
from bench.peers import ON_CORES, plain_session
from tests.pipeline.day_of_commits import replicate_a_day
from tests.sinks.long_log import MASTER

LARGE_FILES: Final = 20_000
_COUNT: Final = "select count(*) from log"
_QUESTIONS: Final = {
    "status": ["status"],
    "coverage": ["coverage"],
    "incidents list": ["incidents", "list"],
}
_DEMO_S: Final = 20
_WITHIN_S: Final = 600.0
_UNPROVEN: Final = 5
"""The exit code of coverage if there is no ledger: the large table only looks old, and has none."""
_SERVED: Final = "serving logtwin sql"
_PLAIN: Final = """
import sys
from pathlib import Path
from bench.peers import ON_CORES, plain_session
with plain_session(Path(sys.argv[1]), ON_CORES) as spark:
    print(spark.read.format("delta").load(sys.argv[2]).count())
"""

QUICK = Goal(most=0.25)
"""For commands that start no JVM: 1.5 s, if a count takes about 7 s, as on a quiet machine."""
COLD, WARM, REPORT, LARGE = Goal(most=1.5), Goal(most=0.2), Goal(most=2.0), Goal(most=4.0)


def measure(settings: Settings) -> Iterator[Figure]:
    broker, leader = _demo(settings, "rocketmq"), _demo(settings, "dister")
    page = str(settings.folder / "report.html")
    count = ("sql", "-e", _COUNT)
    _timed(_logtwin("warm"))
    contestants = [
        *(_Contestant(name, "no JVM", QUICK, broker, words) for name, words in _QUESTIONS.items()),
        _Contestant("get", "no JVM", QUICK, leader, ("get", "settings/currency")),
        _Contestant("sql -e of a count", "no server", COLD, broker, count),
        _Contestant("report", "no server", REPORT, broker, ("report", "--output", page)),
        _Contestant("sql -e of a count, served", "a warm server", WARM, broker, count, is_served=True),
    ]
    with _serving(broker, settings.folder):
        rounds = [_round(settings, broker, contestants) for _ in range(settings.rounds + 1)][1:]
    for one in contestants:
        yield Figure(
            work=one.work,
            ours=one.ours,
            against="a Spark session that counts the log",
            unit="s",
            rounds=tuple(found[one.work] for found in rounds),
            goal=one.goal,
        )
    yield from _of_many_files(settings, broker)


@dataclass(frozen=True, slots=True)
class _Contestant:
    """A question: the words of a command, with a configuration. Only if `is_served` can it find the server."""

    work: str
    ours: str
    goal: Goal
    config: Path
    words: Sequence[str]
    is_served: bool = False


def _round(settings: Settings, broker: Path, contestants: Sequence[_Contestant]) -> dict[str, Round]:
    """Run all contestants one after the other, after one count, which takes much longer than most."""
    plain = [sys.executable, "-c", _PLAIN, str(settings.folder), str(broker.parent / "log")]
    against = _timed(plain)
    places = {True: settings.folder, False: settings.folder / "nobody-here"}
    found = {
        one.work: Round(_asked(one.config, *one.words, runtime=places[one.is_served]), against) for one in contestants
    }
    print(f"questions: {', '.join(f'{name} {one.ratio:.2f}' for name, one in found.items())}", flush=True)
    return found


def _of_many_files(settings: Settings, small: Path) -> Iterator[Figure]:
    files = settings.scaled(LARGE_FILES, least=20)
    lake, large = settings.folder / "large", settings.folder / "large.toml"
    with plain_session(settings.folder, ON_CORES) as spark:
        replicate_a_day(spark, lake, files, recent=9)  # the checkpoint is as old as it can be
    store = small.parents[1] / "master-store" / "commitlog"
    large.write_text(f'warehouse = "{lake}"\n[[logs]]\nid = "{MASTER.log_id}"\npath = "{store}"\n')
    for name, words in _QUESTIONS.items():
        yield Figure(
            work=f"{name}, {LARGE_FILES:,} files",
            ours=f"{files:,} files and versions",
            against="the demo's warehouse",
            unit="s",
            rounds=warmed_by_turns(settings.rounds, partial(_on, large, words), partial(_on, small, words)),
            goal=LARGE,
        )


def _on(config: Path, words: Sequence[str], _: int) -> float:
    return _asked(config, *words)


def _demo(settings: Settings, master: str) -> Path:
    """Run a demo with that kind of master, and return the configuration that it leaves."""
    folder = settings.folder / master
    folder.mkdir()
    seconds = settings.scaled(_DEMO_S, least=5)
    _timed(_logtwin("demo", "--master", master, "--duration-s", str(seconds)), folder)
    return folder / "warehouse" / "demo.toml"


def _logtwin(*words: str) -> list[str]:
    return [sys.executable, "-m", "pipeline", *words]


def _asked(config: Path, *words: str, runtime: Path | None = None) -> float:
    """The seconds of a command with `config`. A demo's command runs in the demo's folder: its paths are relative."""
    folder = config.parent.parent if config.name == "demo.toml" else config.parent
    return _timed(_logtwin(*words), folder, _environment(config, runtime))


def _timed(command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> float:
    """The seconds until the process has ended. Raises RuntimeError if it fails; `_UNPROVEN` is no failure."""
    since = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment or _environment(),
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
        check=False,
    )
    took_s = time.perf_counter() - since
    if done.returncode not in (0, _UNPROVEN):
        raise RuntimeError(f"{' '.join(command[2:6])} ended with {done.returncode}: {done.stderr[-300:]}")
    return took_s


def _environment(config: Path | None = None, runtime: Path | None = None) -> dict[str, str]:
    """The environment of a command. `runtime` is the folder in which commands find a server."""
    named = {"LOGTWIN_CONFIG": config, "XDG_RUNTIME_DIR": runtime, "PYTHONPATH": Path(__file__).parents[1]}
    return os.environ | {name: str(value) for name, value in named.items() if value is not None}


@contextmanager
def _serving(config: Path, runtime: Path) -> Iterator[None]:
    """Run a server for that configuration, once it says that it serves."""
    command, folder, environment = _logtwin("sql", "--serve"), config.parent.parent, _environment(config, runtime)
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            if not any(_SERVED in line for line in server.stderr or ()):
                raise RuntimeError(f"no server: it ended with {server.wait()}")
            yield
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(_WITHIN_S)
