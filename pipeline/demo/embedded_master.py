"""``logtwin master`` and ``logtwin send``: the embedded master and its producer, as processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pipeline.config.configuration import EmbeddedMasterConfig, WorkloadConfig
from sources.access.address import Address
from sources.registry import remoting_security
from sources.rocketmq.embedded.double_write import DoubleWriteSettings
from sources.rocketmq.embedded.ha_service import HASettings
from sources.rocketmq.embedded.master import EmbeddedMaster, MasterSettings
from sources.rocketmq.producer.workload import WorkloadSummary, send_workload, workload
from sources.rocketmq.wire.remoting import ResponseCode

READY = r"remoting (?P<remoting>\S+), HA (?P<ha>\S+),"
"""Matches the line that the master prints once it takes requests, with the ports that it chose."""


def serve(settings: EmbeddedMasterConfig, *, on_ready: Callable[[str], None]) -> None:
    """Run the master until SIGTERM or SIGINT. Raises ConfigurationError (ports, store in use), LogError."""
    master = EmbeddedMaster(
        MasterSettings(
            store=Path(settings.store),
            host=settings.host,
            port=settings.port,
            ha_port=settings.ha_port,
            file_size_bytes=settings.file_size_bytes,
            sync_flush=settings.sync_flush,
            ha=HASettings(transfer_batch_bytes=settings.transfer_batch_bytes),
            double_write=DoubleWriteSettings(
                role=settings.role,
                in_sync_replicas=settings.in_sync_replicas,
                slave_timeout_s=settings.slave_timeout_s,
                fall_behind_max_bytes=settings.fall_behind_max_bytes,
            ),
            name_server=None if settings.name_server is None else Address.parse(settings.name_server),
        )
    )
    asyncio.run(
        master.run_until_signal(
            lambda: on_ready(
                f"master embedded: remoting {master.address}, HA {master.ha_address}, store {settings.store}"
            )
        )
    )


def send_to(settings: WorkloadConfig) -> WorkloadSummary:
    """Send the workload to a broker, embedded or real. Raises MasterError, ConfigurationError."""
    return send_workload(
        Address.parse(settings.to),
        workload(settings.seed),
        count=settings.count,
        duration_s=settings.duration_s,
        rate_per_s=settings.rate_per_s or None,
        window=settings.window,
        security=remoting_security(settings),
    )


def answers(sent: WorkloadSummary) -> str:
    """The broker's answers in words, such as ``1,990 SEND_OK, 10 FLUSH_SLAVE_TIMEOUT``."""
    without = sent.messages - sum(sent.warned.values())
    told = [f"{without:,} SEND_OK"] + [
        f"{count:,} {ResponseCode(code).name}" for code, count in sorted(sent.warned.items())
    ]
    return ", ".join(told)
