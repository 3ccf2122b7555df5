"""Real RocketMQ name servers on loopback, for tests: where 5.x slaves learn their master's address."""

from __future__ import annotations

from tests.peers.rocketmq_process import RocketMQProcess


class NameServer(RocketMQProcess):
    """A real name server; enableControllerInNamesrv, … in `settings`."""

    kind = "namesrv"
    module = "rocketmq-namesrv"
    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"

    def _defaults(self) -> dict[str, str | int]:
        return {
            "listenPort": self.port,
            "bindAddress": "127.0.0.1",  # 5.x; 4.9.x binds every interface
            "kvConfigPath": str(self.home / "kvConfig.json"),
            "configStorePath": str(self.home / "namesrv.properties"),
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"
