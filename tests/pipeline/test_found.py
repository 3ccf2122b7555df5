"""The logs of a configuration with patterns: what servers list now, and what the tables hold."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.configuration import Config, parse
from pipeline.config.found import found_for_job, found_now
from pipeline.inspect.overview import unconfigured, unconfigured_words
from pipeline.inspect.selection import ConfiguredLog
from pipeline.verify.run import Scope, verify_logs
from sinks.state.fence import this_writer
from sinks.state.log_state import LogState
from sinks.tables import KAFKA_LOG, LOG, TableSpec
from sources.access.address import Address
from sources.errors import ConfigurationError, LogtwinError, MasterUnreachable
from sources.offsets import LogId, Offset
from tests.pipeline.operator_at_work import run
from tests.sinks.test_delta_log import written
from tests.sources.kafka.scripted_cluster import ScriptedCluster, metadata, topic
from tests.sources.rocketmq.name_servers import ScriptedNameServer

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def name_server() -> Iterable[ScriptedNameServer]:
    with ScriptedNameServer({"c1": {"a": None, "b": Address("127.0.0.1", 1)}, "c2": {"z": None}}) as running:
        yield running


def holding(lake: Path, spec: TableSpec, *log_ids: str, at: Mapping[str, int] | None = None) -> None:
    """A table in which a job has claimed these logs, and committed nothing but of those `at` an offset."""
    claimed = LogState.fresh(this_writer()).claimed_by(this_writer())
    begun = {log_id: replace(claimed, offset=Offset(offset)) for log_id, offset in (at or {}).items()}
    states = dict.fromkeys(log_ids, claimed) | begun
    said = [said for one, state in states.items() for said in state.domains(LogId.parse(one), None).items()]
    domains = [{"domain": name, "configuration": text, "removed": False} for name, text in dict(said).items()]
    written(
        Path(spec.path(str(lake))), 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7}},
        {"metaData": {"id": "x", "schemaString": "{}"}}, *({"domainMetadata": one} for one in domains),
    )  # fmt: skip


def cluster(at: object, name: str = "c1", **keys: object) -> dict[str, object]:
    return {"cluster": name, "name_server": str(at), "connect_timeout_ms": 2000, "connect_attempts": 1, **keys}


def config(lake: Path, *logs: Mapping[str, object], **tables: object) -> Config:
    return parse({"warehouse": str(lake), "logs": list(logs), **tables}, where="job.toml")


def ids(found: Config) -> list[str]:
    assert not found.has_patterns
    return [*(one.id for one in found.logs), *(one.id for one in found.named_topics)]


def test_without_patterns_nothing_is_asked_or_read(tmp_path: Path) -> None:
    plain = config(tmp_path, {"id": "rocketmq/a", "path": "x"})
    assert found_now(plain) is plain
    assert found_for_job(plain, available_now=True) is plain


def test_what_a_warehouse_holds_beyond_its_configuration_is_told(tmp_path: Path) -> None:
    holding(tmp_path, LOG, "rocketmq/a", "rocketmq/b", "dister/begun", at={"rocketmq/a": 100, "rocketmq/b": 100})
    holding(tmp_path, KAFKA_LOG, "kafka/east/t/0", "kafka/east/t/1", at={"kafka/east/t/1": 7})
    found = unconfigured(config(tmp_path, {"id": "rocketmq/a", "master": "h:1", "remoting": "h:2"}))
    assert found == ("kafka/east/t", "rocketmq/b")
    assert unconfigured_words(found) == "the warehouse also holds kafka/east/t, rocketmq/b, not configured here"
    assert "rocketmq/4 and 2 more, not" in unconfigured_words([f"rocketmq/{number}" for number in range(7)])
    assert unconfigured(config(tmp_path / "none")) == ()


def test_what_is_listed_and_what_the_tables_hold(tmp_path: Path, name_server: ScriptedNameServer) -> None:
    """A broker that left is still a log; one of another entry, or that no entry matches, is not of this."""
    holding(tmp_path, LOG, "rocketmq/b", "rocketmq/gone", "rocketmq/old", "dister/shop")
    own = {"id": "rocketmq/a", "path": "x"}
    asked = config(tmp_path, own, cluster(name_server.address, exclude=["old"]))
    found = found_now(asked)
    assert ids(found) == ["rocketmq/a", "rocketmq/b", "rocketmq/gone"]
    assert [one.path for one in found.logs] == ["x", None, None]
    assert ids(found_for_job(asked, available_now=False)) == ids(found)
    assert ids(found_for_job(asked, available_now=True)) == ["rocketmq/a", "rocketmq/b"]  # it ends, and waits for none
    name_server.clusters["c1"] = {"new": None}
    assert ids(found_now(asked)) == ["rocketmq/a", "rocketmq/b", "rocketmq/gone", "rocketmq/new"]


def test_without_the_name_server_the_tables_say_what_there_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = config(tmp_path, cluster(NOWHERE))
    assert ids(found_now(asked)) == []
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert f"cannot list rocketmq/.* of cluster c1 at name server {NOWHERE}" in caplog.text
    with pytest.raises(MasterUnreachable):
        found_for_job(asked, available_now=False)
    holding(tmp_path, LOG, "rocketmq/b")
    assert ids(found_now(asked)) == ids(found_for_job(asked, available_now=False)) == ["rocketmq/b"]
    with pytest.raises(MasterUnreachable):  # a run that ends may not leave out what it does not know
        found_for_job(asked, available_now=True)


def test_a_contested_broker_stops_a_start_and_is_left_out_by_verbs(
    tmp_path: Path, name_server: ScriptedNameServer, caplog: pytest.LogCaptureFixture
) -> None:
    name_server.clusters["c2"] = {"a": None, "z": None}
    asked = config(tmp_path, cluster(name_server.address), cluster(name_server.address, "c2"))
    with pytest.raises(ConfigurationError, match="several entries") as caught:
        found_for_job(asked, available_now=False)
    assert "rocketmq/a" in str(caught.value)
    assert ids(found_now(asked)) == ["rocketmq/b", "rocketmq/z"]
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert ids(found_now(asked.only("rocketmq/b", "x"))) == ["rocketmq/b"]


def test_what_comes_after_others_begins_at_its_oldest_record(tmp_path: Path, name_server: ScriptedNameServer) -> None:
    """A restart is no way to lose what came before a log was found, also if a job was killed between the log's claim
    and its first commit. Until the first commit of a pattern, its start is as it was told.
    """
    asked = config(
        tmp_path, {"id": "rocketmq/b", "path": "x", "starting_offset": 7},
        cluster(name_server.address, starting_offset="latest"),
        cluster(name_server.address, "c2", include=["z"], starting_offset="latest"),
    )  # fmt: skip

    def starts() -> dict[str, object]:
        return {one.id[-1]: one.starting_offset for one in found_for_job(asked, available_now=True).logs}

    assert starts() == {"a": "latest", "b": 7, "z": "latest"}
    holding(tmp_path, LOG, "rocketmq/a", "rocketmq/z")
    assert starts() == {"a": "latest", "b": 7, "z": "latest"}
    holding(tmp_path, LOG, "rocketmq/v", "rocketmq/z", at={"rocketmq/a": 0})
    name_server.clusters["c1"] = {"a": None, "v": None, "w": None}
    assert starts() == {"a": "latest", "b": 7, "v": "earliest", "w": "earliest", "z": "latest"}


def test_a_start_with_nothing_at_all_is_refused(tmp_path: Path, name_server: ScriptedNameServer) -> None:
    with pytest.raises(ConfigurationError, match="nothing to replicate"):
        found_for_job(config(tmp_path, cluster(name_server.address, include=["x"])), available_now=False)


def test_a_log_that_cannot_be_verified_holds_up_no_other(
    tmp_path: Path, name_server: ScriptedNameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verified(spark: object, warehouse: str, subject: ConfiguredLog, *_: object) -> Any:
        if subject.run_id == "rocketmq/a":
            raise MasterUnreachable("it left")
        return subject.run_id

    monkeypatch.setattr("pipeline.verify.run.session_for", lambda *_, **__: None)
    monkeypatch.setattr("pipeline.verify.run.verify_log", verified)
    failed: list[LogtwinError] = []
    asked = config(tmp_path, cluster(name_server.address))
    found: list[Any] = list(verify_logs(asked, Scope(), None, failed.append))
    assert found == ["rocketmq/b"]
    assert [one.problem for one in failed] == ["it left"]


def test_topics_of_a_pattern_are_found_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holding(tmp_path, KAFKA_LOG, "kafka/east/gone/0", "kafka/east/gone/1", "kafka/west/other/0")
    brokers = ScriptedCluster(metadata(topic("new")), MasterUnreachable("away"))
    monkeypatch.setattr("sources.kafka.cluster.connection.connected", brokers.connected)
    asked = config(tmp_path, topics=[{"cluster": "east", "pattern": ".*", "servers": "b:1"}])
    assert ids(found_now(asked)) == ["kafka/east/gone", "kafka/east/new"]
    assert ids(found_now(asked)) == ["kafka/east/gone"]
    for log_id in ("kafka/east/gone", "kafka/east/gone/1"):
        assert ids(found_now(asked.only(log_id, "x"))) == ["kafka/east/gone"]


def test_the_command_line_shows_what_was_found(
    tmp_path: Path, name_server: ScriptedNameServer, capsys: pytest.CaptureFixture[str]
) -> None:
    holding(tmp_path / "lake", LOG, "rocketmq/gone")
    job = tmp_path / "job.toml"
    job.write_text(
        f'warehouse = "{tmp_path}/lake"\n[[logs]]\ncluster = "c1"\nname_server = "{name_server.address}"\n'
        "connect_attempts = 1\n"
    )

    def told(*arguments: str) -> list[dict[str, Any]]:
        said = run(capsys, *arguments, "--config", job, "--json")
        logs: list[dict[str, Any]] = json.loads(said.out)["logs"]
        return logs if said.code == 0 else []

    errors = {one["id"]: one["master_error"] for one in told("status")}
    assert list(errors) == ["rocketmq/a", "rocketmq/b", "rocketmq/gone"]
    assert "knows no master of gone" in errors["rocketmq/gone"]
    assert [one["log"] for one in told("coverage")] == ["rocketmq/a", "rocketmq/b", "rocketmq/gone"]
    assert [one["log"] for one in told("coverage", "--log", "rocketmq/gone")] == ["rocketmq/gone"]
