"""What a broker with an authorizer lets us do is known before a job needs it."""

from pathlib import Path

import pytest
from kafka.protocol.admin import CreateAclsRequest

from pipeline.config.configuration import parse
from pipeline.inspect.first_contact import contacts
from sources.kafka.cluster.connection import connected
from sources.kafka.cluster.settings import KafkaSettings
from tests.peers.kafka import VERSIONS, KafkaBroker
from tests.peers.kafka_security import SecureListeners
from tests.peers.kafka_traffic import create_topic

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPIC, GROUP = 2, 3
READ, DESCRIBE = 3, 8


def granted(broker: KafkaBroker, user: str, kind: int, name: str, operation: int) -> None:
    one = CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=3, principal=f"User:{user}", host="*",
        operation=operation, permission_type=3,
    )  # fmt: skip
    with connected(KafkaSettings(servers=(broker.server,))) as cluster:
        (result,) = cluster.call(CreateAclsRequest(creations=[one])).results
    assert result.error_code == 0


def test_rights_that_are_missing_are_named(
    kafka_keys: SecureListeners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_USER", kafka_keys.user)
    monkeypatch.setenv("TEST_PASSWORD", kafka_keys.password)
    with KafkaBroker(VERSIONS[-1], tmp_path, AUTHORIZED, security=kafka_keys) as broker:
        create_topic(broker, "orders", 2)
        topic = {
            "id": "kafka/c/orders", "servers": broker.sasl_server, "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN", "sasl_username": "env:TEST_USER", "sasl_password": "env:TEST_PASSWORD",
            "ssl_ca_file": str(kafka_keys.ca_file),
        }  # fmt: skip
        config = parse({"topics": [topic]}, where="job.toml")

        def told() -> str:
            (one,) = contacts(config, 60, asks_rights=True)
            return one.said if one.error is None else str(one.error)

        granted(broker, kafka_keys.user, TOPIC, "orders", DESCRIBE)
        granted(broker, kafka_keys.user, GROUP, "logtwin", DESCRIBE)
        assert "lacks rights on topic orders; expected READ and DESCRIBE, found no READ" in told()
        granted(broker, kafka_keys.user, TOPIC, "orders", READ)
        assert "lacks rights on group logtwin; expected READ and DESCRIBE, found no READ" in told()
        granted(broker, kafka_keys.user, GROUP, "logtwin", READ)
        assert "2 partitions, 0 offsets" in told()
