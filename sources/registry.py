"""The choice of the code that speaks to each kind of master."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sources.access.address import Address
from sources.access.security import Tls
from sources.errors import ConfigurationError
from sources.master import Master, SoleMaster
from sources.offsets import LogId
from sources.options import SECURITY, MasterOptions, ReadOptions, SecurityOptions, addresses
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.security import RemotingSecurity

if TYPE_CHECKING:
    from sources.dister.log import DisterLog
    from sources.kafka.options import ReplicatedTopicOptions


FollowedOptions: TypeAlias = "ReadOptions | ReplicatedTopicOptions"
"""The options of what a job can follow."""


def open_master(options: FollowedOptions) -> Master:
    """Return the master that `options` describe. Raises ConfigurationError; connects to nothing."""
    if isinstance(options, MasterOptions):
        return open_log(options)
    # Imported here, so that readers of other logs need not: it takes 0.2 s in each of Spark's processes.
    from sources.kafka.topic import open_topic

    return open_topic(options)


def open_log(options: MasterOptions) -> SoleMaster:
    """Return the master with one log that `options` describe, which is that log. Raises ConfigurationError; connects to
    nothing.
    """
    kind = options.log_id.kind
    if kind == "rocketmq":
        return _rocketmq(options)
    if kind == "dister":
        return _dister(options)
    raise ConfigurationError(
        "a Kafka topic is no single log",
        log=options.id,
        expected="rocketmq/<broker name> or dister/<group>",
        found=options.id,
        hint="Topics stand in [[topics]] of the configuration, which logtwin replicate takes with all partitions.",
    )


def _rocketmq(options: MasterOptions) -> RocketMQLog:
    return RocketMQLog(
        log_id=options.log_id,
        master=Address.parse(options.master) if options.master else None,
        remoting=Address.parse(options.remoting) if options.remoting else None,
        name_servers=addresses(options.name_server),
        controllers=addresses(options.controllers),
        path=options.path,
        split_bytes=options.split_bytes,
        chunk_bytes=options.chunk_bytes,
        parallel_reads=options.parallel_reads,
        beyond_confirm=options.beyond_confirm,
        past_damage=options.on_loss == "record",
        connect_timeout_ms=options.connect_timeout_ms,
        connect_attempts=options.connect_attempts,
        silence_timeout_ms=options.silence_timeout_ms,
        max_frame_bytes=options.max_frame_bytes,
        max_record_bytes=options.max_record_bytes,
        security=remoting_security(options, options.log_id),
    )


def remoting_security(options: SecurityOptions, log: LogId | None = None) -> RemotingSecurity:
    """Return the security of `log` or of a producer.

    Raises ConfigurationError if an option has no effect, or half of a pair is missing.
    """
    return RemotingSecurity(
        access_key=options.access_key,
        secret_key=options.secret_key,
        security_token=options.security_token,
        tls=_tls(options, log),
    )


def _tls(options: SecurityOptions, log: LogId | None) -> Tls | None:
    if options.tls:
        return Tls(
            ca_file=options.tls_ca_file,
            certificate_file=options.tls_certificate_file,
            key_file=options.tls_key_file,
            key_password=options.tls_key_password,
            check_hostname=options.tls_check_hostname,
        )
    for name in _given(options, *(one for one in SECURITY if one.startswith("tls_"))):
        raise ConfigurationError(f"{name} has no effect without tls", log=log, hint="Remove it, or set tls.")
    return None


def _given(options: SecurityOptions, *names: str) -> list[str]:
    """Return the names of the options that differ from their defaults."""
    return [name for name in names if getattr(options, name) != type(options).model_fields[name].default]


def _dister(options: MasterOptions) -> DisterLog:
    for name in _given(options, *SECURITY):
        raise ConfigurationError(f"{name} has no effect on a dister log, which is read from files", log=options.id)
    if options.path is None or options.master or options.remoting or options.name_server or options.controllers:
        raise ConfigurationError(
            "a dister log is read from its leader's folder, and nowhere else",
            log=options.id,
            expected="path, without master, remoting, name_server and controllers",
            found=f"path {options.path}, master {options.master}, remoting {options.remoting}, name_server "
            f"{options.name_server}, controllers {options.controllers}",
            hint="Give path, the folder that holds dister.entry.log.",
        )
    # Imported here, because each log of a job has a process that imports this file, and few are dister's.
    from sources.dister.log import DisterLog

    return DisterLog(
        log_id=options.log_id,
        path=options.path,
        peers=options.peers,
        split_bytes=options.split_bytes,
        chunk_bytes=options.chunk_bytes,
        max_entries_per_trigger=options.max_entries_per_trigger,
        check_and_fix=options.check_and_fix,
        past_damage=options.on_loss == "record",
    )
