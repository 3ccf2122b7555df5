"""Rows of the ledger and incidents, of which a test says only what it is about, and what they add up to."""

from pathlib import Path
from typing import Any

from pipeline.inspect.coverage import read_accounts
from sinks.proof.completeness import Completeness
from sinks.values.continuity import checksum_of
from sinks.values.incident import Action, Incident
from sinks.values.ledger_row import LedgerRow
from sources.loss import Condition
from sources.offsets import LogId, Offset


def ledger_row(start: int, end: int, raw: bytes | None = None, **said: Any) -> LedgerRow:
    """A row of one record; its checksum is that of `raw`, if that is given."""
    values: dict[str, Any] = {
        "records": 1, "bytes": end - start if raw is None else len(raw),
        "checksum": "sha256:00" if raw is None else checksum_of(raw),
        "first_store_timestamp": None, "last_store_timestamp": None, "committed_at": 0,
    }  # fmt: skip
    return LedgerRow(start=Offset(start), end=Offset(end), **{**values, **said})


def incident(start: int, end: int, condition: Condition = Condition.GAP, **said: Any) -> Incident:
    values: dict[str, Any] = {"cause": "nothing there", "action": Action.SKIPPED, "detected_at": 7}
    return Incident(condition=condition, start=Offset(start), end=Offset(end), **{**values, **said})


def completeness(lake: Path, log_id: LogId) -> Completeness:
    """What the tables say of the log, of which nothing is a problem."""
    accounts = read_accounts(str(lake), log_id)
    assert accounts is not None
    found = Completeness.of(accounts)
    assert found.problem(log_id) is None
    return found
