"""``logtwin config check``: whether a job of this configuration could start here, without a JVM and without a promise.

Each check asks what the start of a job, or ``logtwin status``, asks, and all run side by side.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pipeline.config.configuration import Config
from pipeline.config.found import found_tables
from pipeline.inspect.first_contact import Contact, contacts, contacts_of
from pipeline.inspect.overview import live_jobs
from pipeline.monitoring.display import count
from pipeline.monitoring.metrics import Metrics
from pipeline.monitoring.run_state import runs_seen
from pipeline.spark.jars import delta_set, java, session_jars, storage_sets
from pipeline.spark.master_url import reached_master
from pipeline.spark.session import without_session
from sinks.storage.check import check_writable
from sinks.storage.place import SmallFile, placed
from sources.access.spread import side_by_side
from sources.errors import ConfigurationError, LogtwinError, StorageUnreachable, unnamed
from sources.extras import EXTRA_OF, naming_extras
from sources.group.asking import Asker

STORAGE_PATIENCE_S: Final = 3.0
STORE_WITHIN_S: Final = 10.0
JAVA_WITHIN_S: Final = 3.0
TRIED_JAVAS: Final = (17, 21)
_OLDEST_JAVA: Final = 17
_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its subject, whether it is right, and what was found, or what is wrong and what to do.

    `is_odd`: a job starts with it, and it may not be what is meant.
    """

    of: str
    is_right: bool
    said: str
    is_odd: bool = False

    def line(self) -> str:
        word = "failed" if not self.is_right else "warning" if self.is_odd else "ok"
        return f"{word:<7} {self.of}: {self.said}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def checks(config: Config) -> list[Check]:
    """All checks of a configuration that can be read. Raises nothing."""
    brief = config.model_copy(update={"storage": config.storage.model_copy(update={"patience_s": STORAGE_PATIENCE_S})})
    asked: list[Callable[[], Sequence[Check]]] = [
        partial(_one, "extras", _extras, config),
        partial(_one, "Java", _java),
        partial(_one, "jars", _jars, config),
        partial(_one, "Spark's master", _spark_master, config),
        partial(_one, "warehouse", _warehouse, brief),
        partial(_found_tables, brief),
        partial(_one, "metrics", _metrics_port, config),
        partial(_masters, config),
    ]
    return [one for found in side_by_side(lambda ask: ask(), asked) for one in found]


def _one(of: str, ask: Callable[..., str | None], *given: Any) -> Sequence[Check]:
    """The check that `ask` makes: it returns what it has found, None if there is nothing to check, or raises."""
    try:
        with naming_extras():
            said = ask(*given)
    except LogtwinError as error:
        return [Check(of, False, str(error))]
    return [] if said is None else [Check(of, True, said)]


def _extras(config: Config) -> str:
    missing = sorted({extra for package, extra in EXTRA_OF.items() if find_spec(package) is None})
    if "kafka" in missing and config.topics:
        import kafka  # noqa: F401 - raises what a job would raise
    without = f"; without {', '.join(missing)}, which this file does not need" if missing else ""
    return f"what this file needs is installed{without}"


def _java() -> str:
    """Raises ConfigurationError if there is none, or too old a one."""
    path = Path(java()).resolve()
    text = _release(path) or _spoken(path)
    found = _VERSION.search(text)
    if found is None:
        raise _no_java(path, "no version")
    version = int(found[1])
    if version < _OLDEST_JAVA:
        raise _no_java(path, f"Java {version}")
    tried = "" if version in TRIED_JAVAS else "; logtwin was not tried with it, but with 17 and 21"
    return f"{version}, {path}{tried}"


def _release(path: Path) -> str:
    """The file that a JDK has beside its bin: no process is needed to read it."""
    try:
        return (path.parents[1] / "release").read_text()
    except OSError:
        return ""


def _spoken(path: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the Java that a job would start
            [path, "-version"], capture_output=True, text=True, timeout=JAVA_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_java(path, error) from error
    return done.stderr + done.stdout


def _no_java(path: Path, found: object) -> ConfigurationError:
    return ConfigurationError(
        f"{path} does not fit", expected="Java 17 or 21", found=found, hint="Install a JDK 17, or set JAVA_HOME."
    )


def _jars(config: Config) -> str:
    scheme, folder = placed(config.warehouse).scheme, config.jars.chosen_folder
    if folder is not None:
        return f"{len(session_jars(scheme, config.jars))} in {folder}, all as they were written"
    new = [one.name for one in (delta_set(), *storage_sets(scheme)) if not one.is_downloaded]
    return f"the first start downloads {', '.join(new)}" if new else "in the cache folder"


def _spark_master(config: Config) -> str | None:
    url = config.spark.get("spark.master")
    return None if url is None else reached_master(url)


def _warehouse(config: Config, within_s: float = STORE_WITHIN_S) -> str:
    """Write a file, and remove it. Raises ConfigurationError; StorageUnreachable also if that takes too long: Arrow
    waits for minutes where a store of Azure or Google says nothing."""
    asker: Asker[str] = Asker()
    asker.ask("warehouse", partial(_written, config))
    for one in asker.take(within_s):
        if isinstance(one.value, Exception):
            raise one.value
        return str(one.value)
    raise StorageUnreachable(
        f"the storage of {config.warehouse} does not answer",
        expected=f"a file that is written and removed within {within_s:g} s",
        found="no answer",
        hint="Look at warehouse, and at endpoint in [storage]; the store may also be down.",
    )


def _written(config: Config) -> str:
    place = placed(without_session(config).warehouse)
    check_writable(place)
    if place.local is not None:
        return f"{place}: a file was written and removed"
    probe = SmallFile(f"{place}/.logtwin-{uuid.uuid4().hex}")
    try:
        probe.write(b"config check")
        probe.remove()
    except OSError as error:
        raise ConfigurationError(
            f"{place} cannot be written",
            expected="the rights to write and delete below it",
            found=str(error).partition("\n")[0],
            hint="Look at warehouse, and at [storage] and its keys.",
        ) from error
    return f"{place}: a file was written and removed"


def _found_tables(config: Config) -> Sequence[Check]:
    if not any(one.is_of_many for one in config.tables):
        return []
    try:
        found = found_tables(without_session(config))
    except LogtwinError as error:
        return [Check("typed tables", False, str(error))]
    flaws = [str(flaw) for several in found.flaws.values() for flaw in several]
    said = f"{count(len(found.tables) - len(config.tables), 'table')} found so far"
    return [Check("typed tables", True, "; ".join([said, *flaws]), is_odd=bool(flaws))]


def _metrics_port(config: Config) -> str | None:
    if not config.metrics.port:
        return None
    metrics = Metrics()
    try:
        metrics.serve(config.metrics.host, config.metrics.port)
    except LogtwinError:
        now = datetime.now(UTC)
        if not live_jobs(runs_seen(config.warehouse), now):
            raise
        return f"port {config.metrics.port} is taken, as a job of this warehouse runs"
    finally:
        metrics.stop()
    return f"port {config.metrics.port} is free"


def _masters(config: Config) -> list[Check]:
    try:
        with naming_extras():
            told = contacts(config, asks_rights=True)
            found = {log_id: options for one in told for log_id, options in (one.found or {}).items()}
            told += contacts_of(found)
    except LogtwinError as error:
        return [Check("masters", False, str(error))]
    is_some = any(one.found is None or one.found for one in told)
    return [_contact(one, is_some) for one in told]


def _contact(one: Contact, is_some: bool) -> Check:
    """The check of one contact. A pattern's logs may come later, but a job needs some log or topic (`is_some`) now."""
    said = one.said if one.error is None else unnamed(one.error, one.name)
    is_empty = one.found == {}
    if is_empty:
        said += "; a job takes what comes later" if is_some else "; there is nothing to replicate now"
    is_right = one.error is None and (is_some or not is_empty)
    return Check(one.name, is_right, said, is_odd=is_empty)
