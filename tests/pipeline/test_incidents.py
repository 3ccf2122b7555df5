"""``logtwin incidents``: what was lost, in words that lead out of it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.cli.app import main
from pipeline.inspect.incidents import Explanation, Listed, named, way_out
from sinks.books.incident import Action, Incident, IncidentRow, State
from sinks.books.incidents import IncidentsTable
from sources.errors import ConfigurationError
from sources.loss import Condition
from sources.offsets import LogId, Offset, OffsetRange
from tests.sinks.test_quarantine_reader import put

BROKER_A = LogId("rocketmq", "broker-a")
NOON = 1_709_208_000_000_000  # 2024-02-29 12:00:00 UTC


def lost(condition: Condition = Condition.UNDECODABLE, start: int = 100, end: int = 1300) -> Incident:
    return Incident(
        condition=condition,
        start=Offset(start),
        end=Offset(end),
        cause="no record starts here; expected a magic number, found 7",
        action=Action.QUARANTINED,
        detected_at=NOON,
    )


def listed(name: str, condition: Condition = Condition.GAP, state: State = State.OPEN) -> Listed:
    return Listed(BROKER_A, IncidentRow(id=name, epoch=0, found=lost(condition), state=state))


def test_no_verb_heals_a_topic_so_none_is_named() -> None:
    """Its incidents are of partitions, which --log does not know."""
    lost = replace(listed("0aa111111111", Condition.RECREATED), log_id=LogId.parse("kafka/east/orders/3"))
    out = way_out(Explanation(lost, (lost.row.found.range,), ()), "job.toml")
    assert "logtwin incidents close 0aa111111111 --config job.toml --log kafka/east/orders --note" in out
    assert not [verb for verb in ("repair --", "backfill") if f"logtwin {verb}" in out]


class TestNames:
    INCIDENTS = (listed("0aa111111111"), listed("0ab222222222"), listed("c00333333333"))

    @pytest.mark.parametrize("name", ["0aa111111111", "0aa", "0AA1"])
    def test_an_id_or_its_beginning(self, name: str) -> None:
        assert named(self.INCIDENTS, name, "job.toml") == self.INCIDENTS[0]

    def test_a_beginning_of_several_is_refused_and_names_them(self) -> None:
        with pytest.raises(ConfigurationError, match="0aa111111111, 0ab222222222") as caught:
            named(self.INCIDENTS, "0a", "job.toml")
        assert "c00333333333" not in str(caught.value)

    def test_an_unknown_one_is_refused_and_names_the_nearest(self) -> None:
        with pytest.raises(ConfigurationError, match="for example c00333333333"):
            named(self.INCIDENTS, "c0033333333e", "job.toml")

    def test_where_there_are_none_that_is_said(self) -> None:
        with pytest.raises(ConfigurationError, match="expected none at all"):
            named([], "c00", "job.toml")


HOLES = (OffsetRange(Offset(100), Offset(500)), OffsetRange(Offset(900), Offset(1300)))


@pytest.mark.parametrize(
    ("incident", "missing", "expected"),
    [
        (listed("0a"), HOLES, "logtwin backfill --config job.toml --log rocketmq/broker-a --from 100 --to 1300 --path"),
        (listed("0a"), (), "incidents close 0a"),
        (listed("0a", Condition.REWRITTEN), (), "logtwin repair --config job.toml --log rocketmq/broker-a"),
        (listed("0a", Condition.RECREATED), (), "--accept-master"),
        (listed("0a", state=State.HEALED), (), "nothing: it is healed"),
    ],
    ids=["missing", "filled", "rewritten", "recreated", "healed"],
)
def test_the_way_out_is_a_command(incident: Listed, missing: tuple[OffsetRange, ...], expected: str) -> None:
    assert expected in way_out(Explanation(incident, missing, ()), "job.toml")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.toml"
    logs = "".join(f'[[logs]]\nid = "rocketmq/broker-{letter}"\npath = "{tmp_path}"\n' for letter in "ab")
    file.write_text(f'warehouse = "{tmp_path}/lake"\n{logs}')
    return file


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["incidents", *arguments])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def ids(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    code, out, _ = run(capsys, "list", "--json", *arguments)
    assert code == 0
    return [one["id"] for one in json.loads(out)["incidents"]]


@pytest.mark.spark
def test_a_loss_is_listed_explained_and_accepted(
    spark: SparkSession, tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, config = tmp_path / "lake", ("--config", str(job))
    assert run(capsys, "list", *config)[:2] == (0, "no open incidents\n")
    IncidentsTable(spark, str(lake), BROKER_A).record(0, [lost()])
    IncidentsTable(spark, str(lake), replace(BROKER_A, name="broker-b")).record(0, [lost(Condition.GAP)])
    put(spark, lake, BROKER_A, (100, b"\xca\xfe" + bytes(998)), (1100, bytes(200)))
    name = lost().id_in(BROKER_A, 0)
    assert len(ids(capsys, *config)) == 2
    assert ids(capsys, *config, "--log", "rocketmq/broker-a") == [name]

    code, out, _ = run(capsys, "list", *config)
    line = next(line for line in out.splitlines() if name in line)
    assert code == 0
    assert line.split("  ") == [
        name, "rocketmq/broker-a", "undecodable", "[100, 1300)", "1,200", "2024-02-29 12:00:00 UTC", "open"
    ]  # fmt: skip

    code, out, _ = run(capsys, "explain", name[:6], *config)
    words = " ".join(out.split())
    assert code == 0
    for phrase in (
        "sizes, offsets or lengths in them contradict each other",
        "expected a magic number, found 7",
        "[100, 1100), 1.0 kB: cafe0000",
        "[1100, 1300), 200 B: 00000000",
        "nothing of the range",
    ):
        assert phrase in words, phrase

    before = time.time()
    code, out, _ = run(capsys, "close", name, *config, "--note", "a test broker, nobody needs it")
    assert code == 0
    assert f"{name}: closed, a test broker, nobody needs it (" in out
    assert name not in ids(capsys, *config)
    (row,) = IncidentsTable(spark, str(lake), BROKER_A).all()
    assert row.state is State.CLOSED
    assert before * 1e6 <= (row.ended_at or 0) <= time.time() * 1e6
    assert name in ids(capsys, *config, "--all")
    code, out, _ = run(capsys, "close", name, *config, "--note", "again")
    assert (code, "again" in out) == (0, False)  # what was said first stays


@pytest.mark.spark
def test_an_unknown_incident_is_the_operators_error(
    spark: SparkSession, tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    IncidentsTable(spark, str(tmp_path / "lake"), BROKER_A).record(0, [lost()])
    code, _, err = run(capsys, "explain", "zzz", "--config", str(job))
    assert code == 2
    assert lost().id_in(BROKER_A, 0) in err
