"""Which answers are refusals for want of rights, and what is said of each; remarks are those of real brokers."""

from __future__ import annotations

import pytest

from sources.access.secrets import Secret
from sources.rocketmq.wire.denials import denied, is_denial
from sources.rocketmq.wire.remoting import Command, RequestCode

KEY = Secret("env:ROCKETMQ_USER")
_497 = "org.apache.rocketmq.acl.common.AclException: {}, org.apache.rocketmq.acl.plain.PlainPermissionManager.validate"


@pytest.mark.parametrize(
    ("code", "remark", "missing"),
    [
        (1, _497.format("No accessKey is configured"), "access_key and secret_key of an account"),
        (1, _497.format("No acl config for env:ROCKETMQ_USER"), "an account of that name"),
        (1, _497.format("No PlainAccessResource for accessKey=env:ROCKETMQ_USER"), "an account of that name"),
        (1, _497.format("Check signature failed for accessKey=env:ROCKETMQ_USER"), "the secret key of that account"),
        (1, _497.format("No default permission for orders"), "the permission that the remark names"),
        (1, _497.format("Need admin permission for request code=17, but accessKey=u is not"), "an account with admin"),
        (16, "username cannot be null.", "access_key and secret_key of an account"),
        (16, "User:env:ROCKETMQ_USER is not found.", "a user of that name"),
        (16, "User:env:ROCKETMQ_USER is disabled.", "a user that is enabled"),
        (16, "check signature failed.", "the secret key of that account"),
        (16, "User:u has no permission to access Topic:t from 127.0.0.1, no matched policies.", "the permission that"),
        (16, None, "the right to ask this"),
    ],
)
def test_a_denial_says_what_is_missing(code: int, remark: str | None, missing: str) -> None:
    answer = Command(code, flag=1, remark=remark)
    assert is_denial(answer)
    error = denied(RequestCode.GET_BROKER_CONFIG, answer, "the broker at a:1", KEY)
    assert (error.expected or "").startswith(missing)
    assert (remark or "no remark") in (error.found or "")
    for word in ("the broker at a:1", "26 GET_BROKER_CONFIG", "env:ROCKETMQ_USER"):
        assert word in error.problem
    assert not error.is_transient


def test_who_gives_no_key_is_told_to_give_one() -> None:
    error = denied(28, Command(16, remark="of a provider of your own"), "b", None)
    assert error.expected == "access_key and secret_key of an account"
    assert "without an access key" in error.problem


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (0, None),
        (1, None),
        (1, "java.util.NoSuchElementException"),
        (1, "java.lang.RuntimeException: AclException is only mentioned"),
        (3, " request type 907 not supported"),
    ],
)
def test_other_answers_are_none(code: int, remark: str | None) -> None:
    assert not is_denial(Command(code, remark=remark))
