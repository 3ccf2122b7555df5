"""How a broker refuses clients that it does not know, or that may not ask. Pure.

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

from typing import Final

from sources.access.secrets import Secret
from sources.errors import AccessDenied
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, code_name

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
