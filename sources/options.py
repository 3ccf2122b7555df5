"""How to reach and read a master: options of the data source, and keys of a ``[[logs]]`` table.

Both have the same names: an option is spelled Spark's way (``maxBytesPerTrigger``, in any case) or TOML's
(``max_bytes_per_trigger``), a key only TOML's. An unknown name is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from sources.access.address import Address
from sources.access.security import Secret, place_of
from sources.bounds import EARLIEST, StartingOffset
from sources.errors import ConfigurationError
from sources.loss import OnLoss
from sources.offsets import LOG_ID_FORM, LogId

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KIB = 1024
MIB = 1024 * KIB

CheckAndFix = Literal["safe", "faithful", "off"]
Model = TypeVar("Model", bound=BaseModel)


class SecurityOptions(BaseModel):
    """Our identity at a broker and the protection of its connections, for a log or a producer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    access_key: Secret | None = Field(
        None,
        description="RocketMQ with ACL, or 5.x with authentication: our access key; env:NAME or file:PATH, read where "
        "the tasks run; by default requests are not signed",
    )
    secret_key: Secret | None = Field(
        None, description="env:NAME or file:PATH: the key that signs our requests; 5.x calls it the password"
    )
    security_token: Secret | None = Field(
        None, description="env:NAME or file:PATH: of temporary keys; by default none is sent"
    )
    tls: bool = Field(False, description="RocketMQ's remoting by TLS, broker and name server; HA has none")
    tls_ca_file: str | None = Field(
        None, description="PEM: CA certificates that verify the servers; by default those of the system"
    )
    tls_certificate_file: str | None = Field(
        None, description="PEM: our own certificate; by default none, as brokers ask for none"
    )
    tls_key_file: str | None = Field(None, description="PEM: the certificate's key; by default it is in the same file")
    tls_key_password: Secret | None = Field(
        None, description="env:NAME or file:PATH: what the key is encrypted with; by default it is not"
    )
    tls_check_hostname: bool = Field(
        True, description="false trusts any broker that holds a certificate of the same authority"
    )

    @field_validator("access_key", "secret_key", "security_token", "tls_key_password", mode="before")
    @classmethod
    def _place(cls, given: object, info: ValidationInfo) -> Secret | None:
        return None if given is None else place_of(given, str(info.field_name))


SECURITY: Final = tuple(SecurityOptions.model_fields)


class MasterOptions(SecurityOptions):
    """One master log: which it is, where it is, and its limits. Every field has a sensible default, or none at all."""

    id: str = Field(
        description="log id: rocketmq/<broker name> or dister/<group>; names the log in tables, errors and transactions"
    )
    master: str | None = Field(None, description="HA address host:port (haListenPort, by default listenPort + 1)")
    remoting: str | None = Field(None, description="remoting address host:port (listenPort), asked for the log's range")
    name_server: str | None = Field(
        None,
        description="instead of master and remoting: host:port, several joined by ;, asked at each connection for the "
        "master of the broker that the id names",
    )
    controllers: str | None = Field(
        None,
        description="instead of name_server, of a group that elects its master: host:port of all controllers, joined "
        "by ;, asked at each connection for the master of the broker that the id names",
    )
    path: str | None = Field(
        None,
        description="a directory of segment files, instead of master and remoting; of dister the folder that holds "
        "dister.entry.log",
    )
    peers: str | None = Field(
        None,
        description="dister: its nodes as /node lists them, a file or an http URL; says of which group and version "
        "the leader is",
    )
    max_entries_per_trigger: PositiveInt = Field(
        10_000, description="dister: bounds a batch beside max_bytes_per_trigger; what its leader sends at once"
    )
    check_and_fix: CheckAndFix = Field(
        "safe",
        description="dister: a leader with another past overrules the replica. safe goes back to the last position "
        "where both agree, faithful to the one that dister's own rule finds, off stops",
    )
    split_bytes: PositiveInt = Field(
        256 * MIB,
        description="what one task reads, and one file takes, at most; large enough to be worth the start of both. A "
        "batch is cut so that every core gets one; what one connection has to read goes into files of half of it",
    )
    chunk_bytes: PositiveInt = Field(
        16 * MIB, description="what is decoded at once; a task holds a few times this in memory"
    )
    parallel_reads: bool = Field(
        False,
        description="say true only when no producer waits for this replica: ranges are then read by several "
        "connections, which the master counts as acknowledgements, and may start anywhere",
    )
    beyond_confirm: bool = Field(
        False,
        description="RocketMQ in controller mode: take also what the replicas in sync have not confirmed. A fail-over "
        "may take that back; then the log goes back by itself, and what goes is kept in the table removed",
    )
    on_loss: OnLoss = Field(
        "fail",
        description="what is lost or damaged stops the log; with record it becomes an incident, its bytes go to "
        "quarantine, and the log goes on behind it",
    )
    connect_timeout_ms: PositiveInt = Field(5000, description="how long to wait for a connection")
    connect_attempts: PositiveInt = Field(3, description="a broker that restarts is back within a few tries")
    silence_timeout_ms: PositiveInt = Field(
        20000, description="RocketMQ's haHousekeepingInterval: a master that says nothing for longer is gone"
    )
    max_frame_bytes: PositiveInt = Field(
        4 * MIB, description="an HA frame that claims more is garbage; brokers send haTransferBatchSize, 32 KiB"
    )
    max_record_bytes: PositiveInt = Field(
        16 * MIB, description="a record that claims more is garbage; brokers accept maxMessageSize, 4 MiB"
    )

    @field_validator("id")
    @classmethod
    def _is_log_id(cls, text: str) -> str:
        try:
            return str(LogId.parse(text))
        except ValueError as error:
            raise ValueError(LOG_ID_FORM) from error

    @field_validator("master", "remoting")
    @classmethod
    def _is_address(cls, text: str | None) -> str | None:
        if text is not None:
            _checked(text)
        return text

    @field_validator("name_server", "controllers")
    @classmethod
    def _are_addresses(cls, text: str | None) -> str | None:
        for one in (text or "").split(";"):
            if one.strip():
                _checked(one)
        return text

    @property
    def log_id(self) -> LogId:
        return LogId.parse(self.id)

    def by_path(self, path: str) -> Self:
        """Return the same log, read from the segment files in the directory `path` instead of its master."""
        master = ("master", "remoting", "name_server", "controllers", "peers", *SECURITY)
        return self.model_copy(update={name: type(self).model_fields[name].default for name in master} | {"path": path})


class ReadOptions(MasterOptions):
    """Where a stream starts, and the largest batch it makes."""

    starting_offset: StartingOffset = Field(
        EARLIEST, description="where a replica without a position starts: earliest, latest or an offset"
    )
    max_bytes_per_trigger: PositiveInt = Field(
        1024 * MIB,
        description="bounds a batch, and with it the work that a crash repeats; of logs that share one the largest",
    )

    @field_validator("starting_offset", mode="before")
    @classmethod
    def _offset_or_name(cls, given: object) -> object:
        return offset_or_name(given)


def addresses(text: str | None) -> tuple[Address, ...]:
    """Return the addresses in an option, joined by ``;``. Raises ConfigurationError."""
    return tuple(Address.parse(one) for one in (text or "").split(";") if one.strip())


def offset_or_name(given: object) -> object:
    """Return ``"123"`` as 123; names and numbers stay as they are. Raises ValueError below 0."""
    if isinstance(given, str) and given.strip().lstrip("-").isdigit():
        given = int(given)
    if isinstance(given, int) and given < 0:
        raise ValueError(f"an offset is 0 or more, not {given}")
    return given


def parse_options(model: type[Model], given: Mapping[str, Any], *, where: str, camel: bool = False) -> Model:
    """Return `given` as a `model`; with `camel`, keys may be spelled Spark's way, too, as errors do.

    Raises ConfigurationError naming `where`, the key, what was expected and found, and the nearest key that exists.
    """
    named = known_keys(given, model.model_fields, where=where, camel=camel)
    try:
        return model.model_validate(named)
    except ValidationError as error:
        raise invalid_value(error, where=where) from error


def known_keys(given: Mapping[str, Any], known: Iterable[str], *, where: str, camel: bool = False) -> dict[str, Any]:
    """Return `given` with its keys as they are in `known`. Raises as `parse_options`."""
    read = _plain if camel else str
    spelled = {read(_said(name)): name for name in known}
    for key in given:
        if read(key) not in spelled:
            said = map(_said, spelled.values())
            raise unknown_key(key, [to_camel(name) if camel else name for name in said], where=where)
    return {spelled[read(key)]: value for key, value in given.items()}


def unknown_key(key: str, known: list[str], *, where: str) -> ConfigurationError:
    """Return the error for a key that does not exist; it names the one that is meant, or all if none is near."""
    nearest = difflib.get_close_matches(_plain(key), [_plain(name) for name in known], n=1)
    meant = next((name for name in known if nearest and _plain(name) == nearest[0]), None)
    return ConfigurationError(
        f"{where}: there is no key {key!r}",
        expected=None if meant else f"one of {', '.join(known)}",
        hint=f"Did you mean {meant!r}?" if meant else None,
    )


def invalid_value(error: ValidationError, *, where: str) -> ConfigurationError:
    """Return an error in the operator's words for the first wrong value; its hint lists all others."""
    first, *others = error.errors(include_url=False)
    also = "; ".join(map(_mistake, others))
    if first["type"] == "missing":
        key = _key(first)
        return ConfigurationError(
            f"{where}: the key {key!r} is missing", hint=f"Add {key} = …{f', and mend: {also}.' if also else ''}"
        )
    return ConfigurationError(
        f"{where}: {_key(first) or 'the table'} is not usable",
        expected=_expected(first),
        found=repr(first["input"]) if _key(first) else _given(first["input"]),
        hint=f"Also fix: {also}." if also else None,
    )


def _given(together: object) -> str:
    """The keys of a table that do not go together, as the file has them."""
    if not isinstance(together, Mapping):
        return repr(together)
    return ", ".join(f"{_said(str(key))} = {value!r}" for key, value in together.items())


def _mistake(one: ErrorDetails) -> str:
    if one["type"] == "missing":
        return f"{_key(one)} is missing"
    return f"{_key(one)}, expected {_expected(one)}, found {one['input']!r}"


def _key(one: ErrorDetails) -> str:
    """Return the key in the file. pydantic adds which of several types it has tried, in brackets or as a name."""
    parts = [_said(str(part)) for part in one["loc"]]
    return ".".join(parts[:1] + [part for part in parts[1:] if part not in _TYPES and "[" not in part])


_TYPES: Final = frozenset({"int", "str", "float", "bool", "constrained-str", "constrained-int"})


_EXPECTED: Final = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": 'text in quotes: "…"',
    "string_too_short": "text that is not empty",
    "tuple_type": "a list: […]",
    "list_type": "a list: […]",
    "set_type": "a list: […]",
    "dict_type": "a table of keys and values",
    "mapping_type": "a table of keys and values",
    "model_type": "a table of keys and values",
    "model_attributes_type": "a table of keys and values",
    "extra_forbidden": "no such key",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "less than {lt:g}",
    "less_than_equal": "{le:g} or less",
    "literal_error": "{expected}",
    "too_short": "{min_length} or more of them",
}
"""pydantic's kinds of mistakes in the operator's words."""


def _expected(one: ErrorDetails) -> str:
    """Return what was expected; our own validators say it in their message."""
    if one["type"] == "value_error":
        return one["msg"].removeprefix("Value error, ")
    known = _EXPECTED.get(one["type"])
    return "another value" if known is None else known.format_map(one.get("ctx", {}))


def _checked(address: str) -> None:
    """Raise ValueError, as a validator has to, if `address` is not an address."""
    try:
        Address.parse(address)
    except ConfigurationError as error:
        raise ValueError(error.expected) from error


def _said(name: str) -> str:
    """A field's name as a key: a word of Python's own ends with an underscore there."""
    return name.rstrip("_")


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
