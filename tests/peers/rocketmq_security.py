"""Real brokers with access control and TLS, for tests; every secret is new, so that there is a value to look for."""

import json
import secrets
from pathlib import Path

from sources.access.address import Address
from sources.access.security import Secret, Tls
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command
from sources.rocketmq.wire.security import RemotingSecurity
from tests.peers.certificates import KeyFiles
from tests.peers.rocketmq import Broker

_AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider"
_AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"
_CREATE_USER, _UPDATE_USER, _DELETE_USER = 3001, 3002, 3003


class Account:
    """A name and a secret key, in files below `folder`, as an operator keeps them."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.key = f"{name}-{secrets.token_hex(6)}", secrets.token_hex(16)
        self._files = [folder / f"{name}.{what}" for what in ("name", "key")]
        for file, value in zip(self._files, (self.name, self.key), strict=True):
            file.write_text(f"{value}\n")

    @property
    def options(self) -> dict[str, str]:
        """As in ``[[logs]]``."""
        return {key: f"file:{file}" for key, file in zip(("access_key", "secret_key"), self._files, strict=True)}

    def security(self, tls: Tls | None = None) -> RemotingSecurity:
        return RemotingSecurity(**{key: Secret(place) for key, place in self.options.items()}, tls=tls)


class Certificates(KeyFiles):
    """As configurations and Java processes of RocketMQ's name them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._key_password_file = folder / "key-password"
        self._key_password_file.write_text(self.key_password)

    @property
    def options(self) -> dict[str, object]:
        """As in ``[[logs]]``."""
        return {
            "tls": True,
            "tls_ca_file": str(self.ca_file),
            "tls_certificate_file": str(self.certificate_file),
            "tls_key_file": str(self.key_file),
            "tls_key_password": f"file:{self._key_password_file}",
        }

    @property
    def tls(self) -> Tls:
        return Tls(
            ca_file=str(self.ca_file),
            certificate_file=str(self.certificate_file),
            key_file=str(self.key_file),
            key_password=Secret(f"file:{self._key_password_file}"),
        )

    def properties(self) -> dict[str, str]:
        """A Java process's: it speaks TLS only, and wants a certificate of whoever asks."""
        names = {"keyPath": "server.key", "certPath": "server.pem", "trustCertPath": "ca.pem"}
        sides = [(side, key, name) for side in ("server", "client") for key, name in names.items()]
        return {
            "tls.test.mode.enable": "false",
            "tls.server.mode": "enforcing",
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.enable": "true",
            "tls.client.authServer": "true",
            **{f"tls.{side}.{key}": str(self.folder / name) for side, key, name in sides},
        }


class _Secured(Broker):
    """Known to its `user`, who may do nothing but be known, and to its `admin`."""

    user: Account
    admin: Account
    tls: Tls | None = None

    def _idle(self, home: Path) -> Broker:
        return Broker(self.version, home)

    @property
    def address(self) -> Address:
        return Address("localhost" if self.tls else "127.0.0.1", self.port)

    def client(self, security: RemotingSecurity | None = None) -> RemotingClient:
        """Of the user, or of whoever is given."""
        security = self.user.security(self.tls) if security is None else security
        return RemotingClient(self.address, security=security, call_timeout_ms=20_000)

    def _await_runtime_info(self) -> None:
        with self.client(self.admin.security(self.tls)) as client:
            client.runtime_info()


class AclBroker(_Secured):
    """4.9.7 with ``aclEnable`` and conf/plain_acl.yml."""

    def __init__(self, home: Path) -> None:
        self._file = home / "rocketmq" / "conf" / "plain_acl.yml"
        self.user, self.admin = Account(home / "keys", "logtwin"), Account(home / "keys", "admin")
        permissive = {"tls.server.mode": "permissive"}  # as it is by default
        super().__init__("4.9.7", home, {"aclEnable": "true"}, java_properties=permissive)

    def _prepare(self) -> list[str]:
        command = super()._prepare()
        lines = ["accounts:"]
        for one in (self.user, self.admin):
            lines += [f"- accessKey: {one.name}", f"  secretKey: {one.key}"]
            lines += [f"  admin: {str(one is self.admin).lower()}"]
            lines += ["  defaultTopicPerm: DENY", "  defaultGroupPerm: DENY"]
        self._file.write_text("\n".join(lines) + "\n")
        return command


class AuthBroker(_Secured):
    """5.5.0 with authentication, authorization and nothing but TLS."""

    def __init__(self, home: Path, certificates: Certificates, **settings: str | int) -> None:
        self.user, self.admin = Account(home / "keys", "logtwin"), Account(home / "keys", "admin")
        inner = Account(home / "keys", "inner")
        self.tls = certificates.tls
        super().__init__(
            "5.5.0",
            home,
            {
                "authenticationEnabled": "true",
                "authenticationProvider": f"{_AUTHENTICATION}.DefaultAuthenticationProvider",
                "authenticationMetadataProvider": f"{_AUTHENTICATION}.LocalAuthenticationMetadataProvider",
                "authorizationEnabled": "true",
                "authorizationProvider": f"{_AUTHORIZATION}.DefaultAuthorizationProvider",
                "authorizationMetadataProvider": f"{_AUTHORIZATION}.LocalAuthorizationMetadataProvider",
                "authConfigPath": str(home / "auth"),
                "initAuthenticationUser": json.dumps({"username": self.admin.name, "password": self.admin.key}),
                "innerClientAuthenticationCredentials": json.dumps({"accessKey": inner.name, "secretKey": inner.key}),
                **settings,
            },
            java_properties=certificates.properties(),
        )

    def start(self) -> None:
        super().start()
        self.create(self.user)

    def create(self, account: Account) -> None:
        body = {"username": account.name, "password": account.key, "userType": "Normal"}
        self._change(_CREATE_USER, account, body)

    def disable(self, account: Account) -> None:
        self._change(_UPDATE_USER, account, {"username": account.name, "userStatus": "disable"})

    def delete(self, account: Account) -> None:
        self._change(_DELETE_USER, account)

    def _change(self, code: int, account: Account, body: object = None) -> None:
        request = Command(code, ext_fields={"username": account.name}, body=json.dumps(body).encode() if body else b"")
        with self.client(self.admin.security(self.tls)) as client:
            client.call(request)
