"""The demo's Kafka broker: it goes on with its store, ends with whoever started it, and says why it cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipeline.demo.kafka_broker import VERSION, lone_settings, prepared, running_broker
from pipeline.spark import jars
from sources.errors import ConfigurationError, MasterError
from tests.patience import PATIENCE_S, wait_until

_KEPT = "import sys\nfrom pathlib import Path\nfrom pipeline.demo.kafka_broker import running_broker\n"
_KEPT += "with running_broker(Path(sys.argv[1])) as server:\n    print(server, flush=True)\n    sys.stdin.read()\n"


def brokers_of(home: Path) -> list[int]:
    found = [(one.pid, one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    return [pid for pid, command in found if f"{home}/server.properties" in command]


@pytest.mark.peer
@pytest.mark.nightly
def test_it_ends_with_who_started_it_also_by_force_and_its_store_is_used_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KEPT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline().startswith("127.0.0.1:")
            assert len(brokers_of(tmp_path)) == 1
            with pytest.raises(MasterError, match="did not start") as raised, running_broker(tmp_path):
                pass
            assert "broker.log" in str(raised.value)
        finally:
            os.kill(starter.pid, signal.SIGKILL)
        starter.wait(PATIENCE_S)
    wait_until(lambda: brokers_of(tmp_path) == [], "the broker's end")


def test_where_kafka_cannot_be_had_it_says_so_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho UNRESOLVED DEPENDENCIES\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(jars, "_FIRST_WAIT_S", 0.0)
    monkeypatch.setenv("LOGTWIN_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ConfigurationError) as raised:
        prepared(VERSION, tmp_path / "home", lone_settings(tmp_path / "data", 1))
    said = str(raised.value)
    for part in (f"Kafka {VERSION} is not here", "UNRESOLVED", "Maven Central", f"{tmp_path}/cache/jars"):
        assert part in said
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="there is no Java"):
        prepared(VERSION, tmp_path / "home", lone_settings(tmp_path / "data", 1))


@pytest.mark.peer
@pytest.mark.nightly
def test_a_store_that_cannot_be_formatted_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(MasterError, match="could not format"):
        prepared(VERSION, tmp_path / "home", lone_settings(tmp_path / "data", 1))
