"""Real RocketMQ slaves replicate from the embedded master."""

from pathlib import Path
from typing import Any

import pytest

from sources.access.address import Address
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.embedded.master import MasterSettings
from sources.rocketmq.producer.producer import OutgoingMessage, Producer
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, loads
from tests.patience import wait_until
from tests.peers.rocketmq import Broker
from tests.peers.rocketmq_process import NameServer
from tests.sources.rocketmq.embedded.embedded import end_of, running_master
from tests.sources.rocketmq.embedded.stores import log_bytes
from tests.sources.rocketmq.embedded.test_double_write import wait_for_slaves

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

FILE_BYTES = 1024 * 1024
NEWEST = "5.5.0"
EACH_VERSION = (NEWEST, pytest.param("4.9.7", marks=pytest.mark.nightly))


def route(names: NameServer, topic: str) -> dict[str, Any] | None:
    with RemotingClient(Address.parse(names.address)) as client:
        answer = client.exchange(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found: dict[str, Any] = loads(answer.body)
    return found


@pytest.mark.parametrize("version", EACH_VERSION)
def test_producers_wait_for_a_real_slave(tmp_path: Path, version: str) -> None:
    """HA-03, MS-04, MS-09: acknowledged by it PUT_OK, without it SLAVE_NOT_AVAILABLE, and with it again PUT_OK.

    In the end it has the same files, which are several.
    """
    with NameServer(version, tmp_path / "names") as names:
        settings = MasterSettings(
            store=tmp_path / "master",
            port=0,
            ha_port=0,
            file_size_bytes=FILE_BYTES,
            register_every_s=0.5,
            broker_name="b1",
            cluster_name="c1",
            name_server=Address.parse(names.address),
            double_write=DoubleWriteSettings(role="SYNC_MASTER", slave_timeout_s=60),
        )
        with (
            running_master(settings) as master,
            Producer(master.address, answer_timeout_ms=70_000) as producer,
        ):

            def codes(count: int) -> set[int]:
                return {result.code for result in producer.send_all([OutgoingMessage("orders", b"x" * 4000)] * count)}

            assert codes(1) == {ResponseCode.SLAVE_NOT_AVAILABLE}
            wait_until(lambda: route(names, "orders") is not None, "the master at the name server")
            of_slave: dict[str, str | int] = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": names.address}
            with Broker(version, tmp_path / "slave", of_slave) as slave:
                wait_for_slaves(master, end_of(master.address))
                assert codes(200) == {ResponseCode.SUCCESS}
                slave.kill()
                wait_for_slaves(master)
                assert codes(10) == {ResponseCode.SLAVE_NOT_AVAILABLE}
                slave.start()
                wait_for_slaves(master, end_of(master.address))
                assert codes(200) == {ResponseCode.SUCCESS}
            end = end_of(master.address)
        assert end > FILE_BYTES
        assert slave.log_bytes(end) == log_bytes(tmp_path / "master")[:end]
