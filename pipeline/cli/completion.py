"""Shell completion: offers the names in the configuration file that stands earlier on the same command line.

It reads only that file and, for incidents, their table. It reads and imports them only when a shell asks. It ignores
errors in them: the verb itself reports those.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sources.errors import LogtwinError

if TYPE_CHECKING:
    from pipeline.config.configuration import Config


def log_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids of logs and topics, except for topics that a pattern selects."""
    config = _config(ctx)
    named = [] if config is None else [*(one.id for one in config.logs), *(one.id for one in config.named_topics)]
    return [name for name in named if name.startswith(incomplete)]


def typed_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """The typed tables of the configuration; none without a configuration."""
    config = _config(ctx)
    return [] if config is None else [one.name for one in config.tables if one.name.startswith(incomplete)]


def relations(incomplete: str) -> list[tuple[str, str]]:
    """The tables and views that every replica has, with what each is."""
    from pipeline.inspect.tables import listed

    return [(one.name, one.comment) for one in listed() if one.name.startswith(incomplete)]


def incident_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Every incident of the warehouse, or of its --log, with what it is; the open ones first."""
    found = sorted(_incidents(ctx), key=lambda one: (one["state"] != "open", one["log_id"], one["start"]))
    return [(one["id"], _incident_words(one)) for one in found if one["id"].startswith(incomplete)]


def open_incident_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return [(name, words) for name, words in incident_ids(ctx, incomplete) if words.startswith("open")]


def _incident_words(one: dict[str, Any]) -> str:
    return f"{one['state']}: {one['condition']}, {one['log_id']} {one['start']:,} to {one['end']:,}"


def _incidents(ctx: typer.Context) -> list[dict[str, Any]]:
    """The rows of the incidents table; none if the table does not exist or cannot be read."""
    file, log = ctx.params.get("config"), ctx.params.get("log")
    if file is None:
        return []
    from pipeline.report.finding.rows import rows_of
    from sinks.storage.place import placed
    from sinks.storage.settings import Storage, use
    from sinks.tables import INCIDENTS

    try:
        given = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        use(Storage.model_validate(given.get("storage", {})))
        place = str(placed(given.get("warehouse", "./warehouse"), "warehouse"))
        rows = rows_of(INCIDENTS, place, "log_id", "id", "condition", "start", "end", "state").to_pylist()
    except (LogtwinError, OSError, ValueError, TypeError):
        return []
    return [row for row in rows if log is None or f"{row['log_id']}/".startswith(f"{log}/")]


def _config(ctx: typer.Context) -> Config | None:
    file = ctx.params.get("config")
    if file is None:
        return None
    from pipeline.config import configuration

    try:
        return configuration.load(file)
    except LogtwinError:
        return None
