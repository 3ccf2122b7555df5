"""``logtwin init`` and ``logtwin config check``, and what a start says of masters before Spark runs."""

import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import pytest
from pyspark import SparkContext

from pipeline.cli.setup import Master
from pipeline.config.configuration import Config, load, parse
from pipeline.inspect.config_check import Check, checks
from pipeline.inspect.first_contact import Contact, contacts, tell_at_start
from pipeline.spark import session
from pipeline.spark.master_url import checked_master, reached_master
from pipeline.system.processes import free_port
from sources.errors import ConfigurationError, MasterUnreachable, NobodyListens
from tests.deaf_port import deaf_port
from tests.patience import wait_until
from tests.pipeline.masters import Served, embedded_master
from tests.pipeline.operator_at_work import run


@pytest.mark.parametrize("kind", get_args(Master))
def test_a_template_is_a_configuration_also_with_what_it_leaves_out(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.toml"
    assert run(capsys, "init", kind, "--to", path)[0] == 0
    text = path.read_text()
    assert load(path).with_logs("x").metrics.port is not None
    path.write_text(re.sub(r"^# (?=\w+ = |\[)", "", text, flags=re.M))
    assert load(path).tables[0].name == "orders"
    code, _, said = run(capsys, "init", kind, "--to", path)
    assert (code, "cannot be written; expected a new file" in said) == (2, True)
    assert path.read_text() != text


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with embedded_master(tmp_path_factory.mktemp("store")) as served:
        yield served


def config_of(master: Served, folder: Path, **more: object) -> Config:
    log = {"id": "rocketmq/broker-a", **master.options}
    return parse({"warehouse": str(folder / "lake"), "logs": [log], **more}, where="job.toml")


def found_of(config: Config) -> dict[str, Check]:
    return {one.of: one for one in checks(config)}


def test_a_sound_configuration_is_checked_and_nothing_is_left(master: Served, tmp_path: Path) -> None:
    found = found_of(config_of(master, tmp_path, metrics={"port": free_port()}))
    assert [one for one in found.values() if not one.is_right] == []
    assert {"extras", "Java", "jars", "warehouse", "metrics", "rocketmq/broker-a"} == found.keys()
    # what the master says it is: its own name, version and role
    assert re.search(r"embedded, LOGTWIN_EMBEDDED ASYNC_MASTER, holds 0 to \d", found["rocketmq/broker-a"].said)
    assert found["rocketmq/broker-a"].said.startswith(master.options["remoting"])  # it answered, and not the HA port
    assert list(tmp_path.iterdir()) == []
    with master.watched() as acknowledged:
        checks(config_of(master, tmp_path))
    assert acknowledged == set()  # nobody came to its HA port


def test_each_thing_that_is_wrong_is_told_beside_what_is_right(
    master: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "jdk-11" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\ntouch "$0.ran"\n')
    java.chmod(0o755)
    (java.parents[1] / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    (tmp_path / "a-file").touch()
    topic = {"id": "kafka/east/orders", "servers": f"127.0.0.1:{deaf_port()}"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = config_of(
            master, tmp_path / "a-file", metrics={"port": taken.getsockname()[1]}, topics=[topic],
            jars={"folder": str(tmp_path / "no-jars")},
        )  # fmt: skip
        found = found_of(config)
    assert {name for name, one in found.items() if one.is_right} == {"extras", "rocketmq/broker-a"}
    assert "found Java 11" in found["Java"].said
    assert not java.with_name("java.ran").exists()  # the file beside it said so
    assert "no-jars" in found["jars"].said
    assert f"{tmp_path}/a-file/lake cannot be written" in found["warehouse"].said
    assert "metrics cannot be served there" in found["metrics"].said
    assert topic["servers"] in found["kafka/east/orders"].said


KNOWN = (
    "local",
    "local[*]",
    "local[2, 3]",
    "local-cluster[2,1,1024]",
    "k8s://https://10.0.0.1:6443",
    "k8s://api.example",
)
UNKNOWN = (
    "",
    "local[]",
    "yarn-client",
    "mesos://a:5050",
    "10.0.0.1",
    "spark://a",
    "spark://a:7077,b",
    "k8s://",
    "k8s:a",
)


def test_a_master_of_spark_has_a_form_that_spark_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in KNOWN:
        assert reached_master(url) == url
    monkeypatch.setattr(session, "_start_jvm", lambda *_: pytest.fail("it started Java"))
    for url in UNKNOWN:
        config = parse({"spark": {"spark.master": url}}, where="x")
        with pytest.raises(ConfigurationError, match=rf"is no master that Spark knows.*'{re.escape(url)}'"):
            session.build_session(config.spark)
    assert "is no master that Spark knows" in found_of(config)["Spark's master"].said


def test_a_cluster_of_spark_needs_one_master_that_takes_connections_in_time() -> None:
    deaf = f"127.0.0.1:{deaf_port()}"
    with socket.create_server(("127.0.0.1", 0), backlog=0) as one, ExitStack() as queue:
        at = f"127.0.0.1:{one.getsockname()[1]}"
        both = f"spark://{deaf},{at}"
        assert reached_master(both) == f"{both} listens; not there: {deaf}: Connection refused"
        for _ in range(2):  # its queue is full then, and whoever comes next waits
            client = queue.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(one.getsockname())
        with pytest.raises(ConfigurationError, match=rf"{deaf}: Connection refused; {at}: no answer within 0\.2 s"):
            reached_master(both, within_s=0.2)


def test_yarn_needs_the_clusters_configuration(tmp_path: Path) -> None:
    assert checked_master("yarn", {"YARN_CONF_DIR": str(tmp_path)}) == ()
    for given, found in [({}, "neither"), ({"HADOOP_CONF_DIR": "/no/such"}, "HADOOP_CONF_DIR=/no/such, which is no")]:
        with pytest.raises(ConfigurationError, match=rf"HADOOP_CONF_DIR or YARN_CONF_DIR in.*found {found}"):
            checked_master("yarn", given)
    (tmp_path / "spark-env.sh").touch()  # Spark runs it first, and it may set them
    assert checked_master("yarn", {"SPARK_CONF_DIR": str(tmp_path)}) == ()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_whoever_waits_at_a_terminal_is_told_that_spark_starts(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "build_session", lambda *_, **__: None)
    monkeypatch.setattr(session, "shows_live", lambda: is_terminal)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with caplog.at_level(logging.INFO):
        session.session_for(Config(warehouse=str(tmp_path)))
    assert caplog.messages == [session.STARTS] * is_terminal


def test_java_says_its_version_where_no_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for said, words in (('openjdk version "21.0.1"', "21, "), ('java version "1.8.0_401"', "found Java 8")):
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
        assert words in found_of(parse({}, where="x"))["Java"].said


def test_the_verb_says_it_a_line_a_check_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f"warehouse = '{tmp_path}/lake'\n[[logs]]\nid = 'rocketmq/a'\npath = '{tmp_path}/none'")
    code, out, _ = run(capsys, "config", "check", "--config", path)
    assert code == 2
    assert re.search(r"^ok      warehouse: .*was written and removed$", out, re.M)
    assert re.search(r"^failed  rocketmq/a: .*cannot be read; .*Check `path`", out, re.M)
    told = json.loads(run(capsys, "config", "check", "--config", path, "--json")[1])["checks"]
    assert [one["of"] for one in told if not one["is_right"]] == ["rocketmq/a"]
    path.write_text("warehous = 'x'")
    code, out, _ = run(capsys, "config", "check", "--config", path)
    assert (code, out.count("\n"), "Did you mean 'warehouse'?" in out) == (2, 1, True)


def test_a_pattern_that_matches_nothing_yet_is_odd_and_wrong_only_where_it_is_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Contact("kafka/c/z.*", "no topic", found={})
    for others, word in ([Contact("rocketmq/a", "ok")], "warning"), ([], "failed "):
        told = [nothing, *others]
        monkeypatch.setattr("pipeline.inspect.config_check.contacts", lambda *_, told=told, **__: told)
        line = found_of(parse({}, where="x"))["kafka/c/z.*"].line()
        assert line.startswith(f"{word} kafka/c/z.*: no topic; ")


NOWHERE = {"id": "rocketmq/b", "path": "/no/such/folder"}


def test_the_mistake_of_a_job_of_one_log_is_told_before_spark(tmp_path: Path) -> None:
    at = f"127.0.0.1:{deaf_port()}"
    topic = {"id": "kafka/c/t", "servers": at}
    for given, kind in [
        ({"logs": [NOWHERE]}, ConfigurationError),
        ({"logs": [{"id": "rocketmq/b", "name_server": at}]}, MasterUnreachable),
        ({"topics": [topic]}, NobodyListens),
        ({"topics": [{"cluster": "c", "pattern": ".*", "servers": at}]}, NobodyListens),
    ]:
        begun = time.monotonic()
        with pytest.raises(kind, match=f"{re.escape(at)}|/no/such/folder"):
            tell_at_start(parse(given, where="job.toml"), {})
        assert time.monotonic() - begun < 10


def test_of_several_one_that_is_away_keeps_none_from_starting(
    master: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster's name server that is away, too: what the replica has of it goes on."""
    said: dict[str, str] = {}
    with caplog.at_level(logging.WARNING):
        several = [NOWHERE, {"id": "rocketmq/broker-a", **master.options}]
        tell_at_start(parse({"logs": several}, where="job.toml"), said)
        wait_until(lambda: "/no/such/folder" in caplog.text, lambda: caplog.text)
        at = f"127.0.0.1:{deaf_port()}"
        tell_at_start(parse({"logs": [{"cluster": "c", "name_server": at}]}, where="job.toml"), said)
        assert at in caplog.text
    assert len(said) == 2
    assert set(caplog.messages) >= set(said.values())


def test_who_is_late_is_told_and_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        config = parse({"logs": [{"id": "rocketmq/b", "master": at, "remoting": at}]}, where="job.toml")
        (one,) = contacts(config, within_s=0.2)
        assert (one.is_late, one.is_right) == (True, False)
        assert f"within 0.2 s, found none from {at}" in str(one.error)
        with caplog.at_level(logging.WARNING):
            tell_at_start(config, {})
        assert "rocketmq/b: the master has not answered" in caplog.text
