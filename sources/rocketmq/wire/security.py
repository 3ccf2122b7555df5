"""Our identity at a broker and its name server, the signature that proves it, and the protection of connections. Pure.

Both exist only for remoting. HA, which carries the log itself, has neither in any version up to 5.5.0: its store has no
TLS, and its protocol has no field for a name.

RocketMQ's ACL (4.4 to 5.x) and authentication (5.3 on) want three ext fields, over which the broker computes the same:

=================  ================================================================================================
ext field          value
=================  ================================================================================================
``AccessKey``      who asks; 5.x calls it the user name
``SecurityToken``  only if one was given; 4.9.7 and 5.5.0 sign it and do not look at it
``Signature``      Base64 of HMAC-SHA1, keyed with the secret key (5.x: password) as UTF-8, over the *values* of all
                   other ext fields, AccessKey among them, in the order of their *names* as Java's strings compare
                   (UTF-16 units); one after the other as UTF-8, with nothing in between; and then the body
=================  ================================================================================================

Neither the request code nor the opaque is signed, so a signature is valid for the same request at any time. It proves
who asks but does not protect against eavesdroppers; that takes TLS.

Sources: `AclClientRPCHook`, `AclUtils.combineRequestContent`, `AclSigner` (rocketmq-acl 4.9.7; 5.5.0 has them in
rocketmq-client); the broker's side `PlainAccessValidator.parse` (4.9.7) and `DefaultAuthenticationContextBuilder`,
`DefaultAuthenticationHandler` (rocketmq-auth 5.5.0). A 4.9.x broker treats a request without ext fields as one without
an AccessKey; fields of a custom header are ext fields like any other.

How a broker refuses clients that it does not know, or that may not ask:

=======  ============================  ===============================================================================
version  code                          remark, as measured
=======  ============================  ===============================================================================
4.9.7    1 SYSTEM_ERROR                ``org.apache.rocketmq.acl.common.AclException: <what>, <where in its code>``:
                                       No accessKey is configured; No acl config for <key>; No PlainAccessResource for
                                       accessKey=<key> (a removed account); Check signature failed for
                                       accessKey=<key>; No default permission for <topic or group>; Need admin
                                       permission for request code=<code>, but accessKey=<key> is not
5.5.0    16 NO_PERMISSION              username cannot be null.; User:<key> is not found.; User:<key> is disabled.;
                                       check signature failed.; User:<key> has no permission to access <resource> from
                                       <address>, no matched policies.
=======  ============================  ===============================================================================

Any other SYSTEM_ERROR says nothing about rights: brokers answer with it while they start. NO_PERMISSION with a remark
"… is forbidden" does not, either: then nobody may send to that topic, or to that broker.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import Final

from sources.access.security import Secret, Tls
from sources.errors import AccessDenied, ConfigurationError
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, code_name

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE: Final = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Revealed secrets, kept as long as a connection lives; no text shows them."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __reduce__(self) -> str:
        raise TypeError("credentials do not travel: their places do, to be read there")


def signed(request: Command, by: Credentials) -> Command:
    """Return `request` with the fields that say and prove who asks."""
    fields = {name: value for name, value in request.ext_fields.items() if name != SIGNATURE}
    fields[ACCESS_KEY] = by.access_key
    if by.security_token is not None:
        fields[SECURITY_TOKEN] = by.security_token
    return replace(request, ext_fields=fields | {SIGNATURE: _signature(fields, request.body, by.secret_key)})


def _signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    content = "".join(fields[name] for name in names).encode() + body
    return base64.b64encode(hmac.digest(secret_key.encode(), content, hashlib.sha1)).decode()


_TO_ANYBODY: Final = "is forbidden"
_UNSIGNED: Final = ("No accessKey", "username cannot be null")
_MISSING: Final = (  # words of a remark, what is missing, what helps
    ("signature", "the secret key of that account", "Does the secret belong to the account, and is it current?"),
    ("No acl config", "an account of that name", "Was it removed, or is it of another cluster?"),
    ("No PlainAccessResource", "an account of that name", "Was it removed, or is it of another cluster?"),
    ("is not found", "a user of that name", "Was it removed, or is it of another cluster?"),
    ("is disabled", "a user that is enabled", "mqadmin updateUser -s enable lets it in again."),
    ("admin permission", "an account with admin: true", "Nothing that logtwin replicates with needs it."),
    ("permission", "the permission that the remark names", "Grant it to the account, or take another one."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingSecurity:
    """Security of remoting. Without `access_key` requests are not signed; without `tls` they are sent in the clear.

    These values travel to tasks and into logs, so they name secrets (`sources.access.security`) and never hold them.
    Raises ConfigurationError if one half of a pair is missing.
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


def is_denial(answer: Command) -> bool:
    """Whether the answer says that we may not ask, so that no retry helps."""
    if answer.code == ResponseCode.NO_PERMISSION:
        return _TO_ANYBODY not in (answer.remark or "")
    kind = (answer.remark or "").partition(":")[0]
    return answer.code == ResponseCode.SYSTEM_ERROR and kind.endswith("AclException")


def denied(request_code: int, answer: Command, by: str, access_key: Secret | None) -> AccessDenied:
    """Return the error for an answer that `is_denial`: who denies what to whom, what is missing, and what to do."""
    remark = answer.remark or "no remark"
    missing, hint = _missing(remark, access_key)
    who = "clients without an access key" if access_key is None else f"the account in {access_key}"
    return AccessDenied(
        f"{by} does not allow request {code_name(RequestCode, request_code)} to {who}",
        expected=missing,
        found=f"code {code_name(ResponseCode, answer.code)}: {remark}",
        hint=f"{hint} docs/security.md says what an account needs.",
    )


def _missing(remark: str, access_key: Secret | None) -> tuple[str, str]:
    if access_key is None or any(words in remark for words in _UNSIGNED):
        return "access_key and secret_key of an account", "Give both, as env:NAME or file:PATH."
    for words, missing, hint in _MISSING:
        if words in remark:
            return missing, hint
    return "the right to ask this", "The remark is the broker's own; its log says more."
