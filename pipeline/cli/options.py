"""Options that several verbs of the command line share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.completion import log_ids
from pipeline.cli.verb_groups import VerbGroups
from pipeline.system.console import run
from sources.errors import ConfigurationError

plain_app = partial(
    typer.Typer,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=VerbGroups,
)
"""Makes a Typer application with the settings that all of our command lines share."""


def run_alone(verb: Callable[..., None], arguments: Sequence[str] | None) -> None:
    """Run one verb without importing the others, with `arguments` or those of the process."""
    alone = plain_app()
    alone.command()(verb)
    run(alone, sys.argv[2:] if arguments is None else arguments, f"logtwin {verb.__name__}")


_NAMED_BY = "LOGTWIN_CONFIG"
_HERE = Path("logtwin.toml")
_CONFIG_HELP = "configuration file (TOML), see conf/logtwin.toml"

ConfigFile = Annotated[Path | None, typer.Option("--config", help=_CONFIG_HELP)]


def _named(context: typer.Context, config: Path) -> Path:
    """The configuration file to use. Raises ConfigurationError if none is named and the default does not exist."""
    if config == _HERE and not config.exists() and not context.resilient_parsing:
        raise ConfigurationError(
            "no configuration is named",
            expected=f"--config FILE, the file in {_NAMED_BY}, or {_HERE} in this folder",
            found="none of them",
            hint="conf/logtwin.toml has every key; the demo leaves one beside its tables.",
        )
    return config


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
