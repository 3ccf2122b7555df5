"""Options that several verbs of the command line share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_CONFIG_HELP = "configuration file (TOML), see conf/logtwin.toml"

ConfigFile = Annotated[Path | None, typer.Option("--config", help=_CONFIG_HELP)]
RequiredConfig = Annotated[Path, typer.Option("--config", help=_CONFIG_HELP)]
OneLog = Annotated[str | None, typer.Option("--log", help="one log of the configuration, by its id; without it all")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object, for programs")]
