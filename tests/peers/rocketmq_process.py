"""Java processes of RocketMQ's, for tests; of these its name servers."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pipeline.spark.jars import java, resolve
from pipeline.system.processes import free_port
from tests.peers.process import PeerProcess

_MEMORY = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
_JAVA_17 = (  # without these 4.9.7 cannot load an existing store
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
# By default it also takes clients with TLS: it then makes a key and a certificate at each start, for nobody.
_WITHOUT_TLS = {"tls.server.mode": "disabled"}
_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %t %logger %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


class RocketMQProcess(PeerProcess):
    """A real one as a context manager; everything it writes is below `home`. `settings` are lines over `_defaults`.

    A subclass also names its module and its main class, and gives its ports and the lines of its configuration file.
    """

    booted = "boot success"
    module: ClassVar[str]
    main_class: ClassVar[str]

    def __init__(
        self,
        version: str,
        home: Path,
        settings: Mapping[str, str | int] | None = None,
        java_properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(version, home)
        self.port, self.ha_port = free_ports()
        self._settings = self._defaults() | dict(settings or {})
        self._java_properties = _WITHOUT_TLS | dict(java_properties or {})

    @abstractmethod
    def _defaults(self) -> dict[str, str | int]:
        """Of a lone one, at its ports."""

    @property
    def log(self) -> str:
        """Its standard output and, of 5.x, its log file."""
        files = sorted(self.home.glob(f"logs/rocketmqlogs/{self.kind}.log"))
        return "\n".join((super().log, *(file.read_text(errors="replace") for file in files)))

    def _environment(self) -> dict[str, str]:
        return {"ROCKETMQ_HOME": str(self.home / "rocketmq")}

    def _prepare(self) -> list[str]:
        configuration, conf = self.home / f"{self.kind}.conf", self.home / "rocketmq" / "conf"
        temporary = self.home / "tmp"
        for folder in (conf, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        (conf / f"logback_{self.kind}.xml").write_text(_LOGBACK)  # 4.9.x refuses to start without
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        folders = (f"-Duser.home={self.home}", f"-Djava.io.tmpdir={temporary}")
        classpath = ("-cp", f"{resolve('org.apache.rocketmq', self.module, self.version)}/*")
        properties = [f"-D{name}={value}" for name, value in self._java_properties.items()]
        options = [*_MEMORY, *_JAVA_17, *folders, *properties]
        return [java(), *options, *classpath, self.main_class, "-c", str(configuration)]


def free_ports() -> tuple[int, int]:
    """A broker's port and its HA port. A broker also takes the one two below its port."""
    port = free_port(-2, 1)
    return port, port + 1


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
