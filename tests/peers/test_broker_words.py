"""What real brokers say of themselves is what logtwin makes of it."""

from __future__ import annotations

import shutil

import pytest

from sources.offsets import Offset
from sources.rocketmq.broker_words import counted_for_s, ha_address
from sources.rocketmq.wire.client import RemotingClient
from tests.peers.rocketmq import Broker

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


def test_what_a_broker_says_of_itself_is_its_view(each_broker: Broker) -> None:
    with RemotingClient(each_broker.address) as client:
        config, used = client.broker_config(), [float(client.runtime_info()["commitLogDiskRatio"])]
        view = each_broker.opened().look()
        used.append(float(client.runtime_info()["commitLogDiskRatio"]))

    assert ha_address(config) == each_broker.ha_address
    assert counted_for_s(config) is None
    assert counted_for_s({**config, "inSyncReplicas": "3"}) == 22.0
    assert view.role == config["brokerRole"] == ("ASYNC_MASTER" if each_broker.version == "4.9.7" else "SYNC_MASTER")
    assert view.retention is not None
    assert (view.retention.file_size_bytes, view.retention.keeps_s) == (1024 * 1024, 72 * 3600.0)
    total_bytes = shutil.disk_usage(each_broker.store).total
    most, least = (max(0.85 - share, 0.0) * total_bytes for share in used)  # files go on a disk that is 85 % full
    assert min(most, least) * 0.99 <= (view.retention.room_bytes or 0) <= max(most, least) * 1.01
    assert view.retention.until_loss(view.bounds, view.bounds.end, age_s=0.0, growth_bytes_per_s=1.0) is None
    assert view.bounds.start == Offset(0)
