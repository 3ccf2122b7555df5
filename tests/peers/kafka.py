"""Real Kafka brokers (KRaft) on loopback, for tests: one that is its own controller, or several with one controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pipeline.demo.kafka_broker import CONTROLLER_ID, STARTED, Settings, lone_settings, new_cluster_id, prepared
from pipeline.system.processes import free_port
from tests.peers.kafka_security import SecureListeners
from tests.peers.process import PeerProcess

VERSIONS = ("3.9.2", "4.3.1")
EACH_VERSION = (VERSIONS[1], pytest.param(VERSIONS[0], marks=pytest.mark.nightly))
"""Parameters: `make test` has the newest."""
_FOR_TESTS: Settings = {
    "log.retention.ms": -1,  # many records have times of long ago
    "log.initial.task.delay.ms": 500,  # retention and compaction begin so long after the start; by default 30 s
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 500,
}


class KafkaBroker(PeerProcess):
    """A real broker as a context manager; everything it writes is below `home`.

    It listens at `server` without protection, and, with `security`, also at `sasl_server` (SASL_SSL) and `tls_server`
    (SSL that asks for a client's certificate). `settings` are lines of server.properties over those of a lone broker
    that is its own controller. It can be stopped and started again on its store, on the same ports.

    Of several nodes each but the first is given the first as its `controller`.
    """

    kind = "kafka"
    booted = STARTED

    def __init__(
        self,
        version: str,
        home: Path,
        settings: Settings | None = None,
        *,
        security: SecureListeners | None = None,
        node_id: int = CONTROLLER_ID,
        controller: KafkaBroker | None = None,
    ) -> None:
        super().__init__(version, home)
        self.node_id = node_id
        self.port = free_port(1, 2, 3)
        self.data = home / "data"
        self.cluster_id: str = controller.cluster_id if controller else new_cluster_id()
        self._controller_port = controller.port + 1 if controller else self.port + 1
        self._security = security
        self._settings = self._defaults() | dict(settings or {})

    @property
    def server(self) -> str:
        """Without protection, for ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_server(self) -> str:
        """SASL_SSL, by the name that is in the certificate."""
        return f"localhost:{self.port + 2}"

    @property
    def tls_server(self) -> str:
        """SSL, by the name that is in the certificate; for clients that have one, too."""
        return f"localhost:{self.port + 3}"

    def partition_folder(self, topic: str, partition: int) -> Path:
        """Where it keeps the segment files of a partition."""
        return self.data / f"{topic}-{partition}"

    def _defaults(self) -> dict[str, str | int]:
        is_controller = self._controller_port == self.port + 1
        listeners = {"PLAINTEXT": self.server}
        if self._security:
            listeners |= {"SASL_SSL": self.sasl_server, "SSL": self.tls_server}
        bound = listeners | ({"CONTROLLER": f"127.0.0.1:{self._controller_port}"} if is_controller else {})
        return {
            **lone_settings(self.data, self.port),
            **_FOR_TESTS,
            "node.id": self.node_id,
            "process.roles": "broker,controller" if is_controller else "broker",
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{self._controller_port}",
            "listeners": _joined({name: f"127.0.0.1:{at.partition(':')[2]}" for name, at in bound.items()}),
            "advertised.listeners": _joined(listeners),
            "listener.security.protocol.map": ",".join(
                f"{name}:{name if name in listeners else 'PLAINTEXT'}" for name in (*listeners, "CONTROLLER")
            ),
            **(self._security.settings() if self._security else {}),
        }

    def _prepare(self) -> list[str]:
        users = self._security.scram_users() if self._security else ()
        return prepared(self.version, self.home, self._settings, cluster_id=self.cluster_id, scram_users=users)


@contextmanager
def kafka_cluster(version: str, home: Path, size: int) -> Iterator[list[KafkaBroker]]:
    """Brokers with the ids 1, 2, …; the first is also the controller, so that any other may be killed."""
    with ExitStack() as stack:
        first = stack.enter_context(KafkaBroker(version, home / "1"))
        others = [
            stack.enter_context(KafkaBroker(version, home / str(node_id), node_id=node_id, controller=first))
            for node_id in range(2, size + 1)
        ]
        yield [first, *others]


def _joined(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{where}" for name, where in listeners.items())
