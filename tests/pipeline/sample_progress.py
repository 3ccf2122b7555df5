"""A log that is replicated just now, for tests of whoever shows or judges that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pipeline.monitoring.progress import PartitionProgress, Phase, Progress
from sources.master import SessionState
from sources.offsets import Offset
from sources.retention import UntilLoss

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
    session=SessionState(Offset(400), NOW, reconnects=2, last_error="it broke"),
    master_minimum=Offset(0),
    master_maximum=Offset(900),
    lag_s=1.5,
    until_loss=UntilLoss(7000, 86_400.0),
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
    until_loss=None,
    partitions={
        0: PartitionProgress(minimum=Offset(0), position=Offset(300), acknowledged=Offset(250), maximum=Offset(600)),
        2: PartitionProgress(minimum=Offset(0), position=Offset(200), acknowledged=None, maximum=Offset(300)),
        10: PartitionProgress(minimum=None, position=None, acknowledged=None, maximum=None),
    },
)
"""The same of a topic: two of its partitions add up to it, the third was not asked for yet."""
