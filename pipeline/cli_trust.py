"""The verbs that prove a replica and heal it; `pipeline.cli` makes them ``logtwin <verb>``."""

from __future__ import annotations

import typer

app = typer.Typer()
