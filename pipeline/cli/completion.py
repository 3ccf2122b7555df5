"""What a shell offers for an argument: what the configuration names that stands before it on the same line.

Nothing is asked for it but that file, which is read, with what that takes to import, only where a shell asks. What is
wrong with it the verb says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sources.errors import LogtwinError

if TYPE_CHECKING:
    from pipeline.config.configuration import Config


def log_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Logs, and topics but for those that a pattern stands for."""
    config = _config(ctx)
    named = [] if config is None else [*(one.id for one in config.logs), *(one.id for one in config.topics_among(()))]
    return [name for name in named if name.startswith(incomplete)]


def typed_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those of the configuration; without one of which nothing is known."""
    config = _config(ctx)
    return [] if config is None else [one.name for one in config.tables if one.name.startswith(incomplete)]


def relations(incomplete: str) -> list[tuple[str, str]]:
    """The tables and views that every replica has, with what each is."""
    from pipeline.inspect.tables import listed

    return [(one.name, one.comment) for one in listed() if one.name.startswith(incomplete)]


def _config(ctx: typer.Context) -> Config | None:
    file = ctx.params.get("config")
    if file is None:
        return None
    from pipeline.config import configuration

    try:
        return configuration.load(file)
    except LogtwinError:
        return None
