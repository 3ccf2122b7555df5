"""A real Airflow in its own environment, as processes on the loopback, with all that it writes below one folder."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.demo.s3_server import OWNER
from tests.class_archives import spark_options
from tests.patience import eventually, wait_until

PROJECT = Path(__file__).parents[2]
DAGS = PROJECT / "airflow_dags"
BIN = PROJECT / ".venv-airflow" / "bin"
DAG_IDS = {
    "logtwin_replicate",
    "logtwin_backfill",
    "logtwin_verify",
    "logtwin_verify_whole",
    "logtwin_maintain",
}
KEY_VARIABLE = "LAKE_KEY"
"""What Airflow's workers have of an object store in their environment."""

STAND_IN = Path(__file__).parent / "stand_in"

_END_WITHIN_S = 20.0
_PR_SET_PDEATHSIG = 1
_SERVICES = (("api-server",), ("scheduler", "--skip-serve-logs"), ("dag-processor",))
"""Beside these Airflow has a triggerer, for tasks that none of the DAGs has."""


@dataclass(frozen=True)
class Airflow:
    """An installation: `home` has its database and logs, `stand_in` what spark-submit's stand-in reads and writes."""

    home: Path
    stand_in: Path
    port: int
    secret: str

    @classmethod
    def made(cls, folder: Path) -> Airflow:
        """With a new database. Fails the test where `make airflow-setup` did not run."""
        if not (BIN / "airflow").exists():
            pytest.fail("there is no Airflow: make airflow-setup")
        (folder / "stand-in").mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        made = cls(folder / "home", folder / "stand-in", port, secrets.token_hex(32))
        assert made.run("db", "migrate").returncode == 0
        return made

    def environment(self) -> dict[str, str]:
        """Of its processes. spark-submit is the one of this project's PySpark, spark3-submit the stand-in."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
        path = os.pathsep.join([str(STAND_IN), str(Path(sys.executable).parent), inherited["PATH"]])
        address = f"http://127.0.0.1:{self.port}"
        return {
            **inherited,
            "PATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "STAND_IN_FOLDER": str(self.stand_in),
            "SPARK_SUBMIT_OPTS": spark_options(),
            KEY_VARIABLE: OWNER.access_key,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": address,
            "AIRFLOW__API_AUTH__JWT_SECRET": self.secret,
            "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",  # a DAG that is turned on would run at once
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",  # by default 1 s before each step of a run
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "AIRFLOW_CONN_STAND_IN": json.dumps(
                {"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": "spark3-submit"}}
            ),
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``airflow <arguments>`` to its end."""
        return self._run([str(BIN / "airflow"), *arguments], {})

    def python(self, code: str) -> Any:
        """What a fresh interpreter of Airflow's, in the folder of the DAGs, prints as JSON."""
        done = self._run([str(BIN / "python"), "-c", code], {"PYTHONPATH": str(DAGS)})
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    def _run(self, command: list[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env={**self.environment(), **more}, cwd=self.home.parent, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip


@contextmanager
def services(airflow: Airflow) -> Iterator[Api]:
    """API server, scheduler and DAG processor, while the `with` lasts; until they have read the DAGs."""
    with ExitStack() as running:
        logs = [running.enter_context(_service(airflow, service)) for service in _SERVICES]
        said = lambda: "\n".join(log.read_text()[-2000:] for log in logs)  # noqa: E731 - for messages only
        api = Api(f"http://127.0.0.1:{airflow.port}")
        wait_until(api.is_ready, said)
        yield api


@contextmanager
def _service(airflow: Airflow, arguments: tuple[str, ...]) -> Iterator[Path]:
    log = airflow.home / f"{arguments[0]}.out"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(BIN / "airflow"), *arguments], env=airflow.environment(), cwd=airflow.home,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip
    try:
        yield log
    finally:
        _end(process)


def _end_with_parent() -> None:
    """In the child: a test run that is killed cannot end its services, so the kernel asks them to (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and all below it: asked first, then by force."""
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    eventually(lambda: process.poll() is not None, _END_WITHIN_S)
    for left in [*below, process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
    psutil.wait_procs(below, _END_WITHIN_S)
    process.wait()


class ApiError(Exception):
    """What Airflow refused: the status and its words."""


class Api:
    """Airflow's public API, version 2."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._headers = {"Content-Type": "application/json"}

    def is_ready(self) -> bool:
        """Whether the server answers and the DAGs are there."""
        try:
            token = self.ask("GET", "/auth/token")["access_token"]
            self._headers["Authorization"] = f"Bearer {token}"
            return {dag["dag_id"] for dag in self.ask("GET", "/api/v2/dags")["dags"]} == DAG_IDS
        except (ApiError, OSError):
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Raises ApiError, OSError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, self._headers, method=method)  # noqa: S310 - http
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - http
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(f"{error.code}: {error.read().decode()}") from error

    @contextmanager
    def variable(self, key: str, value: object) -> Iterator[None]:
        """It is set while the `with` lasts."""
        self.ask("POST", "/api/v2/variables", {"key": key, "value": json.dumps(value)})
        try:
            yield
        finally:
            self.ask("DELETE", f"/api/v2/variables/{key}")

    def trigger(self, dag_id: str, **conf: object) -> DagRun:
        """Start a run. Raises ApiError where the form is filled wrongly."""
        self.ask("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
        run = self.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})
        return DagRun(self, f"/api/v2/dags/{dag_id}/dagRuns/{run['dag_run_id']}")


@dataclass(frozen=True)
class DagRun:
    """A run, as the API shows it."""

    api: Api
    path: str

    @property
    def state(self) -> str:
        return str(self.api.ask("GET", self.path)["state"])

    def ended(self, within_s: float = 120) -> str:
        """How it ended."""
        wait_until(lambda: self.state in ("success", "failed"), lambda: str(self.tasks()), within_s)
        return self.state

    def tasks(self) -> dict[str, list[Any]]:
        """The instances of each task, as the API describes them."""
        found: dict[str, list[Any]] = {}
        for one in self.api.ask("GET", f"{self.path}/taskInstances")["task_instances"]:
            found.setdefault(one["task_id"], []).append(one)
        return found

    def states(self) -> dict[str, list[str]]:
        return {task: [one["state"] for one in instances] for task, instances in self.tasks().items()}

    def result(self, task_id: str) -> Any:
        return self.api.ask("GET", f"{self.path}/taskInstances/{task_id}/xcomEntries/return_value")["value"]

    def log(self, task_id: str, attempt: int = 1) -> str:
        """What a task said, at one of its attempts."""
        return json.dumps(self.api.ask("GET", f"{self.path}/taskInstances/{task_id}/logs/{attempt}"))

    def give_up(self) -> None:
        self.api.ask("PATCH", self.path, {"state": "failed"})
