"""The verbs that set a host or an image up; `pipeline.cli.app` makes them ``logtwin <verb>``."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import SET_UP, ConfigFile
from pipeline.config import configuration
from pipeline.config.configuration import Config
from pipeline.system.console import out, show
from pipeline.system.folders import process_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer()

_WIDEST = 120
"""Columns of a page: longer lines are hard to read."""


@app.command(rich_help_panel=SET_UP)
def jars(
    to: Annotated[Path, typer.Option(metavar="DIR", help="folder for them; what it has already stays")],
    wanted: Annotated[
        str, typer.Option("--for", metavar="NAMES", help="by commas: delta, s3, azure, gs, kafka-demo")
    ] = "delta",
    config: ConfigFile = None,
) -> None:
    """Write the Java libraries that a job needs, for hosts without a network: see [jars] of the configuration.

    Every job needs delta; s3, azure and gs are for a warehouse there, kafka-demo for make run MASTER=kafka. They come
    from Maven Central, or from the mirror that [jars] names. Beside them is a list of their SHA-256, which each start
    compares.
    """
    from pipeline.demo.kafka_broker import VERSION, jar_sets
    from pipeline.spark.jar_folder import write_jars
    from pipeline.spark.jars import delta_set, storage_sets

    sets = {
        "delta": (delta_set(),),
        **{name: storage_sets(scheme) for name, scheme in (("s3", "s3"), ("azure", "abfss"), ("gs", "gs"))},
        "kafka-demo": jar_sets(VERSION),
    }
    names = [name.strip() for name in wanted.split(",")]
    unknown = [name for name in names if name not in sets]
    if unknown:
        raise typer.BadParameter(f"{', '.join(map(repr, unknown))} is none of {', '.join(sets)}", param_hint="--for")
    settings = configuration.load(config)
    for one in (one for name in names for one in sets[name]):
        found = one.downloaded(settings.jars)
        is_new = write_jars(to, one.name, found)
        size = sum(jar.stat().st_size for jar in found)
        show(f"{to / one.name}: {len(found)} jars, {size / 1e6:,.1f} MB{'' if is_new else ', already there'}")


@app.command(rich_help_panel=SET_UP)
def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="[PAGE]", help="which to show; without it they are listed")
    ] = None,
) -> None:
    """Show a page of the documents, or list them; logtwin.toml is the one with every key.

    On a terminal it comes through your pager, else as Markdown.
    """
    from pipeline.system.shipped import pages, text_of, title

    if page is None:
        found = {name: title(file) for name, file in pages().items() if "/" not in name}
        widest = max(map(len, found))
        show("\n".join(f"{name:<{widest}}  {words}" for name, words in found.items()))
        return
    text = text_of(page)
    if not out.is_terminal:
        show(text)
        return
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "-FRX")  # as git does: colours pass, and what fits stays on the screen
    with out.pager(styles=True, links=True):
        out.print(Markdown(text), width=min(out.width, _WIDEST))


@app.command(rich_help_panel=SET_UP)
def files(
    to: Annotated[Path, typer.Option(metavar="DIR", help="folder for them; it is made, and nothing is overwritten")],
) -> None:
    """Write what came with logtwin for hosts: dashboard, alerts, DAGs, systemd unit, Kubernetes, Dockerfile."""
    from pipeline.system.shipped import write_files

    for path in write_files(to):
        show(str(path))


@app.command(rich_help_panel=SET_UP)
def warm(config: ConfigFile = None) -> None:
    """Let later sessions answer in half of the time: write an archive of the classes that Spark's JVM loads.

    It takes a minute, 1.6 GB of memory for a moment, and 180 MB of the cache folder, or of the folder in [jars].
    Sessions of the configuration use it, until a jar or Java changes; without one, those of a warehouse on a disk.
    """
    from pipeline.spark.warm import write_archive
    from pipeline.sql.reader import Reader, run_text
    from pipeline.sql.serve.server import WARM_UP
    from sinks.warehouse import ensure_tables

    def ask(spark: SparkSession) -> None:
        with tempfile.TemporaryDirectory(dir=process_folder()) as lake:
            ensure_tables(spark, lake)
            reader = Reader.over(spark, Config(warehouse=lake), None, WARM_UP)
            run_text(reader, WARM_UP, "table", io.BytesIO(), None)

    file = write_archive(configuration.load(config), ask)
    show(f"{file}: {file.stat().st_size / 1e6:,.0f} MB")
