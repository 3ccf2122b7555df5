"""A real broker of 5.5.0 with authentication, authorization and TLS, found by a name server with TLS, and replicated.

What a run leaves and says, as loudly as it can, holds no secret.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import Config, parse
from sources.registry import open_log
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.patience import wait_until
from tests.peers.rocketmq_process import NameServer
from tests.peers.rocketmq_security import Account, AuthBroker, Certificates
from tests.pipeline.read_back import assert_whole
from tests.pipeline.running import own_cache

LOUD = """
import logging
logging.basicConfig(level=1)
logging.Logger.setLevel = lambda *_: None
from pyspark import SparkContext
set_level = SparkContext.setLogLevel
SparkContext.setLogLevel = lambda context, _: set_level(context, "DEBUG")
from pipeline.cli.app import main
main()
"""

pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class Site:
    names: NameServer
    broker: AuthBroker
    certificates: Certificates

    def config(self, warehouse: Path, account: Account, **log: object) -> Config:
        given = {
            "id": "rocketmq/b1",
            "name_server": self.names.address.replace("127.0.0.1", "localhost"),
            "connect_timeout_ms": 10_000,
            **account.options,
            **self.certificates.options,
            **log,
        }
        metadata = {"first_after_s": 0.0}
        values = {"warehouse": str(warehouse), "trigger_interval_s": 0.1, "metadata": metadata, "logs": [given]}
        return parse(values, where="test")

    @property
    def secrets(self) -> list[str]:
        accounts = (self.broker.user, self.broker.admin)
        return [*(value for one in accounts for value in (one.name, one.key)), self.certificates.key_password]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("site")
    certificates = Certificates(home / "certificates")
    with NameServer("5.5.0", home / "names", java_properties=certificates.properties()) as names:
        settings = {"namesrvAddr": names.address, "brokerIP1": "localhost", "brokerIP2": "localhost"}
        with AuthBroker(home / "broker", certificates, **settings) as broker:
            found = Site(names, broker, certificates)
            log = open_log(found.config(home, broker.user).logs[0])
            wait_until(lambda: _is_found(log), "the broker at its name server")
            yield found


def _is_found(log: object) -> bool:
    try:
        log.bounds()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - whatever keeps it from being found passes or fails the test in the end
        return False
    return True


def send(site: Site, count: int) -> bytes:
    """So many messages, as the broker's admin; all that its log holds then."""
    admin = site.broker.admin.security(site.broker.tls)
    with Producer(site.broker.address, security=admin) as producer:
        list(producer.send_all(OutgoingMessage("orders", b"message %d" % number) for number in range(count)))
    with site.broker.client(admin) as client:
        return site.broker.log_bytes(client.commit_log_bounds().end)


def test_a_log_and_its_metadata_come_over_and_no_secret_stays(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    """Spark's event log is what its UI shows: properties, plans, what tasks said."""
    log = send(site, 20)
    events = tmp_path / "events"
    events.mkdir()
    loud = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
        "spark.eventLog.compress": "false",
    }
    said = replicate_loudly(site.config(tmp_path / "lake", site.broker.user), loud, tmp_path)
    assert_whole(tmp_path / "lake", log, "rocketmq/b1")

    texts = [said, *(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())]
    assert b"DEBUG:py4j" in said
    assert [text for text in texts if re.search(rb"^\d\d:\d\d:\d\d DEBUG \w+: ", text, re.MULTILINE)]  # Spark's
    place = site.broker.user.options["secret_key"].encode()
    assert [text for text in texts if place in text]  # else it is no wonder that there is nothing
    assert not [secret for secret in site.secrets for text in texts if secret.encode() in text]


def replicate_loudly(config: Config, spark_properties: dict[str, str], folder: Path) -> bytes:
    """``logtwin replicate --available-now``, a process of its own; all that it and its Spark say."""
    job = folder / "job.toml"
    (log,) = config.logs
    given = {name: getattr(log, name) for name in log.model_fields_set}
    lines = [f"warehouse = {json.dumps(config.warehouse)}", "[[logs]]"]
    lines += [f"{name} = {json.dumps(one if isinstance(one, bool | int) else str(one))}" for name, one in given.items()]
    lines += ["[metadata]", "first_after_s = 0.0", "[spark]"]
    lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in spark_properties.items()]
    job.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-c", LOUD, "replicate", "--config", str(job), "--available-now"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "LOGTWIN_CACHE": str(own_cache(folder))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr
