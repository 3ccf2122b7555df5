"""A log that is replicated just now, for tests of whoever shows or judges that."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline.progress import Phase, Progress
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
