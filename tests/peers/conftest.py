"""The real brokers of this process, the newest of each kind once; figures that the tests report."""

from collections.abc import Callable, Iterator

import pytest

from tests.peers.kafka import EACH_VERSION, VERSIONS, KafkaBroker
from tests.peers.kafka_security import SecureListeners
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_security import AuthBroker, Certificates

Report = Callable[[str], None]
EACH_BROKER = ("broker_550", pytest.param("broker_497", marks=pytest.mark.nightly))
_figures = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    """Takes a line for the end of pytest's output: a figure that is worth knowing and nothing to assert."""
    return pytestconfig.stash.setdefault(_figures, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_figures, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def _rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker("5.5.0", tmp_path_factory.mktemp("broker-5.5.0"), {"brokerRole": "SYNC_MASTER"}) as running:
        yield running


@pytest.fixture(scope="module")
def broker_550(_rocketmq: Broker) -> Broker:
    """This process's 5.5.0 broker, a lone SYNC_MASTER, whose producers wait for nobody unless `inSyncReplicas` is set.

    Other modules have written to it. It runs, whatever they did.
    """
    _rocketmq.ensure_started()
    return _rocketmq


@pytest.fixture(scope="module")
def broker_497(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A 4.9.7 broker, a lone master."""
    with Broker("4.9.7", tmp_path_factory.mktemp("broker-4.9.7")) as running:
        yield running


@pytest.fixture(scope="module", params=EACH_BROKER)
def each_broker(request: pytest.FixtureRequest) -> Broker:
    running: Broker = request.getfixturevalue(request.param)
    return running


@pytest.fixture(scope="session")
def kafka_keys(tmp_path_factory: pytest.TempPathFactory) -> SecureListeners:
    return SecureListeners(tmp_path_factory.mktemp("kafka-keys"))


@pytest.fixture(scope="session")
def _kafka(kafka_keys: SecureListeners, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(VERSIONS[-1], tmp_path_factory.mktemp("kafka"), security=kafka_keys) as running:
        yield running


@pytest.fixture(scope="module")
def newest_kafka(_kafka: KafkaBroker) -> KafkaBroker:
    """The process's broker of the newest version, which has other modules' topics. It runs, whatever they did."""
    _kafka.ensure_started()
    return _kafka


@pytest.fixture(scope="module", params=EACH_VERSION)
def each_kafka(
    request: pytest.FixtureRequest, kafka_keys: SecureListeners, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """That one, and in the nightly run an older one."""
    if request.param == VERSIONS[-1]:
        yield request.getfixturevalue("newest_kafka")
        return
    with KafkaBroker(request.param, tmp_path_factory.mktemp("older-kafka"), security=kafka_keys) as running:
        yield running


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def auth_broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[AuthBroker]:
    """5.5.0 that asks who one is, by TLS and nothing else. It is not stopped."""
    with AuthBroker(tmp_path_factory.mktemp("auth"), certificates) as running:
        yield running
