"""Users and certificates of a real Kafka broker, for tests, new for each: what must not appear has a value to look for.

The broker's certificate is of "localhost", so that by 127.0.0.1 it is another host's.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

_MODULES = "org.apache.kafka.common.security"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class SecureListeners:
    """Listeners SASL_SSL (PLAIN and both SCRAM, for one user) and SSL (a client's certificate is asked for).

    Files are PEM, in `folder`: `ca_file`, and `certificate_file` with the key in `key_file`, under `key_password`, of a
    client. `other_ca_file` has signed nothing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.user = f"user-{secrets.token_hex(8)}"
        self.password = secrets.token_hex(16)
        self.key_password = secrets.token_hex(16)
        self.ca_file, self.other_ca_file = folder / "ca.pem", folder / "other-ca.pem"
        self.certificate_file, self.key_file = folder / "client.pem", folder / "client-key.pem"
        self._broker_file = folder / "broker.pem"
        self._make_files()

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

    def _make_files(self) -> None:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(self.ca_file)
        trustme.CA().cert_pem.write_to_path(self.other_ca_file)
        broker, client = ca.issue_cert("localhost"), ca.issue_cert("client.example")
        chain = b"".join(part.bytes() for part in broker.cert_chain_pems)
        self._broker_file.write_bytes(_key(broker, serialization.NoEncryption()) + chain)
        client.cert_chain_pems[0].write_to_path(self.certificate_file)
        under_password = serialization.BestAvailableEncryption(self.key_password.encode())
        self.key_file.write_bytes(_key(client, under_password))


def _key(certificate: trustme.LeafCert, encryption: serialization.KeySerializationEncryption) -> bytes:
    """As PKCS #8, the only form that Kafka reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
