"""Where Spark runs its tasks, as `spark.master` says: the forms that Spark knows, and whether somebody listens there.

Spark itself says so only in its own log, and of a cluster's master after a minute.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sources.access.address import Address
from sources.access.spread import side_by_side
from sources.errors import ConfigurationError

WITHIN_S: Final = 3.0
_STANDALONE: Final = "spark://"
_HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_OTHERS: Final = re.compile(
    r"yarn|local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*(,\s*\d+\s*){2}\]"
    r"|k8s://(https?://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d+)?(/\S*)?"
)


def checked_master(url: str, environment: Mapping[str, str] = os.environ) -> tuple[Address, ...]:
    """The addresses of a standalone cluster's masters; none of another kind. Raises ConfigurationError if Spark would
    not know what `url` means, or lacks what YARN needs."""
    if url == "yarn":
        _check_hadoop(environment)
    if _OTHERS.fullmatch(url):
        return ()
    try:
        if not url.startswith(_STANDALONE):
            raise ConfigurationError("another form")
        return tuple(Address.parse(one) for one in url.removeprefix(_STANDALONE).split(","))
    except ConfigurationError as error:
        raise ConfigurationError(
            "spark.master is no master that Spark knows",
            expected="local[N] or local[*], spark://host:port, yarn, or k8s://https://host:port",
            found=repr(url),
            hint="Look at spark.master below [spark]; without it Spark runs in the job's own process.",
        ) from error


def _check_hadoop(environment: Mapping[str, str]) -> None:
    given = {name: environment[name] for name in _HADOOP if environment.get(name)}
    if any(Path(folder).is_dir() for folder in given.values()) or _has_spark_env(environment):
        return
    raise ConfigurationError(
        "spark.master is yarn, and where that is cannot be known",
        expected=f"{' or '.join(_HADOOP)} in the environment: the folder of the cluster's configuration",
        found=", ".join(f"{name}={folder}, which is no folder" for name, folder in given.items()) or "neither",
        hint="Set it, for example to /etc/hadoop/conf.",
    )


def _has_spark_env(environment: Mapping[str, str]) -> bool:
    """Whether spark-submit runs a script of the site's first, which may set what is not set here."""
    folder = environment.get("SPARK_CONF_DIR") or Path(environment.get("SPARK_HOME", "/nowhere"), "conf")
    return Path(folder, "spark-env.sh").is_file()


def reached_master(url: str, within_s: float = WITHIN_S) -> str:
    """In words, where Spark runs. Raises ConfigurationError, as `checked_master`, and if none of the masters of a
    standalone cluster takes a connection; one is enough, as others may stand by."""
    addresses = checked_master(url)
    refusals = dict(zip(addresses, side_by_side(lambda one: _refusal(one, within_s), addresses), strict=True))
    silent = [f"{address}: {why}" for address, why in refusals.items() if why is not None]
    if silent and len(silent) == len(addresses):
        raise ConfigurationError(
            "no master of Spark's cluster takes a connection",
            expected=f"one that listens at {url}",
            found="; ".join(silent),
            hint="Start it, or look at spark.master below [spark]: it is the address at the top of the master's page, "
            "not that of the page itself.",
        )
    listens = " listens" if addresses else ""
    return f"{url}{listens}" + (f"; not there: {'; '.join(silent)}" if silent else "")


def _refusal(address: Address, within_s: float) -> str | None:
    """Why it takes no connection; None if it does."""
    try:
        socket.create_connection((address.host, address.port), within_s).close()
    except TimeoutError:
        return f"no answer within {within_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return None
