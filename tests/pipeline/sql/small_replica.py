"""A replica of a few made messages, and a configuration that names it."""

from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import write_deltalake

from sinks.tables import LEDGER, LEDGER_SCHEMA, LOG, LOG_SCHEMA
from tests.pipeline.job_toml import job_toml
from tests.sinks.views.made_logs import message

TEXTS: Final = (b"first", b'{"order": 4711}', b"\xff\xfe", b"\x1b[2J", "消息".encode())


def small_replica(folder: Path) -> Path:
    """The configuration; its log has a message of `TEXTS` every hundred bytes, of topic orders."""
    rows = [message(number * 100, body=body, queue_offset=number) for number, body in enumerate(TEXTS)]
    write_deltalake(LOG.path(f"{folder}/lake"), pa.Table.from_pylist(rows, LOG_SCHEMA))
    covered = {"log_id": rows[0]["log_id"], "epoch": 0, "start": 0, "end": len(rows) * 100, "records": len(rows)}
    write_deltalake(LEDGER.path(f"{folder}/lake"), pa.Table.from_pylist([covered], LEDGER_SCHEMA))
    return job_toml(folder)
