"""Three controllers, three brokers, ten elections: what was answered OK is in the table once, and the table is the log.

A producer sends while its master is killed; every third time a controller and the name server in it are killed, too.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.patience import wait_until
from tests.peers.elected import elected_group
from tests.peers.replicating import (
    assert_holds,
    assert_same_as_files,
    end_of,
    replicating,
    wait_for_all,
    wait_for_position,
)
from tests.peers.rocketmq import Broker
from tests.peers.sender import Sender, Sent

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ELECTIONS = 10
GOES_ON_WITHIN_S = 10.0


def test_ten_elections(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    sent: dict[str, list[Sent]] = {}
    waits_s: list[float] = []
    with (
        elected_group(tmp_path, 3, controllers=3, settings={"allAckInSyncStateSet": "true"}) as group,
        ThreadPoolExecutor(1) as pool,
    ):
        with replicating(spark, lake, group.brokers[0], controllers=group.controllers) as job:
            master = group.brokers[0]
            for turn in range(ELECTIONS):
                during = pool.submit(Sender(master.port, f"during-{turn}").send, 300, rate_per_s=150)
                time.sleep(1)
                if turn % 3 == 2:
                    group.name_servers[turn // 3].kill()
                    group.name_servers[turn // 3].start()
                master.kill()
                before, master = master, group.await_another_master(master)
                elected_at_s = time.monotonic()
                sent[f"first-{turn}"] = _first_answer(master, f"first-{turn}")
                wait_for_position(job, end_of(master))
                waits_s.append(round(time.monotonic() - elected_at_s, 1))
                before.start()
                sent[f"during-{turn}"] = during.result()
                group.await_in_sync(3)
                assert {one["brokerId"] for one in group.in_sync()} == {1, 2, 3}
            wait_for_all(job, master)
        assert_same_as_files(lake, job, master)
    for topic, messages in sent.items():
        assert_holds(lake, messages, topic)
    answered = sum(one.is_ok for messages in sent.values() for one in messages)
    print(f"{ELECTIONS} elections, {answered} answered OK; in the table after {waits_s} s")  # noqa: T201 - docs/soak.md
    assert max(waits_s) <= GOES_ON_WITHIN_S


def _first_answer(master: Broker, topic: str) -> list[Sent]:
    sender = Sender(master.port, topic)
    sent: list[Sent] = []

    def is_taken() -> bool:
        sent.extend(sender.send(1))
        return sent[-1].is_ok

    wait_until(is_taken, "a master that takes messages")
    return sent
