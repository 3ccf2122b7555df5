"""A record with a time that no calendar of ours has: whatever shows times shows the others, and says what it has."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pipeline.inspect.coverage import LogCoverage, coverage_blocks
from pipeline.report.finding.questions import dicts_of
from pipeline.report.finding.ranges import COLUMNS, LedgerRanges, log_facts
from sinks.proof.completeness import Completeness, Missing, Reason, Stretch
from sinks.tables import LEDGER_SCHEMA
from sources.offsets import LogId, Offset
from sources.records import TIMESTAMP
from tests.log_lines import printed
from tests.spans import span

LOG = LogId("rocketmq", "broker-a")
NOON_US = 1_709_208_000_000_000  # 2024-02-29 12:00:00 UTC
ODD = [NOON_US * 1000, (1 << 63) - 1, -(1 << 62)]
"""Microseconds for milliseconds; the greatest there is; one long before any year."""


@pytest.mark.parametrize("odd_us", ODD)
def test_coverage_of_all_logs(odd_us: int) -> None:
    complete = Completeness(
        position=Offset(300),
        whole=(Stretch(span(0, 100), NOON_US, odd_us), Stretch(span(200, 300), odd_us, NOON_US)),
        missing=(
            Missing(range=span(100, 200), reason=Reason.UNEXPLAINED, incident=None, after_us=odd_us, before_us=0),
        ),
        overlaps=(),
        beyond=None,
    )
    found = LogCoverage(log_id=LOG, epoch=0, complete=complete)
    said = found.as_json()
    assert said["whole"][0]["first_stored"] == "2024-02-29T12:00:00.000+00:00"
    assert said["whole"][0]["last_stored"] == said["whole"][1]["first_stored"] == said["missing"][0]["stored_after"]
    assert said["whole"][0]["last_stored"][0] in "+-"
    assert "2024-02-29 12:00:00 UTC" in printed(coverage_blocks([found]))


@pytest.mark.parametrize("odd_us", ODD)
def test_a_reports_ledger(odd_us: int) -> None:
    """The page has no axis for such a time: it shows a dash for it, and the others."""
    rows = [
        {
            "log_id": log_id, "start": 0, "end": 100, "records": 1, "bytes": 100, "first_store_timestamp": NOON_US,
            "last_store_timestamp": at_us, "committed_at": NOON_US, "origin": "stream", "deleted_at": None,
        }
        for log_id, at_us in (("rocketmq/a", odd_us), ("rocketmq/b", NOON_US))
    ]  # fmt: skip
    ledger = pa.Table.from_pylist(rows, schema=pa.schema([LEDGER_SCHEMA.field(name) for name in COLUMNS]))
    odd, sound = log_facts(LedgerRanges.of(ledger), [])
    assert (odd.complete_through, odd.records) == (None, 1)
    assert sound.complete_through == datetime(2024, 2, 29, 12, tzinfo=UTC)


def test_a_reports_rows() -> None:
    table = pa.table({"name": ["a", "b", "c", "d"], "at": pa.array([NOON_US, None, *ODD[:2]], TIMESTAMP)})
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert [(one["name"], one["at"]) for one in dicts_of(table)] == [("a", noon), ("b", None), ("c", None), ("d", None)]
