"""A log that is replicated just now, for tests of whoever shows or judges that."""

from dataclasses import replace
from datetime import UTC, datetime

from pipeline.monitoring.progress import PartitionProgress, Phase, Progress
from sources.offsets import Offset

NOW = datetime(2026, 11, 21, 14, 2, 11, tzinfo=UTC)
PROGRESS = Progress(
    log_id="rocketmq/broker-a",
    phase=Phase.RUNNING,
    role="slave",
    master="10.0.0.5:10912",
    master_role="SYNC_MASTER",
    started_at=Offset(0),
    received=Offset(600),
    position=Offset(500),
    acknowledged=Offset(400),
    connected_since=NOW.isoformat(),
    reconnects=2,
    last_error="it broke",
    master_minimum=Offset(0),
    master_maximum=Offset(900),
    lag_s=1.5,
    until_loss_bytes=7000,
    until_loss_s=86_400.0,
    records=5,
    bytes=500,
    batches=1,
)
TOPIC_PROGRESS = replace(
    PROGRESS,
    log_id="kafka/east/orders",
    role="consumer",
    master="10.0.0.5:9092",
    master_role=None,
    until_loss_bytes=None,
    until_loss_s=None,
    partitions={
        0: PartitionProgress(
            position=Offset(300), acknowledged=Offset(250), master_minimum=Offset(0), master_maximum=Offset(600)
        ),
        2: PartitionProgress(position=Offset(200), master_minimum=Offset(0), master_maximum=Offset(300)),
    },
)
"""The same of a topic, whose partitions add up to it."""
