"""The signature of a remoting request, as RocketMQ's ACL (4.4 to 5.x) and authentication (5.3 on) require it.

The client adds three ext fields, and the broker computes the same over what it has received:

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
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import Final

from sources.rocketmq.wire.remoting import Command

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
