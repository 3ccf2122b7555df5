"""Real Kafka brokers (KRaft) on loopback, for tests: one that is its own controller, or several with one controller."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pipeline.jars import java, resolve
from tests.peers.kafka_security import SecureListeners
from tests.peers.ports import free_port
from tests.peers.process import PeerFailed, PeerProcess

VERSIONS = ("3.9.2", "4.3.1")
_CONTROLLER_ID = 1
_FORMAT_TIMEOUT_S = 90
_MEMORY = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING = (  # Kafka brings the interface of a logger, and none
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_SMALL: Mapping[str, str | int] = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 6000,  # one that was killed is not let in again before
    "broker.heartbeat.interval.ms": 500,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "log.initial.task.delay.ms": 500,  # retention and compaction begin so long after the start; by default 30 s
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,  # by default half of the heap
    "log.index.size.max.bytes": 256 * 1024,
}


class KafkaBroker(PeerProcess):
    """A real broker as a context manager; everything it writes is below `home`.

    It listens at `server` without protection, and, with `security`, also at `sasl_server` (SASL_SSL) and `tls_server`
    (SSL that asks for a client's certificate). `settings` are lines of server.properties over those of a lone broker
    that is its own controller. It can be stopped and started again on its store, on the same ports.

    Of several nodes each but the first is given the first as its `controller`.
    """

    kind = "kafka"
    booted = "Kafka Server started"

    def __init__(
        self,
        version: str,
        home: Path,
        settings: Mapping[str, str | int] | None = None,
        *,
        security: SecureListeners | None = None,
        node_id: int = _CONTROLLER_ID,
        controller: KafkaBroker | None = None,
    ) -> None:
        super().__init__(version, home)
        self.node_id = node_id
        self.port = free_port(1, 2, 3)
        self.data = home / "data"
        self.cluster_id: str = controller.cluster_id if controller else _new_cluster_id()
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
            "node.id": self.node_id,
            "process.roles": "broker,controller" if is_controller else "broker",
            "controller.quorum.voters": f"{_CONTROLLER_ID}@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": _joined({name: f"127.0.0.1:{at.partition(':')[2]}" for name, at in bound.items()}),
            "advertised.listeners": _joined(listeners),
            "listener.security.protocol.map": ",".join(
                f"{name}:{name if name in listeners else 'PLAINTEXT'}" for name in (*listeners, "CONTROLLER")
            ),
            "log.dirs": str(self.data),
            **_SMALL,
            **(self._security.settings() if self._security else {}),
        }

    def _prepare(self) -> list[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        properties = self.home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        jars = (resolve("org.apache.kafka", "kafka_2.13", self.version), resolve("org.slf4j", "slf4j-simple", "1.7.36"))
        program = [java(), *_MEMORY, *_LOGGING, "-cp", ":".join(f"{folder}/*" for folder in jars)]
        if not (self.data / "meta.properties").exists():
            self._format(program, properties)
        return [*program, "kafka.Kafka", str(properties)]

    def _format(self, program: list[str], properties: Path) -> None:
        command = [*program, "kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}"]
        for user in self._security.scram_users() if self._security else ():
            command += ["--add-scram", user]
        command += ["--config", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FORMAT_TIMEOUT_S)
        if done.returncode != 0:
            raise PeerFailed(f"kafka {self.version} could not format {self.data}:\n{done.stdout}{done.stderr}")


@contextmanager
def kafka_cluster(
    version: str, home: Path, size: int, settings: Mapping[str, str | int] | None = None
) -> Iterator[list[KafkaBroker]]:
    """Brokers with the ids 1, 2, …; the first is also the controller, so that any other may be killed."""
    with ExitStack() as stack:
        first = stack.enter_context(KafkaBroker(version, home / "1", settings))
        others = [
            stack.enter_context(KafkaBroker(version, home / str(node_id), settings, node_id=node_id, controller=first))
            for node_id in range(2, size + 1)
        ]
        yield [first, *others]


def _joined(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{where}" for name, where in listeners.items())


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
