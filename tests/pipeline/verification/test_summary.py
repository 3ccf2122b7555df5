"""What a verification says: in words, in JSON, as an error and as incidents."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.verify.queues import Jump, Why
from pipeline.verify.summary import DIFFERENCES_LISTED, Tally, VerifySummary, describe, incident_of, lines
from sinks.proof.verdicts import Claim, Compared, Difference, DifferenceKind, Verdict
from sources.errors import Divergent, LogtwinError, MasterUnreachable, ReplicaError
from sources.loss import Condition
from sources.offsets import LogId, Offset
from tests.pipeline.operator_at_work import Operator
from tests.spans import span

EQUAL = Compared(claim=Claim(span(0, 1000), "sha256:00", 10, 1000), verdict=Verdict.EQUAL, rows=10)
DAMAGED = Compared(
    claim=Claim(span(1000, 2000), "sha256:01", 10, 1000),
    verdict=Verdict.REPLICA_DAMAGED,
    rows=9,
    differences=(Difference(Offset(1100), DifferenceKind.MISSING), Difference(Offset(1500), DifferenceKind.CHANGED)),
    differing=12,
)
SUMMARY = VerifySummary(
    log_id=LogId("rocketmq", "broker-a"), master="/log", position=Offset(2000), seed=None, seconds=2.0,
    bytes=4_000_000, claims=2, earlier_bytes=0, without_master_bytes=0, compacted=0, holes=0, differing=0,
    differences=(), jumps=(),
)  # fmt: skip
AWAY, GONE = MasterUnreachable("away", log="rocketmq/b"), ReplicaError("gone", log="rocketmq/c")
LOST = Jump(topic="orders", queue_id=3, after=Offset(5), at=Offset(90), expected=7, found=9, why=Why.MISSING)


def test_a_difference_in_words() -> None:
    """An entry is named by its id, too."""
    said = describe(DAMAGED)
    assert said.startswith("[1000, 2000): the replica is damaged")
    assert "9 rows, by the ledger 10 records" in said
    assert said.endswith("12 differ: 1100 missing, 1500 changed and 10 more")
    found = replace(DAMAGED, differences=(Difference(Offset(1100), DifferenceKind.CHANGED, 1999),), differing=1)
    assert describe(found).endswith("1 differ: 1100 (id 1999) changed")
    assert found.as_json()["differences"] == [{"offset": 1100, "kind": "changed", "id": 1999}]


@pytest.mark.parametrize(
    ("found", "failed", "code", "said"),
    [
        ([SUMMARY], [], 0, []),
        ([SUMMARY], [AWAY], 3, ["away"]),
        ([], [AWAY, GONE], 3, ["gone", "away"]),
        ([SUMMARY, replace(SUMMARY, claims=1, differing=1, differences=(DAMAGED,))], [AWAY, GONE], 5, ["away", "gone"]),
    ],
)
def test_what_keeps_a_log_from_being_verified_is_said_whatever_is_found_of_others(
    found: list[VerifySummary],
    failed: list[LogtwinError],
    code: int,
    said: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def verify_logs(*given: Any) -> list[VerifySummary]:
        for error in failed:
            given[-1](error)
        return found

    monkeypatch.setattr("pipeline.verify.run.verify_logs", verify_logs)
    operator = Operator(tmp_path, capsys)
    operator.configure(path=tmp_path)
    ended = operator.does("verify", "--json")
    assert ended.code == code
    assert re.findall("away|gone", ended.err) == said
    assert [one["differing"] for one in json.loads(ended.out or '{"logs": []}')["logs"]] == [x.differing for x in found]


def test_what_compaction_took_is_counted_and_no_difference() -> None:
    tally = Tally()
    tally.add([replace(EQUAL, compacted=3), replace(EQUAL, compacted=4)])
    found = replace(SUMMARY, compacted=tally.compacted)
    assert (tally.differing, found.problem, found.as_json()["compacted"]) == (0, None, 7)
    said = [line for line, _ in lines(found) if "compaction" in line]
    assert len(said) == 1
    assert said[0].strip().startswith("7 records with the ledger alone")
    assert not [line for line, _ in lines(SUMMARY) if "compaction" in line]


def test_few_bytes_have_no_rate() -> None:
    for size_bytes, said in ((9_999_999, "in 2.0 s"), (10_000_000, "in 2.0 s, 5 MB/s")):
        assert next(lines(replace(SUMMARY, bytes=size_bytes)))[0].endswith(said)


def test_holes_are_told_in_what_offsets_count() -> None:
    in_ids = replace(SUMMARY, log_id=LogId("dister", "a"), holes=5000)
    assert "  5.0 kB in holes: nothing to compare" in [line for line, _ in lines(replace(SUMMARY, holes=5000))]
    assert "  5,000 ids in holes: nothing to compare" in [line for line, _ in lines(in_ids)]
    told = in_ids.as_json()
    assert (told["holes_bytes"], told["holes_ids"]) == (None, 5000)


def test_a_row_beyond_the_position_is_an_incident_of_a_range_that_ends() -> None:
    beyond = Compared(claim=Claim(span(2000, 2**63 - 1)), verdict=Verdict.REPLICA_DAMAGED, rows=1)
    found = incident_of(beyond, Offset(2000))
    assert found is not None
    assert found.range == span(2000, 2001)


def test_the_first_difference_is_the_problem() -> None:
    summary = replace(SUMMARY, differing=3, differences=(DAMAGED,), jumps=(LOST,))
    problem = summary.problem
    assert isinstance(problem, Divergent)
    assert (problem.log, problem.offset, problem.exit_code) == ("rocketmq/broker-a", 1100, 5)
    assert problem.hint == Condition.REPLICA_DAMAGED.hint
    assert "3 ranges differ" in str(problem)
    said = [line for line, _ in lines(summary)]
    assert said[-1] == "  not equal"
    assert "  and 2 more" in said


def test_queues_that_do_not_run_are_a_problem_unless_it_is_explained() -> None:
    problem = replace(SUMMARY, jumps=(LOST,)).problem
    assert isinstance(problem, Divergent)
    assert (problem.offset, problem.expected) == (90, "queue offset 7")
    explained = replace(SUMMARY, jumps=(replace(LOST, why=Why.HOLE), replace(LOST, found=0, why=Why.RECREATED)))
    assert explained.problem is None
    assert replace(SUMMARY, jumps=None).problem is None


def test_a_jump_with_an_incident_is_the_masters_own() -> None:
    told = replace(SUMMARY, jumps=(replace(LOST, incident="0aa111111111"),))
    assert (told.problem, told.as_json()["equal"]) == (None, True)
    assert told.as_json()["jumps"][0]["incident"] == "0aa111111111"
    said = [line for line, _ in lines(told)]
    assert [line for line in said if "incident 0aa111111111" in line]
    assert said[-1] == "  equal"
    assert LOST.is_masters  # which a repeated record is never
    assert not replace(LOST, after=LOST.at, why=Why.REPEATED).is_masters
    assert not replace(LOST, why=Why.HOLE).is_masters


def test_a_tally() -> None:
    tally = Tally()
    tally.add([EQUAL, DAMAGED, replace(EQUAL, with_master=False)])
    tally.add([Compared(claim=Claim(span(5000, 6000)), verdict=Verdict.EQUAL)])
    assert (tally.claims, tally.bytes, tally.without_master_bytes, tally.differing) == (3, 3000, 1000, 1)
    tally.add([DAMAGED] * 2 * DIFFERENCES_LISTED)
    assert (tally.differing, len(tally.differences)) == (1 + 2 * DIFFERENCES_LISTED, DIFFERENCES_LISTED)
