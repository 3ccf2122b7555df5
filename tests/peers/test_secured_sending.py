"""`logtwin send` to real brokers that ask who sends, the newer one by TLS and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.cli.app import main
from tests.peers.rocketmq_security import Account, AclBroker, AuthBroker, Certificates

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings(r"error:unclosed <ssl\.SSLSocket :ResourceWarning"),  # these are ours
]
SENT = ("--count", "2000", "--rate-per-s", "0", "--window", "32")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["acl", "auth"])
def broker(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AclBroker | AuthBroker]:
    home = tmp_path_factory.mktemp("broker")
    with AclBroker(home) if request.param == "acl" else AuthBroker(home, certificates) as running:
        yield running


def job(folder: Path, account: Account | None, certificates: Certificates | None) -> Path:
    """A configuration of who sends, spelled as in [[logs]]."""
    given = {**(account.options if account else {}), **(certificates.options if certificates else {})}
    lines = [f"{key} = {str(value).lower() if value is True else repr(value)}" for key, value in given.items()]
    path = folder / "job.toml"
    path.write_text("\n".join(["[workload]", *lines]) + "\n")
    return path


def send(capsys: pytest.CaptureFixture[str], broker: AclBroker | AuthBroker, *arguments: str) -> tuple[object, str]:
    """Its exit code, and what it said."""
    with pytest.raises(SystemExit) as ended:
        main(["send", "--to", str(broker.address), *SENT, *arguments])
    said = capsys.readouterr()
    return ended.value.code or 0, said.out + said.err


def of(broker: AclBroker | AuthBroker, certificates: Certificates) -> Certificates | None:
    return certificates if broker.tls else None


def test_who_may_send_sends(
    broker: AclBroker | AuthBroker, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = job(tmp_path, broker.admin, of(broker, certificates))
    with broker.client(broker.admin.security(broker.tls)) as client:
        before = client.commit_log_bounds().end
        code, said = send(capsys, broker, "--config", str(config))
        assert (code, "2,000 messages" in said) == (0, True), said
        assert client.commit_log_bounds().end - before > 1_000_000


def test_options_of_the_same_names_do_as_well(
    broker: AclBroker | AuthBroker, certificates: Certificates, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**broker.admin.options, **(certificates.options if broker.tls else {})}
    options = [(f"--{key.replace('_', '-')}", value) for key, value in given.items()]
    code, said = send(capsys, broker, *(str(part) for pair in options for part in pair if part is not True))
    assert (code, "2,000 messages" in said) == (0, True), said


def test_who_may_not_is_told_what_is_missing(
    broker: AclBroker | AuthBroker, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = send(capsys, broker, "--config", str(job(tmp_path, broker.user, of(broker, certificates))))
    assert (code, "the permission that the remark names" in said) == (3, True), said
    assert not [secret for secret in (broker.user.name, broker.user.key) if secret in said]


def test_who_is_not_known_is_told_so(
    broker: AclBroker | AuthBroker, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = send(capsys, broker, "--config", str(job(tmp_path, None, of(broker, certificates))))
    assert (code, "access_key and secret_key of an account" in said) == (3, True), said


def test_without_tls_one_is_told_that_it_may_be_wanted(
    broker: AclBroker | AuthBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if broker.tls is None:
        pytest.skip("this broker takes both")
    code, said = send(capsys, broker, "--config", str(job(tmp_path, broker.admin, None)))
    assert (code, "tls = true" in said) == (3, True), said
