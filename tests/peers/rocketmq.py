"""Real RocketMQ brokers on loopback, for tests."""

from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from sources.access.address import Address
from sources.offsets import LogId
from sources.rocketmq.log import RocketMQLog
from tests.peers.rocketmq_process import RocketMQProcess
from tests.peers.wire import Connection, Refused


class Broker(RocketMQProcess):
    """A real broker: by default a lone master with small files; brokerRole, inSyncReplicas, … in `settings` change it.

    It can be stopped and started again on its store, on the same ports.
    """

    kind = "broker"
    module = "rocketmq-broker"
    main_class = "org.apache.rocketmq.broker.BrokerStartup"

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    @property
    def ha_address(self) -> Address:
        return Address("127.0.0.1", self.ha_port)

    @property
    def options(self) -> dict[str, str]:
        """As in ``[[logs]]``."""
        return {"master": str(self.ha_address), "remoting": str(self.address)}

    def opened(self, **changes: Any) -> RocketMQLog:
        """Its log over HA; `changes` are further fields."""
        ways = {"master": self.ha_address, "remoting": self.address}
        return RocketMQLog(log_id=LogId("rocketmq", "b1"), **{**ways, **changes})

    @property
    def store(self) -> Path:
        return self.home / "store"

    @property
    def commitlog(self) -> Path:
        return self.store / "commitlog"

    def _defaults(self) -> dict[str, str | int]:
        return {
            "brokerClusterName": "c1",
            "brokerName": "b1",
            "brokerId": 0,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",  # 5.x; the HA port, and all of 4.9.x, bind every interface
            "listenPort": self.port,
            "haListenPort": self.ha_port,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.commitlog),
            "mappedFileSizeCommitLog": 1024 * 1024,
            "mappedFileSizeConsumeQueue": 60_000,
            "maxMessageSize": 512 * 1024,
            "maxHashSlotNum": 5_000,
            "maxIndexNum": 20_000,
            "autoCreateTopicEnable": "true",
            "timerWheelEnable": "false",  # 5.x; its file alone is 38 MB
            "transactionMetricFlushInterval": 200,  # 5.x; so long it spins after its start, by default 3 s
            "registerNameServerPeriod": 10_000,
            "diskMaxUsedSpaceRatio": 95,
            "waitTimeMillsInSendQueue": 30_000,  # a busy machine must not turn producers away: code 2, nothing stored
            "osPageCacheBusyTimeOutMills": 30_000,
        }

    def start(self) -> None:
        """As any process, and until it answers. Raises PeerFailed."""
        self._remove_empty_files()
        super().start()
        self._await_runtime_info()

    def log_bytes(self, end: int) -> bytes:
        """Its segment files as they lie on the disk, from the first one's start up to offset `end`."""
        files = sorted(path for path in self.commitlog.iterdir() if path.name.isdigit())
        return b"".join(path.read_bytes() for path in files)[: end - int(files[0].name)]

    def _remove_empty_files(self) -> None:
        """As an operator must: 4.9 does not start over a file that a kill has kept from getting its length.

        Only the files of the log and of what is derived from it, whose names are the offsets at which they begin.
        """
        for path in self.store.rglob("*"):
            if path.name.isdigit() and path.is_file() and path.stat().st_size == 0:
                path.unlink()

    def _await_runtime_info(self) -> None:
        """In the first second after its start a broker answers request 28 with an error: it has no statistics yet."""
        attempt = retry(
            retry=retry_if_exception_type(Refused), stop=stop_after_delay(20), wait=wait_fixed(0.1), reraise=True
        )
        with Connection(self.port) as connection:
            attempt(connection.log_bounds)()
