"""Who we are to a broker, as an operator writes it; that it is told to nobody else; signatures, which are those that
RocketMQ's own class makes; and answers that are refusals for want of rights, with remarks of real brokers.
"""

import pickle
import traceback
from dataclasses import replace
from typing import Any

import pytest

from sources.access.security import Secret, Tls
from sources.errors import AccessDenied, ConfigurationError
from sources.options import MasterOptions, ReadOptions, parse_options
from sources.registry import open_log
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import Command, RequestCode, encode_command
from sources.rocketmq.wire.security import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    Credentials,
    RemotingSecurity,
    denied,
    is_denial,
    signed,
)
from tests.sources.rocketmq.scripted_master import ScriptedBroker
from tests.sources.rocketmq.signatures import CASES, WHO

NAME, KEY, TOKEN = "user-7f3a", "hunter2-ä", "token-9c1d"
LOG = {"id": "rocketmq/a", "name_server": "b:1"}
KEYS = {"access_key": "env:MQ_NAME", "secret_key": "env:MQ_KEY"}
SECURITY = RemotingSecurity(
    access_key=Secret("env:MQ_NAME"), secret_key=Secret("env:MQ_KEY"), security_token=Secret("env:MQ_TOKEN")
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQ_NAME", NAME)
    monkeypatch.setenv("MQ_KEY", KEY)
    monkeypatch.setenv("MQ_TOKEN", TOKEN)


def opened(**given: Any) -> RocketMQLog:
    log = open_log(parse_options(ReadOptions, LOG | given, where="x", camel=True))
    assert isinstance(log, RocketMQLog)
    return log


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def test_every_option_arrives_in_either_spelling() -> None:
    toml = {
        **KEYS,
        "security_token": "env:MQ_TOKEN",
        "tls": True,
        "tls_ca_file": "ca.pem",
        "tls_certificate_file": "own.pem",
        "tls_key_file": "key.pem",
        "tls_key_password": "file:/run/key",
        "tls_check_hostname": False,
    }
    spark = {camel(name): str(value).lower() if value in (True, False) else value for name, value in toml.items()}
    assert {"secretKey", "tlsKeyPassword"} <= spark.keys()
    files = {"ca_file": "ca.pem", "certificate_file": "own.pem", "key_file": "key.pem"}
    expected = replace(SECURITY, tls=Tls(**files, key_password=Secret("file:/run/key"), check_hostname=False))
    assert opened(**toml).security == opened(**spark).security == expected
    assert opened().security == RemotingSecurity()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"access_key": "env:MQ_NAME"}, "access_key without secret_key"),
        ({"secret_key": "env:MQ_KEY"}, "secret_key without access_key"),
        ({"security_token": "env:MQ_TOKEN"}, "security_token has no effect"),
        ({"secret_key": KEY}, "secret_key is not the place of a secret"),
        ({"access_key": KEY}, "access_key is not the place of a secret"),
        ({"tls_ca_file": "ca.pem"}, "tls_ca_file has no effect without tls"),
        ({"tls_check_hostname": False}, "tls_check_hostname has no effect without tls"),
        ({"tls": True, "tls_key_file": "key.pem"}, "key_file of TLS has no effect"),
        ({**KEYS, "path": "/x", "name_server": None}, "no effect with path"),
        ({**KEYS, "path": "/x", "name_server": None, "id": "dister/a"}, "access_key has no effect on a dister log"),
        ({"tls": True, "path": "/x", "name_server": None, "id": "dister/a"}, "tls has no effect on a dister log"),
    ],
)
def test_what_does_not_go_together_is_named_and_no_secret_with_it(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        opened(**given)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_by_path_nobody_is_asked_who_we_are() -> None:
    options = MasterOptions(id="rocketmq/a", name_server="b:1", tls=True, tls_ca_file="ca.pem", **KEYS)
    by_path = open_log(options.by_path("/data"))
    assert isinstance(by_path, RocketMQLog)
    assert (by_path.path, by_path.security) == ("/data", RemotingSecurity())


def test_a_log_travels_and_shows_where_secrets_are_and_never_what_they_are() -> None:
    log = opened(**KEYS)
    log.security.reveal()
    assert pickle.loads(pickle.dumps(log)) == log  # noqa: S301 - our own bytes
    shown = pickle.dumps(log) + repr(log).encode()
    assert not [secret for secret in (NAME, KEY) if secret.encode() in shown]
    assert "env:MQ_NAME" in repr(log)


def test_every_request_is_signed_and_the_refusal_of_one_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    requests: list[Command] = []

    def answer(request: Command) -> bytes:
        requests.append(request)
        said = f"User:{NAME} with {KEY} and {TOKEN} is not found."
        return encode_command(request.response(16 if len(requests) > 1 else 0, remark=said, body=b"a=1"))

    with ScriptedBroker(answer) as broker, RemotingClient(broker.address, security=SECURITY) as client:
        assert client.broker_config() == {"a": "1"}
        with pytest.raises(AccessDenied) as caught:
            client.runtime_info()

    credentials = SECURITY.reveal()
    assert credentials is not None
    for request in requests:
        assert signed(request, credentials).ext_fields == request.ext_fields
        assert request.ext_fields["SecurityToken"] == TOKEN
    assert len(requests) == 2  # a denial is not asked again
    assert (
        caught.value.found == "code 16 NO_PERMISSION: User:env:MQ_NAME with env:MQ_KEY and env:MQ_TOKEN is not found."
    )
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.facts()) + caplog.text
    signatures = [request.ext_fields[SIGNATURE] for request in requests]
    assert not [secret for secret in (NAME, KEY, TOKEN, *signatures) if secret in told]


# signatures


@pytest.mark.parametrize("name", CASES)
def test_a_signature_is_rocketmq_s_own_also_of_a_request_that_was_signed(name: str) -> None:
    case = CASES[name]
    request = Command(RequestCode.GET_BROKER_CONFIG, ext_fields=case.ext_fields, body=case.body)
    once = signed(request, case.credentials)
    assert once.ext_fields[SIGNATURE] == case.signature
    assert signed(once, case.credentials) == once


@pytest.mark.parametrize("token", [None, "token"])
def test_what_was_asked_stays_and_says_who_asks(token: str | None) -> None:
    who = replace(WHO, security_token=token)
    request = Command(RequestCode.SEND_MESSAGE_V2, 7, 0, {"b": "orders"}, body=b"body")
    answer = signed(request, who)
    added = {name: value for name, value in answer.ext_fields.items() if name not in request.ext_fields}
    assert added.keys() == {ACCESS_KEY, SIGNATURE} | ({SECURITY_TOKEN} if token else set())
    assert (added[ACCESS_KEY], added.get(SECURITY_TOKEN)) == ("logtwin", token)
    assert replace(answer, ext_fields={"b": "orders"}) == request


def test_credentials_show_and_travel_nowhere() -> None:
    who = Credentials("logtwin", "secret-of-logtwin", "token-7")
    shown = f"{who!r} {who}"
    assert not [secret for secret in ("logtwin", "secret-of-logtwin", "token-7") if secret in shown]
    with pytest.raises(TypeError, match="do not travel"):
        pickle.dumps(who)


# denials

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
    error = denied(RequestCode.GET_BROKER_CONFIG, answer, "the broker at a:1", Secret("env:ROCKETMQ_USER"))
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
