"""A real broker of 5.5.0 with authentication, authorization and TLS, found by a name server with TLS, and replicated.

What a run leaves and says, as loudly as it can, holds no secret.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from sources.errors import LogtwinError
from sources.options import MasterOptions, parse_options
from sources.registry import open_log
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from tests.patience import wait_until
from tests.peers.rocketmq_process import NameServer
from tests.peers.rocketmq_security import AuthBroker, Certificates
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


def test_a_log_and_its_metadata_come_over_and_no_secret_stays(certificates: Certificates, tmp_path: Path) -> None:
    """Spark's event log is what its UI shows: properties, plans, what tasks said."""
    folder = tmp_path / "job"
    with NameServer("5.5.0", tmp_path / "names", java_properties=certificates.properties()) as names:
        settings = {"namesrvAddr": names.address, "brokerIP1": "localhost", "brokerIP2": "localhost"}
        with AuthBroker(tmp_path / "broker", certificates, **settings) as broker:
            log = {
                "id": "rocketmq/b1",
                "name_server": names.address.replace("127.0.0.1", "localhost"),
                "connect_timeout_ms": 10_000,
                **broker.user.options,
                **certificates.options,
            }
            wait_until(lambda: is_found(log), "the broker at its name server")
            stored = send(broker, 20)
            said = replicate_loudly(log, folder)
    assert_whole(folder / "lake", stored, "rocketmq/b1")
    assert (folder / "lake" / "topics").exists()

    texts = [said, *(file.read_bytes() for file in folder.rglob("*") if file.is_file())]
    assert b"DEBUG:py4j" in said
    assert [text for text in texts if re.search(rb"^\d\d:\d\d:\d\d DEBUG \w+: ", text, re.MULTILINE)]  # Spark's
    place = broker.user.options["secret_key"].encode()
    assert [text for text in texts if place in text]  # else it is no wonder that there is nothing
    accounts = [value for one in (broker.user, broker.admin) for value in (one.name, one.key)]
    secrets = [*accounts, certificates.key_password]
    assert not [secret for secret in secrets for text in texts if secret.encode() in text]


def is_found(log: Mapping[str, object]) -> bool:
    with suppress(LogtwinError):
        open_log(parse_options(MasterOptions, log, where="test")).bounds()
        return True
    return False


def send(broker: AuthBroker, count: int) -> bytes:
    """So many messages, as the broker's admin; all that its log holds then."""
    admin = broker.admin.security(broker.tls)
    with Producer(broker.address, security=admin) as producer:
        list(producer.send_all(OutgoingMessage("orders", b"message %d" % number) for number in range(count)))
    with broker.client(admin) as client:
        return broker.log_bytes(client.commit_log_bounds().end)


def replicate_loudly(log: Mapping[str, object], folder: Path) -> bytes:
    """``logtwin replicate --available-now``, a process of its own; all that it and its Spark say."""
    events = folder / "events"
    events.mkdir(parents=True)
    sections = {
        "[[logs]]": log,
        "[metadata]": {"first_after_s": 0.0},
        "[spark]": {
            "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{events}",
            "spark.eventLog.compress": "false",
        },
    }  # fmt: skip
    lines = [f"warehouse = {json.dumps(str(folder / 'lake'))}"]
    for head, section in sections.items():
        lines += [head, *(f"{json.dumps(name)} = {json.dumps(one)}" for name, one in section.items())]
    job = folder / "job.toml"
    job.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-c", LOUD, "replicate", "--config", str(job), "--available-now"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "LOGTWIN_CACHE": str(own_cache(folder))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr
