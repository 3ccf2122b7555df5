"""``logtwin tables``: lists what can be queried, and manages typed tables."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipeline.cli.options import AsJson, ConfigFile, RequiredConfig, VerbGroups, relations, typed_tables
from pipeline.config import configuration
from pipeline.system.console import answer, err, show
from sources.errors import ConfigurationError, ReplicaError

app = typer.Typer(
    cls=VerbGroups, help="List what can be queried; create and manage typed tables.", no_args_is_help=True
)

TableName = Annotated[
    str, typer.Argument(metavar="NAME", help="a typed table of the configuration", autocompletion=typed_tables)
]
AnyTable = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="a typed table; by default all", autocompletion=typed_tables)
]


@app.command("all")
def list_all(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the tables and views that every replica has, with their meaning; with --config its typed tables, too."""
    from pipeline.inspect.tables import listed, relation_lines
    from pipeline.spark.session import without_session

    found = listed(None if config is None else without_session(configuration.load(config)))
    answer(as_json, {"tables": found}, relation_lines(found))


@app.command("show")
def show_columns(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="a table or view that every replica has; with --config also a typed table",
            autocompletion=relations,
        ),
    ],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the columns of a table or view, with their meaning."""
    from pipeline.inspect.tables import column_lines, described
    from pipeline.spark.session import without_session

    found = described(name, None if config is None else without_session(configuration.load(config)))
    answer(as_json, {"tables": [found]}, column_lines(found))


@app.command("list")
def list_typed(config: RequiredConfig, as_json: AsJson = False) -> None:
    """List the typed tables: rows, how far each has come, and what it could not take."""
    from pipeline.inspect.typed_status import status_lines, typed_statuses
    from pipeline.spark.session import without_session

    found = typed_statuses(without_session(configuration.load(config)))
    answer(as_json, {"tables": found}, status_lines(found))


@app.command()
def add(
    config: RequiredConfig,
    source: Annotated[
        list[str],
        typer.Option(
            "--from", metavar="TOPIC", help="a topic of RocketMQ, or kafka/<cluster>/<topic>; may be repeated"
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            help="name of the table; by default that of its first topic; with canal, debezium and maxwell "
            "'{database}_{table}' makes one of each table"
        ),
    ] = None,
    declare: Annotated[
        bool, typer.Option("--declare", help="look at the newest messages, and declare the columns that they have")
    ] = False,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="a row for the newest message of each value of this field; may be repeated"),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="append, upsert or history; by default upsert with --key, else append")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="text, avro, protobuf, canal, debezium or maxwell; by default JSON"),
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="with canal, debezium and maxwell: the database of the rows, or a pattern")
    ] = None,
    table: Annotated[str | None, typer.Option(help="as above: the table of the rows")] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="with avro and protobuf: a schema file; with these and debezium: the URL of a registry"),
    ] = None,
    message: Annotated[str | None, typer.Option(help="with a descriptor set: the message that the bodies are")] = None,
) -> None:
    """Write the [[tables]] of a typed table to standard output: append it to the configuration."""
    from pipeline.operate.typed_tables import proposed
    from pipeline.spark.session import session_for
    from sinks.typed.definition import CHANGES

    if declare and (schema or form not in (None, *CHANGES)):
        raise typer.BadParameter("the schema gives the columns", param_hint="--declare")
    if declare and "{" in (name or ""):
        raise typer.BadParameter("each of many tables finds its own columns", param_hint="--declare")
    given = {
        "format": form, "database": database, "table": table, "schema": schema, "message": message,
        "mode": mode or ("upsert" if key or form in CHANGES else None), "key": key,
    }  # fmt: skip
    settings = configuration.load(config)
    spark = session_for(settings) if declare else None
    show(proposed(spark, settings, source, name, {name: value for name, value in given.items() if value}))


@app.command()
def check(config: RequiredConfig, name: AnyTable = None, as_json: AsJson = False) -> None:
    """Prove that each message of the log is once a row, or in the table unfit.

    Exits with 5 if one is not, and with 2 if a topic of from has records that are never messages.
    """
    from pipeline.operate.typed_tables import checked, verdict_lines
    from pipeline.spark.session import session_for

    settings = configuration.load(config)
    found = checked(session_for(settings), settings, name) if settings.tables or name else []
    answer(as_json, {"tables": found}, verdict_lines(found))
    wrong = [one.name for one in found if not one.is_equal]
    if wrong:
        raise ReplicaError(
            f"typed tables that are not what their logs make: {', '.join(wrong)}",
            hint="logtwin tables rebuild NAME makes one anew from the log.",
        )
    impossible = [f"{topic} in {one.name}" for one in found for topic in one.impossible]
    if impossible:
        raise ConfigurationError(
            "typed tables name topics of which there are no messages, whatever comes",
            expected="topics that the view of the messages shows, docs/views.md",
            found=", ".join(impossible),
            hint="Take them out of from: the broker keeps them for itself, or they hold retries or dead letters.",
        )


@app.command()
def rebuild(name: TableName, config: RequiredConfig) -> None:
    """Rebuild a typed table from the log, beside the old one, and exchange both in one commit.

    A job may run meanwhile. This is also how a table takes a changed definition, or messages that did not fit.
    """
    from pipeline.operate.typed_tables import one_of, rebuilt_line
    from pipeline.spark.session import session_for, without_session
    from sinks.typed.rebuild import rebuild as make_anew

    settings = without_session(configuration.load(config))
    wanted = one_of(settings, name)
    spark = session_for(settings, writes=True)
    with err.status(f"rebuilding {name} …"):
        state = make_anew(spark, settings.warehouse, wanted)
    show(rebuilt_line(name, state))


@app.command()
def retry(name: TableName, config: RequiredConfig) -> None:
    """Try the messages that did not fit once more, now that their schema is in the registry.

    A changed definition needs tables rebuild. For a table with a key, only messages that made no row are tried.
    """
    from pipeline.operate.typed_tables import one_of, retried, retried_line
    from pipeline.spark.session import session_for, without_session

    settings = without_session(configuration.load(config))
    wanted = one_of(settings, name)
    spark = session_for(settings, writes=True)
    with err.status(f"trying the messages that did not fit into {name} …"):
        messages, left = retried(spark, settings, wanted)
    show(retried_line(name, messages, left))


@app.command()
def drop(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="a typed table of the warehouse", autocompletion=typed_tables)
    ],
    config: RequiredConfig,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a typed table and its dead letters. The log that it was made from stays."""
    from pipeline.spark.session import session_for
    from sinks.typed.rebuild import drop as delete
    from sinks.views.registration import unregister

    settings = configuration.load(config)
    if not yes and not (sys.stdin.isatty() and typer.confirm(f"Delete the typed table {name}?", err=True)):
        raise typer.BadParameter("say --yes to delete it", param_hint="--yes")
    spark = session_for(settings, writes=True, makes_room=True)
    if settings.catalog.schema_ is not None:
        unregister(spark, settings.warehouse, settings.catalog.schema_, name)
    was_there = delete(spark, settings.warehouse, name)
    show(f"{name}: {'deleted' if was_there else 'there is none'}")
