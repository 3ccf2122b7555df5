"""Signatures are those that RocketMQ's own class makes; who signs is told to nobody."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from sources.rocketmq.wire.remoting import Command, RequestCode
from sources.rocketmq.wire.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Credentials, signed
from tests.sources.rocketmq.signatures import CASES, WHO, Case


@pytest.mark.parametrize("name", CASES)
def test_a_signature_is_rocketmq_s_own(name: str) -> None:
    case = CASES[name]
    request = Command(RequestCode.GET_BROKER_CONFIG, ext_fields=case.ext_fields, body=case.body)
    assert signed(request, case.credentials).ext_fields[SIGNATURE] == case.signature


@pytest.mark.parametrize("token", [None, "token"])
def test_what_was_asked_stays_and_says_who_asks(token: str | None) -> None:
    who = replace(WHO, security_token=token)
    request = Command(RequestCode.SEND_MESSAGE_V2, 7, 0, {"b": "orders"}, body=b"body")
    answer = signed(request, who)
    added = {name: value for name, value in answer.ext_fields.items() if name not in request.ext_fields}
    assert added.keys() == {ACCESS_KEY, SIGNATURE} | ({SECURITY_TOKEN} if token else set())
    assert (added[ACCESS_KEY], added.get(SECURITY_TOKEN)) == ("logtwin", token)
    assert replace(answer, ext_fields={"b": "orders"}) == request


def test_a_request_that_was_signed_may_be_signed_again() -> None:
    case: Case = CASES["fields in another order"]
    once = signed(Command(28, ext_fields=case.ext_fields), case.credentials)
    assert signed(once, case.credentials) == once


def test_credentials_show_and_travel_nowhere() -> None:
    who = Credentials("logtwin", "secret-of-logtwin", "token-7")
    shown = f"{who!r} {who}"
    assert not [secret for secret in ("logtwin", "secret-of-logtwin", "token-7") if secret in shown]
    with pytest.raises(TypeError, match="do not travel"):
        pickle.dumps(who)
