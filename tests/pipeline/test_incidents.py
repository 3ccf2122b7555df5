"""``logtwin incidents``: what was lost, in words that lead out of it."""

import json
import re
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.configuration import parse
from pipeline.inspect.incidents import Explanation, Listed, named, way_out
from pipeline.inspect.selection import ConfiguredLog
from sinks.books.incidents import IncidentsTable
from sinks.healing.repair import _FOR_A_PERSON
from sinks.values.incident import Action, Incident, IncidentRow, State
from sources.errors import ConfigurationError
from sources.loss import Condition, WayPast
from sources.offsets import LogId, Offset, OffsetRange
from tests.pipeline.job_toml import job_toml
from tests.pipeline.operator_at_work import Said, run
from tests.sinks.test_quarantine import put
from tests.spans import span
from tests.test_commands_doc import unknown

BROKER_A = LogId("rocketmq", "broker-a")
NOON = 1_709_208_000_000_000  # 2024-02-29 12:00:00 UTC


def lost(condition: Condition = Condition.UNDECODABLE, start: int = 100, end: int = 1300) -> Incident:
    return Incident(
        condition=condition, start=Offset(start), end=Offset(end), action=Action.QUARANTINED, detected_at=NOON,
        cause="no record starts here; expected a magic number, found 7",
    )  # fmt: skip


def listed(name: str, condition: Condition = Condition.GAP, state: State = State.OPEN) -> Listed:
    return Listed(BROKER_A, IncidentRow(id=name, epoch=0, found=lost(condition), state=state))


KINDS = {
    "rocketmq/broker-a": '[[logs]]\nid = "rocketmq/broker-a"\nmaster = "127.0.0.1:1"\n',
    "dister/test": '[[logs]]\nid = "dister/test"\npath = "/nowhere"\n',
    "kafka/east/orders/3": '[[topics]]\ncluster = "east"\nservers = "127.0.0.1:1"\ntopics = ["orders"]\n',
}
"""A log of each kind, and the configuration of its master."""
EACH = [pytest.param(log, one, id=f"{log.partition('/')[0]}-{one.value}") for log in KINDS for one in Condition]


def subject_of(folder: Path, log: str, named: str) -> ConfiguredLog:
    """What verbs make of ``--log NAMED``, which stands for the log `log`; no master is asked."""
    given = tomllib.loads(f'warehouse = "{folder}"\n{KINDS[log]}')
    settings = parse(given, where="job.toml").only(named, "job.toml")
    subject: ConfiguredLog
    if settings.logs:
        subject = ConfiguredLog.alone(settings.logs[0])
    else:
        (topic,) = settings.topics
        subject = ConfiguredLog(next(iter(topic.find().values())), LogId.parse(log))
    assert named in (str(subject.log_id), subject.run_id)
    return subject


@pytest.mark.parametrize(("log", "condition"), EACH)
def test_every_command_that_an_incident_names_exists_and_takes_its_log(
    tmp_path: Path, log: str, condition: Condition
) -> None:
    """And hint and way out name the same remedy."""
    incident = replace(listed("0aa111111111", condition), log_id=LogId.parse(log))
    lost = Explanation(incident, (incident.row.found.range,), ())
    hint, out = condition.hint_for(incident.log_id.kind), way_out(lost, "job.toml")
    for line in re.split(r"\blogtwin ", f"{hint} {out}")[1:]:
        assert unknown(line) == []
        named = re.search(r"--log (\S+)", line)
        subject = subject_of(tmp_path, log, named[1] if named else log)
        if "--path" in line:
            subject.by_path("DIR")  # which who takes no path refuses
    remedy = condition.remedy_for(incident.log_id.kind)
    goes_by_itself = condition is Condition.FAILED_OVER
    assert re.findall(r"\blogtwin (?:incidents )?[a-z]+(?: --[a-z-]+(?: [A-Z]+)?)*", hint) == (
        [] if goes_by_itself else [remedy]
    )
    verb, *options = remedy.split(" --")
    if condition.way is WayPast.ACCEPT:
        verb = f"{verb} {incident.row.id}"
    assert out.startswith(f"{verb} --config job.toml --log kafka/east/orders" if "kafka" in log else f"{verb} --config")
    assert all(f" --{option}" in out for option in options)
    assert ("--accept-master" in out) == (condition in _FOR_A_PERSON)


INCIDENTS = (listed("0aa111111111"), listed("0ab222222222"), listed("c00333333333"))


@pytest.mark.parametrize("name", ["0aa111111111", "0aa", "0AA1"])
def test_an_id_or_its_beginning(name: str) -> None:
    assert named(INCIDENTS, name, "job.toml") == INCIDENTS[0]


@pytest.mark.parametrize(
    ("among", "name", "said"),
    [
        (INCIDENTS, "0a", "expected one of 0aa111111111, 0ab222222222"),
        (INCIDENTS, "c0033333333e", "for example c00333333333"),
        ((), "c00", "expected none at all"),
    ],
    ids=["of several", "unknown", "none there"],
)
def test_what_names_no_incident_is_refused(among: tuple[Listed, ...], name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        named(among, name, "job.toml")


PARTITION = LogId.parse("kafka/east/orders/3")
HOLES = (span(100, 500), span(900, 1300))


@pytest.mark.parametrize(
    ("incident", "missing", "expected"),
    [
        (listed("0a"), HOLES, "logtwin backfill --config job.toml --log rocketmq/broker-a --from 100 --to 1300 --path"),
        (listed("0a"), (), "incidents close 0a"),
        (listed("0a", state=State.HEALED), (), "nothing: it is healed"),
        (
            replace(listed("0a"), log_id=PARTITION),
            (span(100, 1300),),
            "logtwin backfill --config job.toml --log kafka/east/orders/3 --from 100 --to 1300; or, to accept the "
            "loss: logtwin incidents close 0a --config job.toml --log kafka/east/orders/3 --note …",
        ),
    ],
    ids=["missing", "filled", "healed", "of a partition"],
)
def test_the_way_out_is_a_command(incident: Listed, missing: tuple[OffsetRange, ...], expected: str) -> None:
    assert expected in way_out(Explanation(incident, missing, ()), "job.toml")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return job_toml(tmp_path, *({"id": f"rocketmq/broker-{letter}", "path": tmp_path} for letter in "ab"))


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    return run(capsys, "incidents", *arguments)


def ids(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    code, out, _ = asked(capsys, "list", "--json", *arguments)
    assert code == 0
    return [one["id"] for one in json.loads(out)["incidents"]]


def test_a_loss_is_listed_explained_and_accepted(
    session: SparkSession, tmp_path: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, config = tmp_path / "lake", ("--config", str(job))
    assert asked(capsys, "list", *config)[:2] == (0, "no open incidents\n")
    IncidentsTable(session, str(lake), BROKER_A).record(0, [lost()])
    IncidentsTable(session, str(lake), replace(BROKER_A, name="broker-b")).record(0, [lost(Condition.GAP)])
    put(session, lake, BROKER_A, (100, b"\xca\xfe" + bytes(998)), (1100, bytes(200)))
    name = lost().id_in(BROKER_A, 0)
    assert len(ids(capsys, *config)) == 2
    assert ids(capsys, *config, "--log", "rocketmq/broker-a") == [name]

    code, out, _ = asked(capsys, "list", *config)
    line = next(line for line in out.splitlines() if name in line)
    assert code == 0
    assert line.split("  ") == [
        name, "rocketmq/broker-a", "undecodable", "[100, 1300)", "1,200", "2024-02-29 12:00:00 UTC", "open"
    ]  # fmt: skip

    code, out, _ = asked(capsys, "explain", name[:6], *config)
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
    code, out, _ = asked(capsys, "close", name, *config, "--note", "a test broker, nobody needs it")
    assert code == 0
    assert f"{name}: closed, a test broker, nobody needs it (" in out
    assert name not in ids(capsys, *config)
    (row,) = IncidentsTable(session, str(lake), BROKER_A).all()
    assert row.state is State.CLOSED
    assert before * 1e6 <= (row.ended_at or 0) <= time.time() * 1e6
    assert name in ids(capsys, *config, "--all")
    code, out, _ = asked(capsys, "close", name, *config, "--note", "again")
    assert (code, "again" in out) == (0, False)  # what was said first stays
