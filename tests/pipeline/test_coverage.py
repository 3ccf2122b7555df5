"""``logtwin coverage``, on tables that are right and on one that somebody has touched."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.books.ledger import Ledger
from sources.loss import Condition
from sources.offsets import LogId, Offset, Position
from tests.pipeline.operator_at_work import Operator
from tests.sinks.accounts import incident, ledger_row
from tests.sinks.batches import opened, ranges
from tests.sinks.memory_master import MemoryMaster

LOG = LogId.parse("rocketmq/test")
# a record every 250 ms; every eleventh is a blank, which has no time
MASTER = MemoryMaster((10, 90, 300, 5, 5, 90) * 4, log_id=LOG)
LOST = incident(500, 600, Condition.BELOW_MINIMUM)


@pytest.fixture
def operator(session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    """Of a replica that began at 100, lost [500, 600), and is at 1500."""
    operator = Operator(tmp_path, capsys)
    operator.configure(path=str(tmp_path))
    replica = opened(session, operator.lake, MASTER)
    replica(ranges(100, 500, log_id=str(LOG)))
    replica.skip(LOST)
    replica(ranges(600, 1500, log_id=str(LOG)))
    return operator


def test_what_is_whole_what_is_missing_and_an_overlap(session: SparkSession, operator: Operator) -> None:
    said = operator.must("coverage", "--json")
    (found,) = json.loads(said.out)["logs"]
    assert (found["log"], found["epoch"], found["position"]) == ("rocketmq/test", 0, 1500)
    times = [f"2024-02-29T23:59:{seconds}+00:00" for seconds in ("30.500", "31.250", "32.000", "34.250")]
    assert found["whole"] == [
        {"start": 100, "end": 500, "first_stored": times[0], "last_stored": times[1]},
        {"start": 600, "end": 1500, "first_stored": times[2], "last_stored": times[3]},
    ]
    before = {"start": 0, "end": 100, "reason": "before the beginning", "stored_after": None, "stored_before": times[0]}
    lost = {"start": 500, "end": 600, "reason": "incident", "stored_after": times[1], "stored_before": times[2]}
    assert found["missing"] == [
        before | {"incident": None, "condition": None, "state": None},
        lost | {"incident": LOST.id_in(LOG, 0), "condition": "below_minimum", "state": "open"},
    ]
    assert (found["overlaps"], found["problem"]) == ([], None)
    text = operator.must("coverage", "--log", "rocketmq/test").out
    assert "100 to 500" in text
    assert "before the beginning" in text
    assert LOST.id_in(LOG, 0) in text

    doubled = ledger_row(300, 400)
    Ledger(session, f"{operator.lake}/ledger").append_each({Position(LOG, 7, Offset(400)): [doubled]})
    said = operator.does("coverage", "--json")
    (found,) = json.loads(said.out)["logs"]
    assert (said.code, found["overlaps"]) == (5, [{"start": 300, "end": 400}])
    assert "claims [300, 400) twice" in said.err
    assert "overlap" in operator.fails(5, "CoverageError", "coverage").out


def test_the_holes_that_a_backfill_would_fill(session: SparkSession, operator: Operator) -> None:
    def dry(*bounds: str) -> list[dict[str, int]]:
        said = operator.must("backfill", "--log", "rocketmq/test", "--dry-run", "--json", *bounds)
        holes: list[dict[str, int]] = json.loads(said.out)["holes"]
        return holes

    before, lost = {"start": 0, "end": 100}, {"start": 500, "end": 600}
    assert dry() == [before, lost]
    assert dry("--from", "100") == [lost]
    assert dry("--to", "550") == [before, {"start": 500, "end": 550}]
    assert dry("--from", "2024-02-29T23:59:31Z", "--to", "2024-02-29T23:59:32Z") == [lost]
    assert dry("--to", "2024-02-29T23:59:31Z") == [before]
    text = operator.must("backfill", "--log", "rocketmq/test", "--dry-run").out
    assert "missing 500 to 600, 100 B" in text
    said = operator.does("backfill", "--log", "rocketmq/test", "--from", "x")
    assert (said.code, "--from is not usable" in said.err) == (2, True)
