"""The embedded master: store, HA service and remoting service in one event loop.

A small but real RocketMQ broker: real slaves replicate from it, and real clients send to it. The demonstration and the
tests use it as their master. Producers may wait for its slaves; it has no consumers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sources.access.address import Address
from sources.rocketmq.embedded.connections import address_of, bound, bound_with_vip
from sources.rocketmq.embedded.double_write import DoubleWrite, DoubleWriteSettings
from sources.rocketmq.embedded.ha_service import HAService, HASettings
from sources.rocketmq.embedded.queries import Queries
from sources.rocketmq.embedded.registration import Registration
from sources.rocketmq.embedded.remoting_service import Handler, RemotingService
from sources.rocketmq.embedded.sending import Sending
from sources.rocketmq.embedded.store import DEFAULT_FILE_SIZE_BYTES, CommitLogStore
from sources.rocketmq.embedded.topics import TopicTable
from sources.rocketmq.format.layout import Host
from sources.rocketmq.wire.remoting import MASTER_ID, RequestCode

log = logging.getLogger(__name__)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SEND_CODES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """How to run an embedded master. Port 0 takes a free one."""

    store: Path
    ha_port: int = 10912
    port: int = 10911
    host: str = "127.0.0.1"  # what to listen on, and the store host of every record
    broker_name: str = "embedded"
    cluster_name: str = "DefaultCluster"
    file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES  # of a new store; an existing one keeps its own
    max_message_bytes: int | None = None  # None: 4 MiB, or less if a file cannot hold that
    sync_flush: bool = False  # answer only when the message is on disk
    flush_interval_ms: int = 500  # else: how long a message may be in memory only
    ha: HASettings = field(default_factory=HASettings)
    double_write: DoubleWriteSettings = field(default_factory=DoubleWriteSettings)
    name_server: Address | None = None  # where to register
    register_every_s: float = 30.0  # registerNameServerPeriod


class EmbeddedMaster:
    """One master: `start` and `stop` it, or `run_until_signal` in a process of its own."""

    address: Address  # for requests, from the start on
    ha_address: Address  # for slaves, from the start on
    _failed: asyncio.Future[None]  # done when the disk fails: then nothing can be promised

    def __init__(self, settings: MasterSettings) -> None:
        self.settings = settings
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Open the store and serve. Raises ConfigurationError (a port or the store is in use), LogError."""
        async with AsyncExitStack() as opened:
            await self._start(opened)
            self._running = opened.pop_all()
        log.info("master %s: clients at %s, slaves at %s", self.settings.broker_name, self.address, self.ha_address)

    async def stop(self) -> None:
        """Stop serving, flush, close. Idempotent. Raises OSError if the log could not be flushed."""
        await self._running.aclose()

    async def run_until_signal(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Run in the main thread until one of STOP_SIGNALS, then stop cleanly; call `on_ready` once it serves.

        Raises what `start` raises, and OSError if the disk fails.
        """
        loop, asked_to_stop = asyncio.get_running_loop(), asyncio.Event()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, asked_to_stop.set)
        await self.start()
        on_ready()
        stop = asyncio.ensure_future(asked_to_stop.wait())
        either: list[asyncio.Future[Any]] = [stop, self._failed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            await self.stop()
        if self._failed.done():
            self._failed.result()
        log.info("master %s has stopped", self.settings.broker_name)

    async def _start(self, opened: AsyncExitStack) -> None:
        """Start everything; `opened` closes it in reverse order.

        Waiting producers are answered, the name server is told, then clients go before slaves, and slaves before the
        store.
        """
        settings = self.settings
        listeners = [opened.enter_context(listener) for listener in self._client_listeners()]
        ha_listener = opened.enter_context(bound(settings.host, settings.ha_port, "ha_port"))
        self.address, self.ha_address = address_of(listeners[0]), address_of(ha_listener)
        self._failed = asyncio.get_running_loop().create_future()
        store_host = Host(ipaddress.ip_address(self.address.host).packed, self.address.port)
        store = CommitLogStore(
            settings.store,
            store_host,
            file_size_bytes=settings.file_size_bytes,
            max_message_bytes=settings.max_message_bytes,
        )
        opened.callback(store.close)
        opened.push_async_callback(self._start_flushing(store))
        topics = TopicTable(settings.store / "config" / "topics.json")
        topics.add_missing(store.queues)
        ha = HAService(store, settings.ha)
        double_write = DoubleWrite(ha, settings.double_write)
        sending = Sending(store, topics, double_write, store_host, settings.cluster_name)
        handlers: dict[int, Handler] = self._queries(store, ha, topics).table() | dict.fromkeys(
            SEND_CODES, sending.answer
        )
        remoting = RemotingService(handlers, lambda: self._settle(store, ha))
        opened.push_async_callback(ha.stop)
        await ha.start(ha_listener)
        opened.push_async_callback(remoting.stop)
        await remoting.start(*listeners)
        if registration := self._registration(topics):
            opened.push_async_callback(registration.stop)
            registration.start()
        opened.callback(double_write.stop)

    def _client_listeners(self) -> tuple[socket.socket, ...]:
        """Bind the sockets for clients. Slaves that find it through a name server fetch topics two ports below."""
        settings = self.settings
        if settings.name_server is None:
            return (bound(settings.host, settings.port, "port"),)
        return bound_with_vip(settings.host, settings.port)

    def _registration(self, topics: TopicTable) -> Registration | None:
        settings = self.settings
        if settings.name_server is None:
            return None
        return Registration(
            settings.name_server,
            topics.for_name_server,
            broker_name=settings.broker_name,
            cluster_name=settings.cluster_name,
            address=self.address,
            ha_address=self.ha_address,
            every_s=settings.register_every_s,
        )

    def _queries(self, store: CommitLogStore, ha: HAService, topics: TopicTable) -> Queries:
        return Queries(
            store=store,
            ha=ha,
            topics=topics,
            config_directory=self.settings.store / "config",
            config=self._config(store),
            in_sync_gap_bytes=self.settings.double_write.fall_behind_max_bytes,
            address=self.address,
            ha_address=self.ha_address,
            started_ms=time.time_ns() // 1_000_000,
        )

    def _config(self, store: CommitLogStore) -> dict[str, str]:
        """Return what request 26 tells, in a broker's own words."""
        settings, double_write = self.settings, self.settings.double_write
        replicas = double_write.in_sync_replicas
        return {
            "autoCreateTopicEnable": "true",
            "brokerClusterName": settings.cluster_name,
            "brokerIP1": self.address.host,
            "brokerIP2": self.ha_address.host,
            "brokerId": MASTER_ID,
            "brokerName": settings.broker_name,
            "brokerRole": double_write.role,
            "flushDiskType": "SYNC_FLUSH" if settings.sync_flush else "ASYNC_FLUSH",
            "flushIntervalCommitLog": str(settings.flush_interval_ms),
            "haHousekeepingInterval": str(round(settings.ha.housekeeping_s * 1000)),
            "haListenPort": str(self.ha_address.port),
            "haMaxGapNotInSync": str(double_write.fall_behind_max_bytes),  # as 5.x calls it
            "haSendHeartbeatInterval": str(round(settings.ha.heartbeat_s * 1000)),
            "haSlaveFallbehindMax": str(double_write.fall_behind_max_bytes),  # as 4.x does
            "haTransferBatchSize": str(settings.ha.transfer_batch_bytes),
            "listenPort": str(self.address.port),
            "mappedFileSizeCommitLog": str(store.file_size_bytes),
            "maxMessageSize": str(store.max_message_bytes),
            "slaveTimeout": str(round(double_write.slave_timeout_s * 1000)),
            "storePathCommitLog": str(settings.store / "commitlog"),
            "storePathRootDir": str(settings.store),
        } | ({} if replicas is None else {"inSyncReplicas": str(replicas)})

    def _settle(self, store: CommitLogStore, ha: HAService) -> None:
        """Settle a lot of requests before their answers leave."""
        if self.settings.sync_flush:
            self._flush(store)
        ha.wake()

    def _flush(self, store: CommitLogStore) -> None:
        try:
            store.flush()
        except OSError as error:
            log.critical("the commit log cannot be flushed: %s", error)
            self._failed.get_loop().call_soon_threadsafe(_fail, self._failed, error)
            raise

    def _start_flushing(self, store: CommitLogStore) -> Callable[[], Awaitable[None]]:
        """Flush in the background; return a function that ends it."""
        stopping = asyncio.Event()
        flushing = asyncio.create_task(self._flush_until(stopping, store))

        async def stop() -> None:
            stopping.set()
            await flushing

        return stop

    async def _flush_until(self, stopping: asyncio.Event, store: CommitLogStore) -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.flush_interval_ms / 1000):
                    await stopping.wait()
            await asyncio.to_thread(self._flush, store)


def _fail(failed: asyncio.Future[None], error: OSError) -> None:
    if not failed.done():
        failed.set_exception(error)
        failed.exception()  # marks it as retrieved: it was logged, and perhaps nobody awaits the master
