"""Our identity at a broker and its name server, and the protection of their connections, as an operator configures it.

Both exist only for remoting. HA, which carries the log itself, has neither in any version up to 5.5.0: its store has no
TLS, and its protocol has no field for a name.
"""

from __future__ import annotations

from dataclasses import dataclass

from sources.access.secrets import Secret
from sources.access.tls import Tls
from sources.errors import ConfigurationError
from sources.rocketmq.wire.signing import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingSecurity:
    """Security of remoting. Without `access_key` requests are not signed; without `tls` they are sent in the clear.

    These values travel to tasks and into logs, so they hold the places of secrets (`sources.access.secrets`), never the
    secrets. Raises ConfigurationError if one half of a pair is missing.
    """

    access_key: Secret | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            given, missing = ("access_key", "secret_key") if self.secret_key is None else ("secret_key", "access_key")
            raise ConfigurationError(f"{given} without {missing}", hint="Give both, or neither.")
        if self.security_token is not None and self.access_key is None:
            raise ConfigurationError(
                "security_token has no effect", hint="Remove it, or give access_key and secret_key."
            )

    def reveal(self) -> Credentials | None:
        """Read the secrets. Call it at each connection, so that new keys take effect. Raises ConfigurationError."""
        if self.access_key is None or self.secret_key is None:
            return None
        token = None if self.security_token is None else self.security_token.reveal()
        return Credentials(self.access_key.reveal(), self.secret_key.reveal(), token)

    def hidden(self, text: str, revealed: Credentials | None) -> str:
        """Return `text`, which a broker wrote, with our secrets replaced by their places."""
        if revealed is None:
            return text
        known = (
            (revealed.secret_key, self.secret_key),
            (revealed.security_token, self.security_token),
            (revealed.access_key, self.access_key),
        )
        for value, place in known:
            text = text.replace(value, str(place)) if value else text
        return text
