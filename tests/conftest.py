"""Fixtures and hypothesis profiles of the whole suite."""

import gc
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from hypothesis import settings
from pyspark.sql import SparkSession
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from pipeline.spark.jars import session_jars
from tests import truth
from tests.class_archives import spark_options
from tests.marks import left_out, marks
from tests.parts import part
from tests.spark_session import delta_session, forget_connection, gateway_port

# The gate repeats: the same cases each time. Elsewhere they are random, and a failure prints what makes it again.
settings.register_profile("gate", max_examples=10, deadline=None, derandomize=True, database=None)
settings.register_profile("nightly", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("exhaustive", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("LOGTWIN_HYPOTHESIS", "gate"))

# A JVM that a test starts does not run for long: what a better compiler and more collector threads cost, it never
# brings in. Brokers and drivers take these options; an empty value keeps them away (make soak). With one compiler a JVM
# reserves 48 MB for what it compiles: a dozen queries of Spark fill that, and then it compiles nothing any more.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
_LONG_LIVED = "-XX:+UseSerialGC"
os.environ.setdefault("JAVA_TOOL_OPTIONS", _SHORT_LIVED)

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)  # nohup: the programs that tests start would ignore it, too

_KINDS = ("airflow", "peer", "spark", "pure")
_ROUND = {"airflow": 0, "peer": 1, "spark": 1, "pure": 2}

_JOBS = frozenset({"session", "world", "s3_process", "s3_guarded"})
"""Fixtures of tests in which whole jobs replicate, typed tables follow a log, or a server has a process: a `job`."""

# Modules of one process share what costs most: servers of Airflow, replicas of real logs, a reader, real brokers.
_TOGETHER = {
    "tests/airflow/": "airflow", "tests/sinks/views/": "views", "tests/pipeline/report/": "views",
    "tests/pipeline/sql/": "sql", "tests/pipeline/test_cli_sql.py": "sql",
    "tests/peers/test_kafka": "kafka", "tests/peers/": "rocketmq",
}  # fmt: skip

# py4j has a connection for each thread, and leaves it to the collector when the thread has ended.
_PY4J_SOCKET = r"ignore:unclosed <socket\.socket .*raddr=\('127\.0\.0\.1', {}\)>:ResourceWarning"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected and imported lasts as long as the run: the collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--module-order", type=int, metavar="SEED", help="run the modules in the order of this seed")
    parser.addoption(
        "--part", default="0/1", metavar="PLACE/COUNT", help="run a part of the modules: see tests/parts.py"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module that is left out as a whole, or of another part, need not be imported. None is asked that is named."""
    if not collection_path.match("test_*.py"):
        return None
    return None if collection_path in _modules(config.option.markexpr, config.option.part) else True


@cache
def _modules(expression: str, place_of_count: str) -> frozenset[Path]:
    unwanted = left_out(expression)
    modules = Path(__file__).parent.rglob("test_*.py")
    wanted = [module for module in modules if unwanted.isdisjoint(marks(module))] if unwanted else modules
    return part(wanted, *map(int, place_of_count.split("/")))


def pytest_itemcollected(item: pytest.Item) -> None:
    if _JOBS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("job")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, what takes minutes begins first, and what waits for brokers runs beside what computes."""
    if config.option.module_order is not None:
        modules = list(dict.fromkeys(item.path for item in items))
        random.Random(config.option.module_order).shuffle(modules)
        places = {path: place for place, path in enumerate(modules)}
        items.sort(key=lambda item: places[item.path])
        return
    if not hasattr(config, "workerinput"):
        return
    kinds: dict[Path, str] = {}
    for item in items:
        kinds[item.path] = min(kinds.get(item.path, "pure"), _kind_of(item), key=_KINDS.index)
    seen: Counter[str] = Counter()
    order: dict[Path, tuple[int, int]] = {}
    for path, kind in kinds.items():
        order[path] = (_ROUND[kind], seen[kind])
        seen[kind] += 1
    items.sort(key=lambda item: order[item.path])  # stable: a module keeps its order


def pytest_collection_finish(session: pytest.Session) -> None:
    """Every driver that a test starts, here or as a process of its own, takes its classes from an archive."""
    if any(item.get_closest_marker(name) for item in session.items for name in ("spark", "airflow")):
        os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options(session_jars()))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """A module stays in one process, and so do those of a group."""
    return _ByModule(config, log)


def pytest_exception_interact(call: pytest.CallInfo[object]) -> None:
    """A test that was interrupted leaves the others alone."""
    if call.excinfo is not None and not isinstance(call.excinfo.value, Exception):
        forget_connection()


class _ByModule(LoadFileScheduling):  # type: ignore[misc]  # without types
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((group for folder, group in _TOGETHER.items() if file.startswith(folder)), file)


def _kind_of(item: pytest.Item) -> str:
    return next((kind for kind in _KINDS if item.get_closest_marker(kind)), "pure")


@pytest.fixture(scope="session", autouse=True)
def _commands_once() -> Iterator[None]:
    """Typer makes all commands anew for each call: half of the time that a verb takes in this process."""
    with pytest.MonkeyPatch.context() as patch:
        made = cache(typer.main.get_command)
        patch.setattr("typer.main.get_command", made)
        patch.setattr("typer.testing._get_command", made)
        yield


@pytest.fixture(scope="session")
def fixture_497(tmp_path_factory: pytest.TempPathFactory) -> truth.Fixture:
    """The log of a real 4.9.7 broker."""
    return truth.extract("4.9.7", tmp_path_factory.mktemp("fixture-497"))


@pytest.fixture(scope="session")
def fixture_550(tmp_path_factory: pytest.TempPathFactory) -> truth.Fixture:
    """The log of a real 5.5.0 broker."""
    return truth.extract("5.5.0", tmp_path_factory.mktemp("fixture-550"))


@pytest.fixture(scope="session", params=truth.VERSIONS)
def fixture_log(request: pytest.FixtureRequest) -> truth.Fixture:
    """Each of these logs in turn."""
    fixture: truth.Fixture = request.getfixturevalue({"4.9.7": "fixture_497", "5.5.0": "fixture_550"}[request.param])
    return fixture


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The one Spark session of the process. It has both compilers: after a minute or two it is a third quicker."""
    with pytest.MonkeyPatch.context() as launch:
        if os.environ["JAVA_TOOL_OPTIONS"] == _SHORT_LIVED:
            launch.setenv("JAVA_TOOL_OPTIONS", _LONG_LIVED)
        session = delta_session(tmp_path_factory.mktemp("spark"))
    request.config.addinivalue_line("filterwarnings", _PY4J_SOCKET.format(gateway_port()))
    yield session
    session.stop()
