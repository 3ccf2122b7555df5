"""Sets up and runs a real Kafka broker (KRaft) from its jars, on loopback.

What must hold: a store is formatted once, and can be used again on other ports.
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from pipeline.config.jars import FROM_ENVIRONMENT, JarsConfig
from pipeline.spark.jars import JarSet, java
from pipeline.system.processes import child_process, free_port
from sources.errors import MasterError

Settings: TypeAlias = Mapping[str, str | int]
"""Lines of server.properties."""

VERSION: Final = "4.3.1"
CONTROLLER_ID: Final = 1
STARTED: Final = "Kafka Server started"
"""The line that a broker logs once it takes requests."""

_START_TIMEOUT_S: Final = 90.0
_LOOK_EVERY_S: Final = 0.1
_MEMORY: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC")
_LOGGING: Final = (  # Kafka ships slf4j without a logger behind it
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_SMALL: Final[Settings] = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 6000,  # a killed broker can register again only after this
    "broker.heartbeat.interval.ms": 500,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,  # by default half of the heap
    "log.index.size.max.bytes": 256 * 1024,
}


@contextmanager
def running_broker(home: Path, jars: JarsConfig = FROM_ENVIRONMENT) -> Iterator[str]:
    """Run a single broker on free ports; it writes only below `home`. Yields its address for ``bootstrap.servers``.

    Raises ConfigurationError if Kafka or Java is missing, MasterError if the broker does not start.
    """
    home = home.absolute()
    port = free_port(1)
    command = prepared(VERSION, home, lone_settings(home / "data", port), jars=jars)
    log_file = home / "broker.log"
    said = subprocess.STDOUT
    with (
        log_file.open("w") as out,
        child_process(command, cwd=home, stdin=subprocess.DEVNULL, stdout=out, stderr=said, text=True) as process,
    ):
        _wait_until_started(process, log_file)
        yield f"127.0.0.1:{port}"


def lone_settings(data: Path, port: int) -> dict[str, str | int]:
    """The settings of a broker that is its own controller, on the next port. `data` is the folder of its store."""
    broker, controller = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    return {
        "node.id": CONTROLLER_ID,
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"{CONTROLLER_ID}@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        **_SMALL,
    }


def prepared(
    version: str,
    home: Path,
    settings: Settings,
    *,
    cluster_id: str | None = None,
    scram_users: Sequence[str] = (),
    jars: JarsConfig = FROM_ENVIRONMENT,
) -> list[str]:
    """Write server.properties to `home`, and format the store if it is new. Returns the command that starts the broker.

    A new store belongs to the cluster `cluster_id`, or to a new one; `scram_users` are in the format of
    ``--add-scram``. Raises ConfigurationError if Kafka or Java is missing, MasterError if formatting fails.
    """
    program = _program(version, jars)
    home.mkdir(parents=True, exist_ok=True)
    properties = home / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    if not (Path(str(settings["log.dirs"])) / "meta.properties").exists():
        _format(program, properties, cluster_id or new_cluster_id(), scram_users)
    return [*program, "kafka.Kafka", str(properties)]


def new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def jar_sets(version: str) -> tuple[JarSet, ...]:
    """Kafka's jars, and a logger for it."""
    kafka = JarSet.of("org.apache.kafka", "kafka_2.13", version, beside_spark=False)
    return (kafka, JarSet.of("org.slf4j", "slf4j-simple", "1.7.36", beside_spark=False))


def _program(version: str, given: JarsConfig) -> list[str]:
    command = java()
    folders = [one.jars(given)[0].parent for one in jar_sets(version)]
    return [command, *_MEMORY, *_LOGGING, "-cp", ":".join(f"{folder}/*" for folder in folders)]


def _format(program: list[str], properties: Path, cluster_id: str, scram_users: Sequence[str]) -> None:
    # An id may begin with a dash, so it must not be a separate argument.
    command = [*program, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"]
    for user in scram_users:
        command += ["--add-scram", user]
    command += ["--config", str(properties)]
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, capture_output=True, text=True, check=False, timeout=_START_TIMEOUT_S
    )
    if done.returncode != 0:
        raise MasterError(
            f"Kafka could not format the store of {properties}", found=(done.stdout + done.stderr).strip()[-1500:]
        )


def _wait_until_started(process: subprocess.Popen[str], log_file: Path) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while STARTED not in log_file.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise MasterError(
                "the Kafka broker did not start",
                expected=f"{STARTED!r} within {_START_TIMEOUT_S:g} s",
                found=f"exit code {process.poll()}",
                hint=f"It said why in {log_file}.",
            )
        time.sleep(_LOOK_EVERY_S)
