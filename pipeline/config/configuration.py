"""The configuration: a file of TOML and variables of the environment, every key known, every default with its reason.

``conf/logtwin.toml`` shows every key. The keys of a log (``[[logs]]``) and of Kafka's topics (``[[topics]]``) are those
of the data source, in TOML's spelling.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SkipValidation,
    ValidationError,
)

from pipeline.config.environment import taken
from pipeline.config.jars import JarsConfig
from pipeline.config.patterns import Topics, at, parsed_cluster, parsed_topics
from pipeline.config.typed_tables import TypedTableConfig, check_names
from sinks.storage.place import placed
from sinks.storage.settings import Storage
from sources.discovery import Discovery, Named, chosen, matched
from sources.errors import ConfigurationError
from sources.kafka.options import ReplicatedTopicOptions
from sources.offsets import LogId
from sources.options import KIB, MIB, Model, ReadOptions, SecurityOptions, invalid_value, parse_options, unknown_key
from sources.rocketmq.discovery import BrokerCluster
from sources.rocketmq.producer.producer import DEFAULT_WINDOW
from sources.shards import Shard

Port = Annotated[int, Field(ge=0, le=65_535)]
"""A TCP port to listen on."""


class EmbeddedMasterConfig(BaseModel):
    """``[embedded_master]``: the master of ``logtwin master`` and of the demo."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = Field("./master-store", description="folder of its commit log; kept between runs")
    host: str = Field("127.0.0.1", description="HA has no authentication: listen on the loopback unless told otherwise")
    port: Port = Field(10911, description="remoting port, RocketMQ's usual one; 0 takes a free one")
    ha_port: Port = Field(10912, description="HA port, RocketMQ's usual one; 0 takes a free one")
    file_size_bytes: PositiveInt = Field(
        64 * MIB, description="size of a segment file; smaller than RocketMQ's 1 GiB, so that a demo shows several"
    )
    role: Literal["ASYNC_MASTER", "SYNC_MASTER"] = Field(
        "ASYNC_MASTER", description="a SYNC_MASTER answers a producer when a slave has acknowledged its message"
    )
    in_sync_replicas: PositiveInt | None = Field(
        None, description="as in 5.x: replicas that must have a message, this one included; without it as in 4.x"
    )
    slave_timeout_s: PositiveFloat = Field(3.0, description="slaveTimeout: a producer waits for slaves no longer")
    fall_behind_max_bytes: PositiveInt = Field(
        256 * MIB, description="haSlaveFallbehindMax: a slave that lacks this much or more is not available"
    )
    transfer_batch_bytes: PositiveInt = Field(32 * KIB, description="haTransferBatchSize: the largest frame to a slave")
    sync_flush: bool = Field(False, description="answer a producer only when its message is on disk")
    name_server: str | None = Field(
        None, description="register there, so that slaves of 5.x and clients find this master"
    )


class WorkloadConfig(SecurityOptions):
    """``[workload]``: the messages of ``logtwin send`` and of the demo, and who sends them, as in ``[[logs]]``."""

    to: str = Field("127.0.0.1:10911", description="remoting address of the broker, embedded or real")
    seed: NonNegativeInt = Field(7, description="the same seed sends the same messages")
    duration_s: PositiveFloat = Field(60.0, description="about as long as somebody watches a demo")
    rate_per_s: NonNegativeFloat = Field(
        2000.0, description="messages a second; 0 sends as fast as the broker takes them"
    )
    count: PositiveInt | None = Field(None, description="stop after this many messages, if that comes first")
    window: PositiveInt = Field(
        DEFAULT_WINDOW, description="requests on their way at once; producers that wait for a replica need many"
    )

    def with_given(self, given: Mapping[str, object]) -> WorkloadConfig:
        """A copy with the keys that were given on the command line. Raises ConfigurationError."""
        return parse_options(WorkloadConfig, dict(self) | dict(given), where="logtwin send")


class MetadataConfig(BaseModel):
    """``[metadata]``: whether and when to copy each broker's topics, groups, consumer and delay offsets to tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(True, description="whether to fetch it; logs read from files have none")
    first_after_s: NonNegativeFloat = Field(10.0, description="the log comes first; RocketMQ's own slaves waited so")
    every_s: PositiveFloat = Field(60.0, description="RocketMQ's own rhythm; history has this resolution")


class MetricsConfig(BaseModel):
    """``[metrics]``: the Prometheus endpoint of a job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    port: Port | None = Field(None, description="without it there is no endpoint; 0 takes a free one and says which")
    host: str = Field("127.0.0.1", description="metrics name brokers and offsets: the loopback unless told otherwise")


class CatalogConfig(BaseModel):
    """``[catalog]``: registers the tables by name in the catalog of the session that ``[spark]`` sets up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: str | None = Field(
        None,
        min_length=1,
        description="schema, or catalog.schema, that a job registers tables and views in; without it none",
    )


class MaintainConfig(BaseModel):
    """``[maintain]``: the upkeep of the tables, by the job itself and by ``logtwin maintain``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every_s: NonNegativeFloat = Field(
        3600.0, description="a job looks after its tables, beside its batches, so often; 0: never, somebody else does"
    )
    target_file_bytes: PositiveInt = Field(
        128 * MIB, description="small files are merged up to this; what engines give one task to read"
    )
    min_files: PositiveInt = Field(
        8, description="so many become one at the least; a file is small if so many fit into one"
    )
    vacuum_hours: PositiveFloat = Field(
        168.0, description="unnamed files younger than a week may be of a batch under way, or of a query"
    )
    log_hours: PositiveFloat = Field(
        2.0, description="commits of the Delta log that stay, for who follows a table; each commit lists them all"
    )
    join_hours: PositiveFloat = Field(
        1.0, description="rows of the ledger that are older are joined, those of an hour up to 64 MB of the log to one"
    )
    keep_days: PositiveFloat | None = Field(
        None, description="records that the master stored earlier are deleted; without it everything stays"
    )
    keep_gb: PositiveFloat | None = Field(
        None, description="of each log, the oldest records beyond so many GB (10^9 bytes) of it are deleted; as above"
    )


NO_KEYS: Final = ("clusters", "shard")
"""The fields of `Config` that are no keys: tables of ``[[logs]]``, and what ``logtwin replicate --shard`` says."""

PARTITION_SLASHES: Final = 3
"""The number of slashes in the id of a topic's partition: kafka/<cluster>/<topic>/<partition>."""


class Config(BaseModel):
    """One job: where its tables are, which logs it replicates, how its Spark session is set up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    warehouse: str = Field("./warehouse", description="folder of the tables: <warehouse>/log, <warehouse>/ledger, …")
    trigger_interval_s: PositiveFloat = Field(
        1.0,
        description="a record waits for its batch no longer; where its producer waits, the next batch begins at once",
    )
    retry_wait_max_s: PositiveFloat = Field(
        30.0, description="a master that went away is asked again after 1, 2, 4 … seconds, at most this"
    )
    spark: dict[str, str] = Field(
        default_factory=dict, description="Spark properties, over those that logtwin sets; spark-submit's win"
    )
    logs: tuple[ReadOptions, ...] = Field(
        (), description="the logs to replicate: one streaming query and one commit for all of them"
    )
    clusters: tuple[SkipValidation[BrokerCluster], ...] = Field(
        (), description="clusters of RocketMQ, of which each broker name is a log; [[logs]] tables with cluster"
    )
    topics: tuple[SkipValidation[Topics], ...] = Field(
        (), description="Kafka's topics to replicate: one streaming query and one commit for all their partitions"
    )
    tables: tuple[TypedTableConfig, ...] = Field((), description="the typed tables to make of their messages")
    shard: SkipValidation[Shard | None] = Field(
        None, description="the share of all this that a job takes (sources/shards.py); by default the whole"
    )
    storage: Storage = Storage()
    jars: JarsConfig = JarsConfig()
    metadata: MetadataConfig = MetadataConfig()
    metrics: MetricsConfig = MetricsConfig()
    catalog: CatalogConfig = CatalogConfig()
    maintain: MaintainConfig = MaintainConfig()
    embedded_master: EmbeddedMasterConfig = EmbeddedMasterConfig()
    workload: WorkloadConfig = WorkloadConfig()

    def only(self, log_id: str | None, where: str) -> Config:
        """A copy with only one log or topic, or with all of them if `log_id` is None.

        A partition's id stands for its topic. A pattern that matches stays, for this name alone. Raises
        ConfigurationError if nothing has that id.
        """
        if log_id is None:
            return self.with_logs(where)
        text = log_id.rpartition("/")[0] if log_id.count("/") == PARTITION_SLASHES else log_id
        try:
            one = LogId.parse(text)
        except ValueError:
            one = LogId("", text)  # matches nothing
        logs, topics = chosen(self.log_entries, one), chosen(self.topics, one)
        if not logs and not topics:
            listed = ", ".join(name for entry in (*self.log_entries, *self.topics) for name in entry.names)
            raise ConfigurationError(
                f"{where}: there is no log {log_id!r}", expected=f"one of {listed or 'none'}", found=log_id
            )
        return self.model_copy(
            update={
                "logs": tuple(options for entry in logs if not entry.is_pattern for options in entry.find().values()),
                "clusters": tuple(entry for entry in logs if entry.is_pattern),
                "topics": topics,
            }
        )

    @property
    def log_entries(self) -> tuple[Discovery[ReadOptions], ...]:
        """Parse the tables ``[[logs]]``: logs by name, and clusters."""
        return (Named({one.log_id: one for one in self.logs}), *self.clusters)

    @property
    def has_patterns(self) -> bool:
        """Whether some of it is found by asking: `pipeline.config.found`."""
        return any(entry.is_pattern for entry in (*self.log_entries, *self.topics))

    @property
    def named_topics(self) -> tuple[ReplicatedTopicOptions, ...]:
        """The topics that it names. What its patterns match is named by `pipeline.config.found`."""
        return tuple(matched(self.topics, ()).values())

    def maintained_with(self, given: Mapping[str, object], where: str) -> Config:
        """A copy with the keys of ``[maintain]`` in `given` that are not None. Raises ConfigurationError."""
        values = self.maintain.model_dump() | {name: value for name, value in given.items() if value is not None}
        return self.model_copy(update={"maintain": parse_options(MaintainConfig, values, where=f"{where} [maintain]")})

    def in_shard(self, text: str | None) -> Config:
        """A copy for a job that takes the share `text`, as ``"2/8"``; None for the whole. Raises ConfigurationError."""
        try:
            return self.model_copy(update={"shard": None if text is None else Shard.parse(text)})
        except ValueError as error:
            raise ConfigurationError("--shard is not usable", expected=error) from error

    def serves(self, what: str) -> bool:
        """Whether a job of this share does what only one job may need to do: what has no log, or is of many."""
        return self.shard is None or self.shard.has(what)

    def with_logs(self, where: str) -> Config:
        """Itself. Raises ConfigurationError if there is nothing to replicate."""
        if not self.logs and not self.clusters and not self.topics:
            raise ConfigurationError(
                f"{where}: there is nothing to replicate",
                expected="at least one [[logs]] or [[topics]] table",
                hint='Add [[logs]] with id = "rocketmq/<broker name>" and master and remoting, or path; or with '
                'cluster and name_server; or [[topics]] with id = "kafka/<cluster>/<topic>" and servers.',
            )
        return self


_SECTIONS: dict[str, type[BaseModel]] = {
    "storage": Storage,
    "jars": JarsConfig,
    "metadata": MetadataConfig,
    "metrics": MetricsConfig,
    "catalog": CatalogConfig,
    "maintain": MaintainConfig,
    "embedded_master": EmbeddedMasterConfig,
    "workload": WorkloadConfig,
}


_KEYS: Final[Mapping[str, Sequence[str]]] = {
    "": ("warehouse", "trigger_interval_s", "retry_wait_max_s"),
    **{name: [key.rstrip("_") for key in model.model_fields] for name, model in _SECTIONS.items()},
}
"""The keys that the environment may set (`pipeline.config.environment`)."""


def load(path: Path | None) -> Config:
    """Read and check a configuration file, or without one the defaults, with the keys of the environment.

    Relative paths in it start at the folder in which logtwin is started. Raises ConfigurationError, which names the
    file or the variable, the key, and what was expected and found.
    """
    if path is None:
        return parse({}, where="no file", environment=os.environ)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the configuration {path}", found=error.strerror, hint="Give its path with --config."
        ) from error
    try:
        given = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError is one, and so is a number of 5,000 digits
        raise ConfigurationError(f"{path} is not TOML", found=str(error)) from error
    return parse(given, where=str(path), environment=os.environ)


def parse(given: Mapping[str, Any], *, where: str, environment: Mapping[str, str] = MappingProxyType({})) -> Config:
    """Make a configuration from parsed TOML, whose keys `environment` overrides; `where` names it in errors.

    Raises ConfigurationError.
    """
    by_variable = taken(environment, _KEYS)
    known = [name for name in Config.model_fields if name not in NO_KEYS]
    for key in given:
        if key not in known:
            raise unknown_key(key, known, where=where)
    values = dict(given)
    tables = _numbered(given.get("logs", []), "logs", where)
    values["logs"] = [_log(table, named) for table, named in tables if "cluster" not in table]
    values["clusters"] = [parsed_cluster(table, where=at) for table, at in tables if "cluster" in table]
    values["topics"] = [
        parsed_topics(table, where=at) for table, at in _numbered(given.get("topics", []), "topics", where)
    ]
    values["tables"] = [
        _parsed(TypedTableConfig, table, at) for table, at in _numbered(given.get("tables", []), "tables", where)
    ]
    for name, model in _SECTIONS.items():
        table, by = _over(_table(given.get(name, {}), name, where), by_variable.get(name, {}), environment)
        if table:
            values[name] = _parsed(model, table, f"{where} [{name}]{by}")
    values["spark"] = {key: _as_property(value) for key, value in _flat(given.get("spark", {}), where)}
    values, by = _over(values, by_variable.get("", {}), environment)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise invalid_value(error, where=f"{where}{by}") from error
    placed(config.warehouse, f"{where}{by}: warehouse")
    _check_ids(config, where)
    check_names(config.tables, where)
    return config


def _over(
    given: Mapping[str, Any], names: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Put the values of the variables `names` over `given`, by their keys; also return what an error says of these."""
    set_there = {key: environment[name] for key, name in names.items()}
    return {**given, **set_there}, f" with {', '.join(names.values())} of the environment" if names else ""


def _log(table: Mapping[str, Any], where: str) -> ReadOptions:
    one = str(table.get("id"))
    if one.startswith("kafka/"):
        raise ConfigurationError(
            f"{where}: a Kafka topic is no single log",
            expected="rocketmq/<broker name> or dister/<group>",
            found=one,
            hint='Make it a [[topics]] table, with id = "kafka/<cluster>/<topic>" and servers.',
        )
    return _parsed(ReadOptions, table, where)


def _parsed(model: type[Model], table: Mapping[str, Any], where: str) -> Model:
    with at(where):  # an error of a secret's place knows of no file
        return parse_options(model, table, where=where)


def _tables(given: object, name: str, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(given, list):
        found = f"one table [{name}]" if isinstance(given, dict) else repr(given)  # a table could hold a secret
        raise ConfigurationError(f"{where}: {name} is not usable", expected=f"tables headed [[{name}]]", found=found)
    return [_table(one, name, where) for one in given]


def _numbered(given: object, name: str, where: str) -> list[tuple[Mapping[str, Any], str]]:
    """Each table, with the words that name it in errors."""
    tables = _tables(given, name, where)
    if len(tables) == 1:
        return [(tables[0], f"{where} [[{name}]]")]
    return [(table, f"{where} [[{name}]] number {number}") for number, table in enumerate(tables, 1)]


def _table(given: object, name: str, where: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where}: {name} is not usable", expected=f"a table [{name}]", found=repr(given))
    return given


def _flat(given: object, where: str, prefix: str = "") -> list[tuple[str, object]]:
    # spark.executor.memory = "1g" reads as nested tables in TOML, "spark.executor.memory" = "1g" as one key.
    found: list[tuple[str, object]] = []
    for key, value in _table(given, "spark", where).items():
        found += _flat(value, where, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return [(key if key.startswith("spark.") or prefix else f"spark.{key}", value) for key, value in found]


def _as_property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_ids(config: Config, where: str) -> None:
    ids = [*(one.id for one in config.logs), *(name for entry in config.topics for name in entry.names)]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{where}: a log is listed twice", expected="each id once", found=", ".join(twice))
