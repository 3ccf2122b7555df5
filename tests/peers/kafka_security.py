"""Users and certificates of a real Kafka broker, for tests, new for each."""

import secrets
from pathlib import Path

from tests.peers.certificates import KeyFiles

_MODULES = "org.apache.kafka.common.security"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class SecureListeners(KeyFiles):
    """Listeners SASL_SSL (PLAIN and both SCRAM, for one user) and SSL (a client's certificate is asked for)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.user = f"user-{secrets.token_hex(8)}"
        self.password = secrets.token_hex(16)
        self._broker_file = folder / "broker.pem"
        parts = ((folder / f"server.{what}").read_bytes() for what in ("key", "pem"))
        self._broker_file.write_bytes(b"".join(parts))

    def settings(self) -> dict[str, str]:
        """Lines of server.properties."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *_SCRAM)),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required user_{self.user}="{self.password}";'
            ),
            **{
                f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": (
                    f"{_MODULES}.scram.ScramLoginModule required;"
                )
                for mechanism in _SCRAM
            },
        }

    def scram_users(self) -> list[str]:
        """For ``--add-scram`` of the program that formats a store."""
        return [f"{mechanism}=[name={self.user},password={self.password}]" for mechanism in _SCRAM]
