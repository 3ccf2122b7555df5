"""Where a server listens: host and port."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sources.errors import ConfigurationError

MAX_PORT: Final = 65535
_ADDRESS: Final = re.compile(r"(\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    """Host name or IP address, and port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``"127.0.0.1:10912"`` or ``"[::1]:10912"``. Raises ConfigurationError."""
        match = _ADDRESS.fullmatch(text.strip())
        if match is None or not 1 <= int(match["port"]) <= MAX_PORT:
            raise ConfigurationError(
                "not an address",
                expected=f"host:port, with a port from 1 to {MAX_PORT}",
                found=repr(text),
                hint="Write for example 127.0.0.1:10912, broker-a:10912 or [::1]:10912.",
            )
        return cls(match["ipv6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
