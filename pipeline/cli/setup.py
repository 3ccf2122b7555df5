"""The verbs that set a host or an image up; `pipeline.cli.app` makes them ``logtwin <verb>``."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from pipeline.cli.options import SET_UP, AsJson, ConfigFile, RequiredConfig, VerbGroups
from pipeline.config import configuration
from pipeline.config.configuration import Config
from pipeline.system.console import answer, out, show
from pipeline.system.folders import process_folder
from sources.errors import ConfigurationError, LogtwinError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer()

Master = Literal["rocketmq", "rocketmq-cluster", "rocketmq-files", "kafka", "dister"]
"""Each has a template, which goes between head.toml and tail.toml."""

_WIDEST = 120
"""Columns of a page: longer lines are hard to read."""


config_app = typer.Typer(cls=VerbGroups, help="Check a configuration before a job starts.", no_args_is_help=True)
app.add_typer(config_app, name="config", rich_help_panel=SET_UP)


@app.command(rich_help_panel=SET_UP)
def init(
    master: Annotated[Master, typer.Argument(metavar="MASTER", help=f"{', '.join(get_args(Master))}")],
    to: Annotated[Path, typer.Option(metavar="FILE", help="the file to write; one that is there stays")] = Path(
        "logtwin.toml"
    ),
) -> None:
    """Write a configuration for a kind of master, with the keys that most jobs need: fill in what is yours."""
    templates = Path(__file__).parent / "templates"
    text = "\n".join((templates / f"{name}.toml").read_text() for name in ("head", master, "tail"))
    try:
        with to.open("x") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(
            f"{to} cannot be written", expected="a new file", found=error.strerror, hint="Give another one with --to."
        ) from error
    show(f"{to}: fill in what is yours, then logtwin config check --config {to}")


@config_app.command()
def check(config: RequiredConfig, as_json: AsJson = False) -> None:
    """Say in seconds, without Java, whether a job could start here: file, masters, rights, warehouse, port, Java.

    It asks what a start asks, promises nothing, and leaves nothing behind. Exits with 2 if something is wrong.
    """
    from pipeline.inspect.config_check import Check, checks

    try:
        settings = configuration.load(config).with_logs(str(config))
    except LogtwinError as error:
        found = [Check("file", False, str(error))]
    else:
        found = [Check("file", True, f"{config}"), *checks(settings)]
    answer(as_json, {"checks": found}, (one.line() for one in found))
    if not all(one.is_right for one in found):
        raise typer.Exit(ConfigurationError.exit_code)


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
    from pipeline.spark.jars import delta_set, storage_sets, write_jars

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
    with out.pager(styles=True):
        out.print(Markdown(text), width=min(out.width, _WIDEST))


@app.command(rich_help_panel=SET_UP)
def files(
    to: Annotated[Path, typer.Option(metavar="DIR", help="folder for them; it is made, and nothing is overwritten")],
) -> None:
    """Write what hosts need: dashboard, alerts, DAGs, systemd unit, Kubernetes, Dockerfile, submit.py."""
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
