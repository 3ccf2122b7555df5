"""Certificates for tests, new for each: what must not appear has a value to look for."""

import secrets
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


class KeyFiles:
    """Of a server and of a client, signed by one authority; `other_ca_file` has signed nothing. All PEM, in `folder`.

    The server's certificate is of "localhost", so that by 127.0.0.1 it is another host's. The client's key is under
    `key_password`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca_file, self.other_ca_file = folder / "ca.pem", folder / "other-ca.pem"
        self.certificate_file, self.key_file = folder / "client.pem", folder / "client.key"
        self.key_password = secrets.token_hex(16)
        ca = trustme.CA()
        ca.cert_pem.write_to_path(self.ca_file)
        trustme.CA().cert_pem.write_to_path(self.other_ca_file)
        self._write("server", ca.issue_cert("localhost"), serialization.NoEncryption())
        encrypted = serialization.BestAvailableEncryption(self.key_password.encode())
        self._write("client", ca.issue_cert("client.example"), encrypted)

    def _write(self, name: str, one: trustme.LeafCert, encryption: serialization.KeySerializationEncryption) -> None:
        """The key as PKCS #8, the only form that Kafka reads."""
        key = serialization.load_pem_private_key(one.private_key_pem.bytes(), password=None)
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        (self.folder / f"{name}.pem").write_bytes(b"".join(part.bytes() for part in one.cert_chain_pems))
