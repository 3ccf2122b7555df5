"""Consumer groups as others see and use them: Kafka's tools, and Kafka's own consumer as a member."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.spark.jars import java, resolve
from pipeline.system.processes import ending_with_us
from tests.patience import PATIENCE_S
from tests.peers.kafka import KafkaBroker
from tests.peers.kafka_traffic import admin


def seen_by_tools(broker: KafkaBroker, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Topic and partition -> what the group committed: an offset and its leader epoch, -1 without one."""
    with admin(broker) as client:
        offsets = client.list_group_offsets(group)[group]
    return {(tp.topic, tp.partition): (found.offset, found.leader_epoch) for tp, found in offsets.items()}


@contextmanager
def java_member(broker: KafkaBroker, group: str, protocol: str, topic: str) -> Iterator[None]:
    """Kafka's own consumer in the group, which has a partition of the topic; it leaves at the end."""
    jars = resolve("org.apache.kafka", "kafka_2.13", broker.version)
    program = Path(__file__).parent / "java" / "JoinGroup.java"
    command = [java(), "-Xmx128m", "-cp", f"{jars}/*", str(program), broker.server, group, protocol, topic]
    process = subprocess.Popen(
        ending_with_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"joined\n"
        yield
        process.communicate(b"leave\n", timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
