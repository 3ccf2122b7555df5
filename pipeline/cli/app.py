"""The command line: ``logtwin <verb>``, also ``python -m pipeline <verb>``.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a defect, 2 configuration,
3 master, 4 the log's bytes, 5 the replica, 6 the replica, temporarily (`sources.errors`); 128 + a signal's number if it
ended a verb, or a job before its first batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli import dister, options, query, setup, tables, trust
from pipeline.cli.options import QUERY, REPLICATE, TRY, AsJson, ConfigFile, RequiredConfig
from pipeline.config import configuration
from pipeline.config.configuration import Config
from pipeline.system.console import err, out, run, show, show_json, shows_live
from sources.errors import MasterError

if TYPE_CHECKING:
    from pipeline.monitoring.progress import Progress

log = logging.getLogger(__name__)

app = options.plain_app(
    name="logtwin",
    no_args_is_help=True,
    add_completion=True,
)

app.add_typer(setup.app)
app.add_typer(trust.app)
app.add_typer(dister.app)
app.add_typer(query.app)
app.add_typer(tables.app, name="tables", rich_help_panel=QUERY)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and leave the process with its exit code."""
    run(app, arguments)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        from pipeline.version import own_version

        out.print(f"logtwin {own_version()}", highlight=False)
        raise typer.Exit


@app.callback()
def logtwin(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="print the version and exit")
    ] = False,
) -> None:
    """Your message log as tables: RocketMQ, Kafka and dister in Delta, each record once, provably complete."""


@app.command(rich_help_panel=REPLICATE)
def replicate(
    config: RequiredConfig,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="replicate what the masters hold now, then end")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="start even if another job replicates a log; that job loses it")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(envvar="LOGTWIN_SHARD", help="take a share of the logs alone: 2/8 is the second of eight"),
    ] = None,
) -> None:
    """Replicate every log and topic of the configuration.

    It runs until Ctrl-C, SIGTERM or SIGHUP, which stop it between two batches; with --available-now until all is
    replicated. With --shard several jobs share the logs. Each waits for what another one still has.
    """
    from pipeline.inspect.first_contact import tell_at_start
    from pipeline.monitoring.display import Display
    from pipeline.monitoring.metrics import serving
    from pipeline.spark.session import STARTS, session_for, warm_up
    from pipeline.system.signals import stop_by_signal

    settings = configuration.load(config).with_logs(str(config)).in_shard(shard)
    with serving(settings.metrics) as metrics:
        # a second of imports, while the JVM starts
        threading.Thread(target=import_module, args=("pipeline.job.replicate",), daemon=True).start()
        told: dict[str, str] = {}

        def before_java() -> None:
            tell_at_start(settings, told)
            log.info(STARTS)

        spark = session_for(settings, writes=True, before_java=before_java)
        warm_up(spark)
        from pipeline.job.replicate import Job
        from pipeline.operate.upkeep import TableUpkeep

        job = Job(spark, settings, available_now=available_now, take_over=take_over, told=told)
        upkeep = None if available_now else TableUpkeep(spark, settings)

        def stop() -> None:
            job.request_stop()
            if upkeep is not None:
                upkeep.request_stop()

        with stop_by_signal(stop), Display(err, is_live=shows_live()) as display:

            def look(logs: list[Progress]) -> bool:
                kept = None if upkeep is None else upkeep.progress()
                return metrics.update(logs, job.tables.progress(), kept) and display(logs)

            job.start(look)
            with upkeep or nullcontext():
                job.run(look)
    for one in job.progress():
        where = f"{one.phase} at {_place(one)}, {one.records:,} records in this run"
        show(f"{one.log_id}: {where}, acknowledged {_known(one.acknowledged)}")


@app.command(rich_help_panel=REPLICATE)
def status(
    config: RequiredConfig,
    as_json: AsJson = False,
    check: Annotated[
        bool, typer.Option("--check", help="for monitors: exit with 3 or 5 if a master or a job is down, and say so")
    ] = False,
) -> None:
    """Show the state of each replica and of its master.

    It shows which job runs, what it has received, committed and acknowledged, how far it lags, and what is left until
    the master deletes what is not replicated. Then it shows which shards have live jobs, if there are shards, and how
    far the typed tables are.
    """
    from pipeline.inspect.overview import job_as_json, overview
    from pipeline.inspect.status import status_blocks, troubles
    from pipeline.spark.session import without_session

    seen = overview(without_session(configuration.load(config).with_logs(str(config))))
    if as_json:
        jobs = [job_as_json(one) for one in seen.jobs]
        show_json(
            {
                "logs": seen.logs,
                "tables": seen.tables,
                "jobs": jobs,
                "upkeep": seen.upkeep,
                "unconfigured": seen.unconfigured,
            }
        )
    else:
        out.print(status_blocks(seen.logs, seen.at))
        for line in seen.lines():
            show(line)
    found = [one for log in seen.logs for one in troubles(log, seen.at)] if check else []
    for error in found:
        show(str(error), to=err)
    if found:
        raise typer.Exit(max(error.exit_code for error in found))


@app.command(rich_help_panel=TRY)
def master(
    config: ConfigFile = None,
    store: Annotated[str | None, typer.Option(help="folder of the commit log")] = None,
    ha_port: Annotated[int | None, typer.Option(help="HA port; 0 takes a free one")] = None,
    port: Annotated[int | None, typer.Option(help="remoting port; 0 takes a free one")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    file_size_bytes: Annotated[int | None, typer.Option(help="size of a segment file of a new store")] = None,
    role: Annotated[
        Literal["ASYNC_MASTER", "SYNC_MASTER"] | None, typer.Option(help="SYNC_MASTER: producers wait for a slave")
    ] = None,
    in_sync_replicas: Annotated[
        int | None, typer.Option(min=1, help="producers wait for this many replicas, the master included (as in 5.x)")
    ] = None,
    slave_timeout_s: Annotated[float | None, typer.Option(help="how long a producer waits for slaves")] = None,
    name_server: Annotated[str | None, typer.Option(help="register at this name server, host:port")] = None,
) -> None:
    """Run the embedded master, a small broker.

    It keeps a real commit log and serves HA and remoting: real slaves replicate from it, real clients send to it.
    """
    given = _given(locals())
    from pipeline.demo.embedded_master import serve

    settings = _load(config).embedded_master.model_copy(update=given)
    serve(settings, on_ready=lambda line: show(line))


@app.command(rich_help_panel=TRY)
def send(
    config: ConfigFile = None,
    to: Annotated[str | None, typer.Option(help="remoting address of the broker, host:port")] = None,
    seed: Annotated[int | None, typer.Option(help="the same seed sends the same messages")] = None,
    count: Annotated[int | None, typer.Option(help="stop after this many messages")] = None,
    duration_s: Annotated[float | None, typer.Option(help="stop after this many seconds")] = None,
    rate_per_s: Annotated[float | None, typer.Option(help="messages a second, 0 for as fast as possible")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="how many requests may be in flight")] = None,
    access_key: options.AccessKey = None,
    secret_key: options.SecretKey = None,
    security_token: options.SecurityToken = None,
    tls: options.UseTls = None,
    tls_ca_file: options.TlsCaFile = None,
    tls_certificate_file: options.TlsCertificateFile = None,
    tls_key_file: options.TlsKeyFile = None,
    tls_key_password: options.TlsKeyPassword = None,
    tls_check_hostname: options.TlsCheckHostname = None,
) -> None:
    """Send a repeatable workload to a broker.

    It sends orders, payments, events and telemetry, mixed in size and form, to an embedded master or a real broker,
    which may ask for signed requests and TLS. Options for secrets take the secret's place, never the secret itself.
    """
    given = _given(locals())
    from pipeline.demo.embedded_master import answers, send_to

    settings = _load(config).workload.with_given(given)
    sent = send_to(settings)
    show(
        f"{sent.messages:,} messages, {sent.bytes / 1e6:,.1f} MB of bodies in {sent.seconds:,.1f} s: "
        f"{sent.messages_per_s:,.0f}/s, {sent.megabytes_per_s:,.1f} MB/s; {answers(sent)}"
    )
    if sent.refused:
        refused = ", ".join(f"{count:,} with code {code}" for code, count in sorted(sent.refused.items()))
        raise MasterError(f"the broker at {settings.to} refused messages", found=refused)


@app.command(rich_help_panel=TRY)
def demo(
    config: ConfigFile = None,
    duration_s: Annotated[float | None, typer.Option(help="how long messages are sent")] = None,
    rate_per_s: Annotated[float | None, typer.Option(help="messages a second, 0 for as fast as possible")] = None,
    seed: Annotated[int | None, typer.Option(help="the same seed sends the same messages")] = None,
    warehouse: Annotated[str | None, typer.Option(help="folder of the tables; s3 starts an S3 server")] = None,
    store: Annotated[str | None, typer.Option(help="folder of the master's commit log")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="go on until Ctrl-C")] = False,
    master: Annotated[Literal["rocketmq", "dister", "kafka"], typer.Option(help="the kind of master")] = "rocketmq",
) -> None:
    """Run the demo, as `make run` does.

    It starts a master, sends it messages, replicates them live, and queries the tables. Run it again and it goes on.
    """
    from pipeline.demo.live import demo_warehouse

    settings = _load(config)
    settings = settings.model_copy(
        update={
            "workload": settings.workload.model_copy(
                update=_given({"duration_s": duration_s, "rate_per_s": rate_per_s, "seed": seed})
            ),
            "embedded_master": settings.embedded_master.model_copy(update=_given({"store": store})),
            **_given({"warehouse": warehouse}),
        }
    )
    if master == "kafka":
        from pipeline.demo.kafka import run_kafka_demo as show
    elif master == "dister":
        from pipeline.demo.dister import run_dister_demo as show
    else:
        from pipeline.demo.rocketmq import run_demo as show
    with demo_warehouse(settings, out) as settled:
        show(settled, out, keep=keep)


def _place(one: Progress) -> str:
    if not one.partitions:
        return f"offset {_known(one.position)}"
    return f"offsets {', '.join(f'{number}: {_known(at.position)}' for number, at in sorted(one.partitions.items()))}"


def _known(offset: int | None) -> int | str:
    return "none" if offset is None else offset


def _load(path: Path | None) -> Config:
    return configuration.load(path)


def _given(values: Mapping[str, object]) -> dict[str, object]:
    """The options of a verb that were given; `values` are its arguments."""
    return {name: value for name, value in values.items() if value is not None and name != "config"}
