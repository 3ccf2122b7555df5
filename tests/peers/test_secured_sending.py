"""`logtwin send` to a real broker that asks who sends, by TLS and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.cli.app import main
from tests.peers.rocketmq_security import Account, AuthBroker, Certificates

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings(r"error:unclosed <ssl\.SSLSocket :ResourceWarning"),  # these are ours
]
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
