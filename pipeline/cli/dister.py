"""The verbs of dister; `pipeline.cli.app` makes them ``logtwin <verb>``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import DISTER, AsJson, RequiredConfig, VerbGroups, log_ids
from pipeline.config import configuration
from pipeline.demo.dister_leader import fill, leader_lines, parse_node, parse_pairs
from pipeline.system.console import err, show
from sources.dister.embedded.leader import EmbeddedLeader

if TYPE_CHECKING:
    from pipeline.inspect.key_values import ReplicaMap

app = typer.Typer()
leader = typer.Typer(
    cls=VerbGroups, help="Be a dister leader: look at its folder, or write to it.", invoke_without_command=True
)
service = typer.Typer(cls=VerbGroups, help="Set and remove services.", no_args_is_help=True)
peers = typer.Typer(cls=VerbGroups, help="Add and remove nodes.", no_args_is_help=True)
leader.add_typer(service, name="service")
leader.add_typer(peers, name="peers")
app.add_typer(leader, name="leader", rich_help_panel=DISTER)

LeaderFolder = Annotated[Path, typer.Option("--dir", help="the leader's folder, with dister.entry.log; created if new")]
Group = Annotated[str | None, typer.Option("--group", help="the leader's group; by default that of the folder")]
KeyedLog = Annotated[
    str | None,
    typer.Option(
        "--log", help="id of a log of the configuration; not needed if only one has keys", autocompletion=log_ids
    ),
]
Ips = Annotated[list[str], typer.Argument(metavar="IP...", help="addresses of nodes")]


@leader.callback()
def show_leader(
    context: typer.Context,
    folder: Annotated[Path | None, typer.Option("--dir", help="folder of the leader, ours or a real one")] = None,
) -> None:
    """Show what is in a leader's folder: its entries, keys, services and nodes."""
    if context.invoked_subcommand is not None:
        return
    if folder is None:
        raise typer.BadParameter("the folder of the leader is missing", param_hint="--dir")
    for line in leader_lines(folder):
        show(line)


@leader.command("set")
def set_keys(
    folder: LeaderFolder,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="all in one entry")],
    group: Group = None,
) -> None:
    """Set keys."""
    items = parse_pairs(pairs)
    with EmbeddedLeader(folder, group=group) as node:
        show(f"dister/{node.group}: entry {node.set(items)} sets {', '.join(items)}")


@leader.command("remove")
def remove_keys(
    folder: LeaderFolder,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="all in one entry")],
    group: Group = None,
) -> None:
    """Remove keys; one that is not there is no error."""
    with EmbeddedLeader(folder, group=group) as node:
        show(f"dister/{node.group}: entry {node.remove(keys)} removes {', '.join(keys)}")


@leader.command("fill")
def fill_log(
    folder: LeaderFolder,
    count: Annotated[int, typer.Option(min=1, help="how many entries")],
    seed: Annotated[int, typer.Option(help="the same seed writes the same entries to a new folder")] = 1,
    rate_per_s: Annotated[
        float | None, typer.Option(min=0, help="entries a second; by default as fast as possible")
    ] = None,
    group: Group = None,
) -> None:
    """Write a repeatable workload: settings, stock, sessions that come and go, and some writes that fail."""
    with EmbeddedLeader(folder, group=group, seed=seed) as node:
        filled = fill(node, count=count, seed=seed, rate_per_s=rate_per_s)
        show(
            f"dister/{node.group}: {filled.entries:,} entries in {filled.seconds:,.1f} s: "
            f"{filled.entries_per_s:,.0f}/s; the last is {filled.last_id}"
        )


@service.command("set")
def set_service(
    folder: LeaderFolder,
    name: Annotated[str, typer.Argument(help="name of the service")],
    kind: Annotated[str, typer.Option("--type", help="how its health is checked: mysql, pgsql, web, tcp, custom")],
    node: Annotated[
        list[str] | None, typer.Option(metavar="JSON", help="values of a node, a JSON object; once for each node")
    ] = None,
    group: Group = None,
) -> None:
    """Replace all nodes of a service; without --node it is removed."""
    nodes = [parse_node(text) for text in node or []]
    with EmbeddedLeader(folder, group=group) as writer:
        changed = writer.service_set(name, kind, nodes)
        show(f"dister/{writer.group}: {name} has {len(nodes)} nodes; services at {changed}")


@service.command("remove")
def remove_services(
    folder: LeaderFolder,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="names of services")],
    group: Group = None,
) -> None:
    """Remove services; one that is not there is no error."""
    with EmbeddedLeader(folder, group=group) as node:
        changed = node.service_remove(names)
        show(f"dister/{node.group}: {len(node.services().services)} nodes of services left; services at {changed}")


@peers.command("add")
def add_peers(folder: LeaderFolder, ips: Ips, group: Group = None) -> None:
    """Add nodes by their addresses; known ones stay as they are."""
    with EmbeddedLeader(folder, group=group) as node:
        node.peers_add(ips)
        show(f"dister/{node.group}: {len(node.nodes())} nodes")


@peers.command("remove")
def remove_peers(folder: LeaderFolder, ips: Ips, group: Group = None) -> None:
    """Remove nodes by their addresses; the leader stays."""
    with EmbeddedLeader(folder, group=group) as node:
        node.peers_remove(ips)
        show(f"dister/{node.group}: {len(node.nodes())} nodes")


@app.command("get", rich_help_panel=DISTER)
def get_key(key: Annotated[str, typer.Argument(help="the key")], config: RequiredConfig, log: KeyedLog = None) -> None:
    """Print the value of a key in the replica. If there is none, print nothing and exit with 1."""
    value = _map(config, log).get(key)
    if value is None:
        raise typer.Exit(1)
    typer.echo(value)  # not through Rich, which would interpret markup in it


@app.command("get-all", rich_help_panel=DISTER)
def get_all_keys(
    config: RequiredConfig,
    log: KeyedLog = None,
    as_json: AsJson = False,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="print even more than 1000 keys")] = False,
) -> None:
    """Print every key in the replica with its value."""
    from pipeline.inspect.key_values import MOST_KEYS

    found = _map(config, log).get_all(None if no_limit else MOST_KEYS)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        for key, value in found.items():
            typer.echo(f"{key}={value}")


def _map(config: Path, log: str | None) -> ReplicaMap:
    """Open the replica's map, and print to standard error which offset it stands at."""
    from pipeline.inspect.key_values import ReplicaMap
    from pipeline.spark.session import without_session

    found = ReplicaMap.opened(without_session(configuration.load(config).only(log, str(config))), str(config))
    show(found.age, to=err)
    return found
