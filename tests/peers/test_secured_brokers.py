"""Real brokers that ask who one is: known, unknown, no longer known; by TLS, and by TLS with another's certificate."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.cli.app import main
from sources.access.address import Address
from sources.errors import AccessDenied, ConfigurationError, LogtwinError
from sources.rocketmq.log import RocketMQLog
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.remoting import RequestCode
from sources.rocketmq.wire.security import RemotingSecurity
from tests.patience import wait_until
from tests.peers.rocketmq_security import Account, AclBroker, AuthBroker, Certificates

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings(r"error:unclosed <ssl\.SSLSocket :ResourceWarning"),  # these are ours
]


@pytest.fixture(scope="module")
def acl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    with AclBroker(tmp_path_factory.mktemp("acl")) as running:
        yield running


@pytest.fixture(params=["auth_broker", pytest.param("acl", marks=pytest.mark.nightly)])
def broker(request: pytest.FixtureRequest) -> AclBroker | AuthBroker:
    running: AclBroker | AuthBroker = request.getfixturevalue(request.param)
    return running


def log_at(broker: AclBroker | AuthBroker, security: RemotingSecurity) -> RocketMQLog:
    return broker.opened(security=security, connect_timeout_ms=10_000)


def refusal_of(log: RocketMQLog) -> AccessDenied:
    """What every request of a slave is refused with, the same for each. It is final, and names broker and request."""
    errors: list[LogtwinError] = [kind.items for kind in log.metadata() if isinstance(kind.items, LogtwinError)]
    for ask in (log.check, log.bounds, log.view, log.acknowledged_by_master):
        with pytest.raises(AccessDenied) as caught:
            ask()
        errors.append(caught.value)
    assert len(errors) == 7 + 4
    for error in errors:
        assert isinstance(error, AccessDenied)
        assert not error.is_transient
        assert str(log.remoting) in str(error)
    asked = {name for name in RequestCode.__members__ for error in errors if f" {name} " in error.problem}
    assert asked >= {"GET_BROKER_RUNTIME_INFO", "GET_BROKER_CONFIG", "GET_BROKER_HA_STATUS", "GET_ALL_TOPIC_CONFIG"}
    first = errors[0]
    assert isinstance(first, AccessDenied)
    return first


def test_an_account_with_nothing_but_its_keys_is_enough(broker: AclBroker | AuthBroker) -> None:
    """Every request of a slave, metadata included."""
    log = log_at(broker, broker.user.security(broker.tls))
    log.check()
    log.view()
    log.acknowledged_by_master()
    assert [kind.items for kind in log.metadata() if isinstance(kind.items, LogtwinError)] == []


def test_who_is_not_known_is_told_what_is_missing_and_where_it_looked(
    broker: AclBroker | AuthBroker, tmp_path: Path
) -> None:
    error = refusal_of(log_at(broker, RemotingSecurity(tls=broker.tls)))
    assert error.expected == "access_key and secret_key of an account"

    wrong, unknown = Account(tmp_path, "wrong"), Account(tmp_path, "unknown")
    Path(wrong.options["access_key"].partition(":")[2]).write_text(broker.user.name)
    error = refusal_of(log_at(broker, wrong.security(broker.tls)))
    assert error.expected == "the secret key of that account"
    assert wrong.options["access_key"] in error.problem
    assert not [secret for secret in (broker.user.name, wrong.key, broker.user.key) if secret in str(error)]

    error = refusal_of(log_at(broker, unknown.security(broker.tls)))
    assert error.expected in ("an account of that name", "a user of that name")
    assert unknown.options["access_key"] in str(error.found)
    assert not [secret for secret in (unknown.name, unknown.key) if secret in str(error)]


def test_a_user_who_is_disabled_or_deleted_is_refused_on_the_connection_that_it_has(
    auth_broker: AuthBroker, tmp_path: Path
) -> None:
    user = Account(tmp_path, "short")
    auth_broker.create(user)
    with auth_broker.client(user.security(auth_broker.tls)) as client:
        client.broker_config()
        auth_broker.disable(user)
        wait_until(lambda: missing(client) == "a user that is enabled", "the end of its rights")
        auth_broker.delete(user)
        wait_until(lambda: missing(client) == "a user of that name", "its end")


def missing(client: RemotingClient) -> str | None:
    """What the broker wants and does not find; None where it answers."""
    try:
        client.broker_config()
    except AccessDenied as error:
        return error.expected
    return None


@pytest.mark.parametrize(
    ("changes", "host", "said"),
    [
        ({"ca_file": None}, "localhost", "not trusted"),
        ({"ca_file": "other"}, "localhost", "not trusted"),
        ({}, "127.0.0.1", "not valid for '127.0.0.1'"),
        ({"certificate_file": None, "key_file": None, "key_password": None}, "localhost", "certificate_file"),
    ],
)
def test_tls_that_does_not_fit_is_final(
    auth_broker: AuthBroker, certificates: Certificates, changes: dict[str, str | None], host: str, said: str
) -> None:
    if changes.get("ca_file") == "other":
        changes = {"ca_file": str(certificates.other_ca_file)}
    security = replace(auth_broker.user.security(), tls=replace(certificates.tls, **changes))  # type: ignore[arg-type]
    with (
        pytest.raises(ConfigurationError, match=said) as caught,
        RemotingClient(Address(host, auth_broker.port), security=security) as client,
    ):
        client.broker_config()
    assert not caught.value.is_transient
    assert f"{host}:{auth_broker.port}" in str(caught.value)


# `logtwin send` to a broker that asks who sends, by TLS and nothing else


SENT = ("--count", "200", "--rate-per-s", "0", "--window", "32")


def job(folder: Path, account: Account | None, tls: Mapping[str, object]) -> Path:
    """A configuration of who sends, spelled as in [[logs]]."""
    given = {**(account.options if account else {}), **tls}
    lines = [f"{key} = {str(value).lower() if value is True else repr(value)}" for key, value in given.items()]
    path = folder / "job.toml"
    path.write_text("\n".join(["[workload]", *lines]) + "\n")
    return path


def send(capsys: pytest.CaptureFixture[str], broker: AuthBroker, *arguments: str) -> tuple[object, str]:
    """Its exit code, and what it said."""
    with pytest.raises(SystemExit) as ended:
        main(["send", "--to", str(broker.address), *SENT, *arguments])
    said = capsys.readouterr()
    return ended.value.code or 0, said.out + said.err


def test_who_may_send_sends(
    auth_broker: AuthBroker, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a configuration, and by options of the same names."""
    given = {**auth_broker.admin.options, **certificates.options}
    options = [(f"--{key.replace('_', '-')}", value) for key, value in given.items()]
    config = job(tmp_path, auth_broker.admin, certificates.options)
    for arguments in (["--config", str(config)], [str(part) for pair in options for part in pair if part is not True]):
        with auth_broker.client(auth_broker.admin.security(auth_broker.tls)) as client:
            before = client.commit_log_bounds().end
            code, said = send(capsys, auth_broker, *arguments)
            assert (code, "200 messages" in said) == (0, True), said
            assert client.commit_log_bounds().end - before > 100_000


@pytest.mark.parametrize(
    ("who", "is_secure", "told"),
    [
        ("user", True, "the permission that the remark names"),
        (None, True, "access_key and secret_key of an account"),
        ("admin", False, "tls = true"),
    ],
)
def test_who_may_not_send_is_told_what_is_missing(
    auth_broker: AuthBroker,
    certificates: Certificates,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    who: str | None,
    told: str,
    *,
    is_secure: bool,
) -> None:
    account: Account | None = getattr(auth_broker, who) if who else None
    config = job(tmp_path, account, certificates.options if is_secure else {})
    code, said = send(capsys, auth_broker, "--config", str(config))
    assert (code, told in said) == (3, True), said
    assert not account or not [secret for secret in (account.name, account.key) if secret in said]
