"""``[[logs]]`` with `cluster`: a log for each broker name of a RocketMQ cluster.

    cluster = "DefaultCluster"          as the brokers call it: brokerClusterName
    name_server = "host:port"           several joined by ;
    include = ["broker-.*"]             by default all; regular expressions for whole broker names
    exclude = ["broker-test-.*"]        by default none

All other keys are those of `ReadOptions`, and hold for each log. With `controllers` these are asked for the masters;
the name servers still list the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.config.patterns import at, name_pattern
from sources.errors import ConfigurationError
from sources.options import ReadOptions, addresses, known_keys, parse_options
from sources.rocketmq.discovery import BrokerCluster

_WHICH: Final = ("cluster", "include", "exclude")
_OF_ONE: Final = ("id", "master", "remoting", "path")
_OF_DISTER: Final = ("peers", "max_entries_per_trigger", "check_and_fix")
CLUSTER_KEYS: Final = (*_WHICH, *(key for key in ReadOptions.model_fields if key not in (*_OF_ONE, *_OF_DISTER)))

_ANY: Final = "rocketmq/any"  # stands for a log where only a pattern is known


def parsed_cluster(given: Mapping[str, Any], *, where: str) -> BrokerCluster:
    """Make a table's entry from parsed TOML. Raises ConfigurationError, which names `where` and the key."""
    # Imported here, so that only jobs with clusters load the whole of RocketMQ's side.
    from sources.registry import remoting_security

    for key in known_keys(given, (*_WHICH, *ReadOptions.model_fields), where=where):
        if key in (*_OF_ONE, *_OF_DISTER):
            raise ConfigurationError(
                f"{where}: {key} cannot be given with cluster",
                expected="keys that hold for every log of the cluster",
                found=key,
                hint="Give the log a [[logs]] table of its own, which wins." if key in _OF_ONE else "Remove it.",
            )
    values = known_keys(given, CLUSTER_KEYS, where=where)
    which: dict[str, Any] = {key: values.pop(key) for key in _WHICH if key in values}
    cluster = which["cluster"]
    if not isinstance(cluster, str) or not cluster:
        raise ConfigurationError(f"{where}: cluster is not usable", expected='a name: "…"', found=repr(cluster))
    with at(where):
        options = parse_options(ReadOptions, {**values, "id": _ANY}, where=where)
        name_servers = addresses(options.name_server)
        if not name_servers:
            raise ConfigurationError(
                "the key 'name_server' is missing", hint='Add name_server = "host:port": it lists the brokers.'
            )
        return BrokerCluster(
            cluster=cluster,
            pattern=name_pattern(which, "include"),
            name_servers=name_servers,
            # a log has one way to its master
            options=options.model_copy(update={"name_server": None}) if options.controllers else options,
            security=remoting_security(options),
        )
