"""How to reach and read a Kafka topic: options of ``format("logtwin")``, and of a replica.

What must hold: no error repeats a value that was given as a secret, because it may be one. So only the place of a
secret is accepted, and pydantic's errors, which would quote everything given, do not show their input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, SkipValidation, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from sources.access.security import Secret, Tls, place_of
from sources.bounds import EARLIEST, LATEST
from sources.errors import ConfigurationError
from sources.kafka.cluster.settings import Isolation, KafkaSettings, Mechanism, Protocol, Security
from sources.kafka.topic_offsets import TopicOffsets
from sources.loss import OnLoss
from sources.offsets import LOG_ID_FORM, LogId
from sources.options import MIB, parse_options
from sources.shards import Shard

RECORD_BYTES: Final = 1024
"""The assumed length of a record when bytes are shared; nobody knows it before the record has come."""


class TopicOptions(BaseModel):
    """One topic: which, where, who asks, and its limits. Every field has a sensible default, or none at all."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: str = Field(
        description="kafka/<cluster>/<topic>; the cluster by a name of your own, which rows and errors repeat"
    )
    servers: str = Field(
        description="host:port of a broker, several joined by a comma; one that answers names all the others"
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        "read_committed",
        description="nothing of transactions that are open or aborted, as who sent them meant it; read_uncommitted "
        "reads all, and does not wait for who left a transaction open",
    )
    starting_offset: str = Field(
        EARLIEST,
        description="where a stream without a checkpoint starts; latest leaves out what is there already; "
        '{"topic": <id>, "next": {<partition>: <offset>, …}} goes on from there, in other partitions from 0',
    )
    ending_offset: Literal["latest"] = Field(
        LATEST, description="batch reads: where to end; each partition's end is asked for once, when they are planned"
    )
    max_offsets_per_trigger: PositiveInt = Field(
        1_000_000,
        description="bounds a batch, and with it the work that a crash repeats; of all partitions together, by how far "
        "each is behind, and at least one of each that is",
    )
    split_offsets: PositiveInt = Field(
        100_000,
        description="what one task reads at most; large enough that it is worth a connection, small enough that every "
        "core gets one",
    )
    chunk_bytes: PositiveInt = Field(
        8 * MIB,
        description="what is asked for at once, as it lies in the log; a task holds a few times this in memory, and "
        "what it unpacks to",
    )
    connect_timeout_ms: PositiveInt = Field(5000, description="how long to wait for a connection")
    request_timeout_ms: PositiveInt = Field(
        20000, description="a broker that says nothing for longer is gone; the longest that is asked for takes 10 s"
    )
    security_protocol: Protocol = Field("PLAINTEXT", description="as Kafka's clients have it; brokers', too")
    sasl_mechanism: Mechanism | None = Field(None, description="how the user is proven; without SASL there is none")
    sasl_username: Secret | None = Field(
        None, description="env:NAME or file:PATH, read where the tasks run; without SASL there is none"
    )
    sasl_password: Secret | None = Field(
        None, description="env:NAME or file:PATH, read where the tasks run; without SASL there is none"
    )
    ssl_ca_file: str | None = Field(
        None, description="PEM: who has signed the brokers' certificates; by default those whom the system trusts"
    )
    ssl_certificate_file: str | None = Field(
        None, description="PEM: our own certificate; by default none, most brokers ask for none"
    )
    ssl_key_file: str | None = Field(None, description="PEM: the certificate's key; by default it is in the same file")
    ssl_key_password: Secret | None = Field(
        None, description="env:NAME or file:PATH: what the key is encrypted with; by default it is not"
    )
    ssl_check_hostname: bool = Field(
        True, description="false trusts any broker that holds a certificate of the same authority"
    )

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Parse the options. Raises ConfigurationError naming the key."""
        return parse_options(cls, given, where='format("logtwin") of kafka/…', camel=True)

    @field_validator("id")
    @classmethod
    def _names_a_topic(cls, text: str) -> str:
        kind, _, name = text.partition("/")
        if kind != "kafka" or name.count("/") != 1:
            raise ValueError("kafka/<cluster>/<topic>, which is read with all its partitions")
        try:
            return str(LogId.parse(text))
        except ValueError as error:
            raise ValueError(LOG_ID_FORM) from error

    @field_validator("starting_offset")
    @classmethod
    def _names_or_is_a_start(cls, text: str) -> str:
        if text not in (EARLIEST, LATEST):
            _positions(text)
        return text

    @field_validator("sasl_username", "sasl_password", "ssl_key_password", mode="before")
    @classmethod
    def _place(cls, given: object, info: ValidationInfo) -> Secret:
        return place_of(given, to_camel(str(info.field_name)))

    @property
    def log_id(self) -> LogId:
        return LogId.parse(self.id)

    @property
    def cluster(self) -> str:
        return self.log_id.name.split("/")[0]

    @property
    def topic(self) -> str:
        return self.log_id.name.split("/")[1]

    @property
    def max_bytes_per_trigger(self) -> int:
        """The most bytes that a batch takes, of records of the assumed length."""
        return self.max_offsets_per_trigger * RECORD_BYTES

    @property
    def isolation_level(self) -> Isolation:
        return Isolation[self.isolation.upper()]

    @property
    def starting_positions(self) -> TopicOffsets | None:
        """The positions in `starting_offset`; None if it is a name."""
        return None if self.starting_offset in (EARLIEST, LATEST) else _positions(self.starting_offset)

    def settings(self) -> KafkaSettings:
        """Return the cluster's settings. Raises ConfigurationError for invalid servers and contradicting options."""
        return KafkaSettings(
            servers=tuple(one.strip() for one in self.servers.split(",") if one.strip()),
            security=self._security(),
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )

    def _security(self) -> Security:
        return Security(
            protocol=self.security_protocol,
            mechanism=self.sasl_mechanism,
            username=self.sasl_username,
            password=self.sasl_password,
            tls=Tls(
                ca_file=self.ssl_ca_file,
                certificate_file=self.ssl_certificate_file,
                key_file=self.ssl_key_file,
                key_password=self.ssl_key_password,
                check_hostname=self.ssl_check_hostname,
            ),
        )


class ReplicatedTopicOptions(TopicOptions):
    """The options of a replicated topic: also what the master is told about it, and how to handle a loss."""

    group: str = Field(
        "logtwin",
        description="the consumer group whose committed offsets say how far the replica is, for every tool that shows "
        "lag; nobody may consume with it; empty: nothing is acknowledged",
    )
    starting_offset: Literal["earliest", "latest"] = Field(
        EARLIEST, description="where a replica without a position starts"
    )
    on_loss: OnLoss = Field(
        "fail",
        description="what retention took, and a damaged batch, stop the topic; with record they become incidents, the "
        "batch goes to quarantine, and the topic goes on behind it; any other loss stops it",
    )
    shard: SkipValidation[Shard | None] = Field(
        None, description="of which share the partitions are; by default all of the topic's"
    )

    @field_validator("shard", mode="before")
    @classmethod
    def _share(cls, given: object) -> Shard | None:
        return given if given is None or isinstance(given, Shard) else Shard.parse(str(given))


def _positions(text: str) -> TopicOffsets:
    """Parse positions. Raises ValueError for anything else."""
    try:
        return TopicOffsets.from_json(json.loads(text))
    except (ValueError, ConfigurationError):
        expected = '{"topic": <id>, "next": {<partition>: <offset>, …}}'
        raise ValueError(f"earliest, latest, or {expected}") from None
