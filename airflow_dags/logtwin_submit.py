"""Shared by the DAGs: logtwin's verbs as tasks, each a spark-submit, and the fields that several forms have.

Airflow parses DAG files again and again. So nothing of logtwin is imported here, and the settings are read when a task
runs: from the Variable ``logtwin``, a JSON object with any of the keys of `DEFAULTS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (  # which knows where each Airflow has them
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    BaseHook,
    Context,
    Param,
    Variable,
)

DEFAULTS: Mapping[str, Any] = {
    "config": "/etc/logtwin/logtwin.toml",
    "connection": "spark_default",
    "application": "/opt/logtwin/submit.py",
    "packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "py_files": None,
    "jars": None,
    "files": None,
    "properties_file": None,
    "conf": {},
    "env_vars": {},
}
_NOT_SUBMITTED = ("config", "connection")

_HOPELESS = (2, 4, 5)
"""Exit codes of errors that a retry does not change: the configuration, the log's bytes, the replica
(``sources/errors.py``). 3 and 6, of a master and a storage, may pass."""

COMMON: Mapping[str, Any] = {
    "tags": ["logtwin"],
    "catchup": False,
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "default_args": {"owner": "logtwin", "retries": 2, "retry_delay": timedelta(minutes=1)},
}
"""The arguments of every DAG."""

WHERE: Mapping[str, Param] = {
    "config": Param(
        None,
        type=["null", "string"],
        pattern=r"\.toml$",
        title="Configuration",
        description="logtwin's configuration file, where the driver runs; empty: what the Variable `logtwin` says",
    ),
    "connection": Param(
        None,
        type=["null", "string"],
        pattern=r"^[\w.-]+$",
        title="Spark connection",
        description="the id of an Airflow connection; empty: what the Variable `logtwin` says, else `spark_default`",
    ),
}


def log_param(**what: Any) -> Param:
    """The form field that names a log."""
    return Param(pattern=r"^[a-z]+/\S+$", title="Log", examples=["rocketmq/broker-a"], **what)


class Verb(SparkSubmitOperator):
    """Runs ``logtwin <verb>``.

    `options` are the run's params that the verb takes by the same name, if they have a value. `given` are further
    options of this task. A failure that a retry cannot change fails the task at once.
    """

    def __init__(
        self, *, verb: str, options: Sequence[str], given: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name=f"logtwin {verb}", **kwargs)
        self.verb = verb
        self.options = options
        self.given = given or {}

    def execute(self, context: Context) -> Any:
        self._submit(context)

    def _submit(self, context: Context, *before: str) -> None:
        """Submit the verb, with the arguments `before` in front of it."""
        params = context["params"]
        _refuse_unknown("parameters of the run", params, context["dag"].params)
        settings = _settings(params)
        self._connect_by(_known(settings.pop("connection")))
        chosen = {"config": settings.pop("config")} | {name: params[name] for name in self.options}
        self.application_args = [*before, self.verb, *_as_arguments({**chosen, **self.given})]
        for name, value in settings.items():
            setattr(self, name, value)
        try:
            super().execute(context)
        except AirflowException as error:
            raise _as_it_counts(error) from error

    def _connect_by(self, connection: str) -> None:
        """Set the connection, which the provider takes when the DAG is parsed, and which is known only when it runs.

        The hook could be given a connection at that time, but alone it does not track a driver in deploy mode cluster.
        So the provider's private attribute is set. If a later version has another one, a run must fail instead of using
        the default connection.
        """
        if not hasattr(self, "_conn_id"):
            raise AirflowFailException(
                "this version of the provider apache-spark keeps its connection elsewhere: "
                "install one of requirements.txt"
            )
        self._conn_id = connection


class AnsweringVerb(Verb):
    """A verb that answers in JSON. The task's result is what `read` makes of the answer.

    Its driver runs beside the task, whatever the connection says, because the answer is a file there.
    """

    def __init__(
        self,
        *,
        given: Mapping[str, Any] | None = None,
        read: Callable[[Any], Any] = lambda answer: answer,
        **kwargs: Any,
    ) -> None:
        super().__init__(given={**(given or {}), "json": True}, deploy_mode="client", **kwargs)
        self.read = read

    def execute(self, context: Context) -> Any:
        with TemporaryDirectory(prefix="logtwin-") as folder:
            file = Path(folder) / "answer.json"
            self._submit(context, "--output", str(file))
            return self.read(json.loads(file.read_text(encoding="utf-8")))


def _settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings: `DEFAULTS`, overridden by the Variable, overridden by the run's form."""
    stored = Variable.get("logtwin", default={}, deserialize_json=True)
    _refuse_unknown("keys of the Variable logtwin", stored, DEFAULTS)
    return {**DEFAULTS, **stored, **{name: params[name] for name in WHERE if params[name] is not None}}


def _refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises AirflowFailException for unknown `names`, because a misspelt bound would be no bound."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise AirflowFailException(f"unknown {what}: {', '.join(unknown)}; known are {', '.join(sorted(known))}")


def _known(connection: str) -> str:
    """`connection`. Raises AirflowFailException if it does not exist, because the provider would take it for YARN."""
    try:
        BaseHook.get_connection(connection)
    except AirflowNotFoundException as error:
        hint = 'add it, or name another one as "connection" in the Variable logtwin'
        raise AirflowFailException(f"there is no connection {connection!r}: {hint}") from error
    return connection


def _as_arguments(options: Mapping[str, Any]) -> list[str]:
    """``{"dry_run": True, "from": 0, "to": None}`` -> ``["--dry-run", "--from", "0"]``."""
    given = [(f"--{name.replace('_', '-')}", value) for name, value in options.items()]
    set_ones = [(flag, value) for flag, value in given if value is not None and value is not False]
    return [text for flag, value in set_ones for text in ([flag] if value is True else [flag, str(value)])]


def _as_it_counts(error: AirflowException) -> AirflowException:
    """The failure of a submission, final if its exit code says that another try would end the same."""
    code = re.search(r"Error code is: (\d+)", str(error))
    return AirflowFailException(str(error)) if code and int(code[1]) in _HOPELESS else error
