"""Real RocketMQ name servers on loopback, for tests: where 5.x slaves learn their master's address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.peers.rocketmq import free_ports
from tests.peers.rocketmq_process import RocketMQProcess


class NameServer(RocketMQProcess):
    """A real name server as a context manager; everything it writes is below `home`.

    `settings` are lines over those of a lone one (enableControllerInNamesrv, …).
    """

    kind = "namesrv"
    module = "rocketmq-namesrv"
    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"

    def __init__(
        self,
        version: str,
        home: Path,
        settings: Mapping[str, str | int] | None = None,
        java_properties: Mapping[str, str] | None = None,
    ) -> None:
        self.port, _ = free_ports()
        super().__init__(version, home, self._defaults(home) | dict(settings or {}), java_properties)

    def _defaults(self, home: Path) -> dict[str, str | int]:
        return {
            "listenPort": self.port,
            "bindAddress": "127.0.0.1",  # 5.x; 4.9.x binds every interface
            "kvConfigPath": str(home / "kvConfig.json"),
            "configStorePath": str(home / "namesrv.properties"),
        }

    @property
    def address(self) -> str:
        """For a broker's ``namesrvAddr``."""
        return f"127.0.0.1:{self.port}"
