"""Which code speaks to which kind of master."""

from __future__ import annotations

from sources.errors import ConfigurationError
from sources.master import MasterLog
from sources.options import MasterOptions
from sources.rocketmq.address import Address
from sources.rocketmq.log import RocketMQLog


def open_log(options: MasterOptions) -> MasterLog:
    """The master log that `options` describe. Raises ConfigurationError; connects to nothing."""
    kind = options.log_id.kind
    if kind == "rocketmq":
        return _rocketmq(options)
    raise ConfigurationError(
        f"this version speaks to no master of kind {kind!r}",
        log=options.id,
        expected="rocketmq/<broker name>",
        found=options.id,
    )


def _rocketmq(options: MasterOptions) -> RocketMQLog:
    return RocketMQLog(
        log_id=options.log_id,
        master=Address.parse(options.master) if options.master else None,
        remoting=Address.parse(options.remoting) if options.remoting else None,
        name_servers=tuple(Address.parse(one) for one in (options.name_server or "").split(";") if one.strip()),
        path=options.path,
        split_bytes=options.split_bytes,
        chunk_bytes=options.chunk_bytes,
        parallel_reads=options.parallel_reads,
        past_damage=options.on_loss == "record",
        connect_timeout_ms=options.connect_timeout_ms,
        connect_attempts=options.connect_attempts,
        silence_timeout_ms=options.silence_timeout_ms,
        max_frame_bytes=options.max_frame_bytes,
        max_record_bytes=options.max_record_bytes,
    )
