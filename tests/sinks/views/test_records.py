"""What the place of a record in the log makes of it."""

import ipaddress

import pytest

from sinks.tables import LOG, metadata_table
from sources.metadata import TOPICS
from tests.sinks.views.lake import Asked, Row
from tests.sinks.views.made_logs import message
from tests.truth import Fixture

pytestmark = pytest.mark.spark

TRANSACTION_TYPES = {0: "none", 4: "prepared", 8: "commit", 12: "rollback"}


def test_records_are_those_of_rocketmq(asked: Asked, fixture_log: Fixture, log_id: str) -> None:
    """Their message ids are, and whether they are in a consume queue."""
    records = [row for row in fixture_log.rows if not row.get("blank")]
    assert {len(row["msg_id"]) for row in records} == {32, 56}  # of IPv4 and of IPv6
    found = [(row["offset"], row["message_id"], row["is_queued"]) for row in asked.rows("records", log_id, "offset")]
    assert found == [(row["physical_offset"], row["msg_id"], row["in_consume_queue"]) for row in records]


HOSTS = {
    "10.20.30.255:1": (ipaddress.ip_address("10.20.30.255"), 1, 0),
    "1.0.0.9:65535": (ipaddress.ip_address("1.0.0.9"), 65535, 0),
    "[fe80:0:0:0:202:b3ff:fe1e:8329]:10911": (ipaddress.ip_address("fe80::202:b3ff:fe1e:8329"), 10911, 32),
    "192.168.1.2:10911": (ipaddress.ip_address("::ffff:192.168.1.2"), 10911, 32),  # as Java prints it
}
SYSTEM_TOPICS = (
    "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c1",
    "broker-of-5", "broker-of-4", "c1", "c1_REPLY_TOPIC",
)  # fmt: skip
OTHER_TOPICS = (
    "orders", "tbw102", "RMQ_SYS_orders", "my_rmq_sys_topic", "broker-a", "broker-b", "c2", "c2_REPLY_TOPIC",
    "%RETRY%cg", "%DLQ%cg", "inherited", "single",
)  # fmt: skip
"""The id of the log is rocketmq/broker-a: that is no name of the broker."""
TOPIC_ROWS = [
    {"topic": "rmq_sys_SYNC_BROKER_MEMBER_broker-of-5", "perm": 1, "attributes": []},
    {"topic": "broker-of-4", "perm": 7, "read_queue_nums": 1, "write_queue_nums": 1},
    {"topic": "broker-b", "perm": 7, "read_queue_nums": 1, "write_queue_nums": 1, "log_id": "rocketmq/other"},
    {"topic": "inherited", "perm": 7, "read_queue_nums": 4, "write_queue_nums": 4},
    {"topic": "single", "perm": 6, "read_queue_nums": 1, "write_queue_nums": 1},
]
"""What brokers of 5.x and of 4.x say of themselves, and what makes no topic the broker's."""


MADE_ROWS = {
    LOG: [
        *(message(at, "h", store_host=host, sys_flag=flag) for at, (host, (_, _, flag)) in enumerate(HOSTS.items())),
        message(2**62, "h"),
        *(
            message(1000 + at, topic, properties={"CLUSTER": "c1"})
            for at, topic in enumerate(SYSTEM_TOPICS + OTHER_TOPICS)
        ),
        *(message(1100 + at, topic) for at, topic in enumerate(("c1", "c1_REPLY_TOPIC"))),  # without a cluster
        *(message(2000 + bits, "t", sys_flag=bits | 1) for bits in TRANSACTION_TYPES),
        message(3000, None, kind="blank"),
        message(3100, log_id="dister/orders"),
    ],
    metadata_table(TOPICS): [{"log_id": "rocketmq/broker-a", "is_current": True, **row} for row in TOPIC_ROWS],
}


@pytest.fixture(scope="module")
def made(asked: Asked) -> list[Row]:
    return asked.rows("records", "rocketmq/broker-a", "offset")


def test_message_id_of_any_host_and_offset(made: list[Row]) -> None:
    found = [row for row in made if row["topic"] == "h"]
    hosts = [*HOSTS.values(), (ipaddress.ip_address("127.0.0.1"), 10911, 0)]
    for row, (address, port, _) in zip(found, hosts, strict=True):
        stored = address.packed + port.to_bytes(4) + row["offset"].to_bytes(8)
        assert row["message_id"] == stored.hex().upper(), row["store_host"]


def test_system_topics_are_those_that_brokers_make(made: list[Row]) -> None:
    found = [(row["topic"], row["is_system"]) for row in made if 1000 <= row["offset"] < 1100]
    assert found == [(topic, True) for topic in SYSTEM_TOPICS] + [(topic, False) for topic in OTHER_TOPICS]
    assert [row["is_system"] for row in made if 1100 <= row["offset"] < 1200] == [False, False]


def test_half_messages_and_rollbacks_are_not_dispatched(made: list[Row]) -> None:
    found = [(row["offset"], row["transaction_type"], row["is_dispatched"]) for row in made if row["topic"] == "t"]
    expected = [(2000 + bits, name, name in ("none", "commit")) for bits, name in TRANSACTION_TYPES.items()]
    assert found == expected


def test_only_messages_of_rocketmq_are_there(asked: Asked, made: list[Row]) -> None:
    assert not [row for row in made if row["offset"] == 3000]
    assert asked.rows("records", "dister/orders") == []
