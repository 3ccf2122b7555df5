"""Options that several verbs share, those of logging among them; groups of verbs in ``logtwin --help``; completion.

The options of logging act as soon as they are read, so no verb has to know them. Completion offers the names in the
configuration file that the verb would take. It reads only that file and, for incidents, their table. It reads and
imports them only when a shell asks. It ignores errors in them: the verb itself reports those.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption

from pipeline.system.console import LogFormat, LogLevel, log_to_console, run
from sources.errors import ConfigurationError, LogtwinError

if TYPE_CHECKING:
    from pipeline.config.configuration import Config

REPLICATE = "Replicate"
PROVE = "Prove it and heal it"
QUERY = "Query it"
DISTER = "dister, a key-value store"
TRY = "Try it without a broker"
SET_UP = "Set it up"

_ORDER = (REPLICATE, PROVE, QUERY, DISTER, TRY, SET_UP)
_WHOLE = 1000  # characters of a summary: none is as long


class VerbGroups(TyperGroup):
    """Gives each verb the options of the log, and lists verbs under their `rich_help_panel`.

    Typer itself lists them so only when Rich draws the help.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for verb in self.commands.values():
            if not isinstance(verb, TyperGroup):
                verb.params += log_options()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs group by group; those without a group come last."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _ORDER}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                group = getattr(command, "rich_help_panel", None)
                title = group if isinstance(group, str) else "Commands"
                groups.setdefault(title, []).append((name, command.get_short_help_str(_WHOLE)))
        for title, verbs in groups.items():
            if verbs:
                with formatter.section(title):
                    formatter.write_dl(verbs)


plain_app = partial(
    typer.Typer,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=VerbGroups,
)
"""Makes a Typer application with the settings that all of our command lines share."""


def run_alone(verb: Callable[..., None]) -> None:
    """Run one verb, with the arguments of the process, without importing the others."""
    alone = plain_app()
    alone.command()(verb)
    command = typer.main.get_command(alone)
    command.params += log_options()
    run(command, sys.argv[2:], f"logtwin {verb.__name__}")


def log_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids of logs and topics, except for topics that a pattern selects."""
    config = _config(ctx)
    named = [] if config is None else [*(one.id for one in config.logs), *(one.id for one in config.named_topics)]
    return [name for name in named if name.startswith(incomplete)]


def typed_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """The typed tables of the configuration; none without a configuration."""
    config = _config(ctx)
    return [] if config is None else [one.table_name for one in config.tables if one.table_name.startswith(incomplete)]


def relations(incomplete: str) -> list[tuple[str, str]]:
    """The tables and views that every replica has, with what each is."""
    from pipeline.inspect.tables import listed

    return [(one.name, one.comment) for one in listed() if one.name.startswith(incomplete)]


def incident_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Every incident of the warehouse, or of its --log, with what it is; the open ones first."""
    found = sorted(_incidents(ctx), key=lambda one: (one["state"] != "open", one["log_id"], one["start"]))
    return [
        (one["id"], f"{one['state']}: {one['condition']}, {one['log_id']} {one['start']:,} to {one['end']:,}")
        for one in found
        if one["id"].startswith(incomplete)
    ]


def open_incident_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    return [(name, words) for name, words in incident_ids(ctx, incomplete) if words.startswith("open")]


def _incidents(ctx: typer.Context) -> list[dict[str, Any]]:
    """The rows of the incidents table; none if the table does not exist or cannot be read."""
    file, log = ctx.params["config"], ctx.params.get("log")
    from pipeline.config.environment import variable
    from pipeline.report.finding.questions import rows_of
    from sinks.storage.place import placed
    from sinks.storage.settings import Storage, use
    from sinks.tables import INCIDENTS

    try:
        given = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        use(Storage.model_validate(given.get("storage", {})))
        warehouse = os.environ.get(variable("", "warehouse")) or given.get("warehouse", "./warehouse")
        place = str(placed(warehouse, "warehouse"))
        rows = rows_of(INCIDENTS, place, "log_id", "id", "condition", "start", "end", "state").to_pylist()
    except (LogtwinError, OSError, ValueError, TypeError):
        return []
    return [row for row in rows if log is None or f"{row['log_id']}/".startswith(f"{log}/")]


def _config(ctx: typer.Context) -> Config | None:
    from pipeline.config import configuration

    try:
        return configuration.load(ctx.params["config"])
    except LogtwinError:
        return None


def _named(context: typer.Context, config: Path) -> Path:
    """The configuration file to use. Raises ConfigurationError if none is named and the default does not exist."""
    if config == _HERE and not config.exists() and not context.resilient_parsing:
        raise ConfigurationError(
            "no configuration is named",
            expected=f"--config FILE, the file in {_NAMED_BY}, or {_HERE} in this folder",
            found="none of them",
            hint="logtwin init writes one; the demo leaves one beside its tables.",
        )
    return config


_NAMED_BY = "LOGTWIN_CONFIG"
_HERE = Path("logtwin.toml")
_CONFIG_HELP = "configuration file (TOML), see logtwin docs logtwin.toml"

ConfigFile = Annotated[Path | None, typer.Option("--config", help=_CONFIG_HELP)]

RequiredConfig = Annotated[
    Path,
    typer.Option(
        "--config",
        envvar=_NAMED_BY,
        default_factory=lambda: _HERE,
        callback=_named,
        show_default=False,
        show_envvar=False,
        help=f"{_CONFIG_HELP}; by default the file in {_NAMED_BY}, or ./{_HERE}",
    ),
]
OneLog = Annotated[
    str | None,
    typer.Option("--log", help="id of a log of the configuration; by default all", autocompletion=log_ids),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object, for programs")]

_PLACE = "env:NAME or file:PATH"
AccessKey = Annotated[str | None, typer.Option(help=f"our access key at the broker: {_PLACE}")]
SecretKey = Annotated[str | None, typer.Option(help=f"the key that signs our requests: {_PLACE}")]
SecurityToken = Annotated[str | None, typer.Option(help=f"token of temporary keys: {_PLACE}")]
UseTls = Annotated[bool | None, typer.Option("--tls", help="use TLS")]
TlsCaFile = Annotated[str | None, typer.Option(help="PEM: the authority that signed the broker's certificate")]
TlsCertificateFile = Annotated[str | None, typer.Option(help="PEM: our own certificate")]
TlsKeyFile = Annotated[str | None, typer.Option(help="PEM: the key of our certificate, if in another file")]
TlsKeyPassword = Annotated[str | None, typer.Option(help=f"password of that key: {_PLACE}")]
TlsCheckHostname = Annotated[bool | None, typer.Option(help="whether the certificate must name the broker's host")]


def _in_format(form: LogFormat) -> None:
    log_to_console(form=form)


def _from_level(level: LogLevel | None) -> None:
    log_to_console(level=level)


def _quietly(is_asked: bool) -> None:
    if is_asked:
        log_to_console(level="warning")


def _asked(
    log_format: Annotated[
        LogFormat, typer.Option(envvar="LOGTWIN_LOG_FORMAT", callback=_in_format, help="json: one object a line")
    ] = "text",
    log_level: Annotated[
        LogLevel | None,
        typer.Option(envvar="LOGTWIN_LOG_LEVEL", callback=_from_level, help="what is logged at least; by default info"),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", callback=_quietly, help="log warnings and errors alone, and show no display")
    ] = False,
) -> None: ...


def log_options() -> list[TyperOption]:
    """The options, made anew for one verb; they are not among its arguments."""
    asked = typer.Typer(add_completion=False)
    asked.command()(_asked)
    found = [one for one in typer.main.get_command(asked).params if isinstance(one, TyperOption)]
    for one in found:
        one.expose_value = False
    return found
