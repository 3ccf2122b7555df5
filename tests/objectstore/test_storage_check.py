"""A store that cannot be used is one line within seconds, before a JVM is started: what is wrong, where to look."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pyarrow.fs as pafs
import pytest
import trustme

from pipeline.config.configuration import Config
from pipeline.demo.s3_server import OWNER, READER, S3Server
from pipeline.inspect.config_check import checks
from sinks.storage import settings as storage
from sinks.storage.check import check_storage
from sinks.storage.place import placed
from sinks.storage.settings import Storage, use
from sources.errors import ConfigurationError, LogtwinError, StorageUnreachable
from tests.deaf_port import deaf_port
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.faults import (
    ACCESS_DENIED,
    EXPIRED_TOKEN,
    INTERNAL_ERROR,
    NO_SUCH_BUCKET,
    SLOW_DOWN,
    CutBefore,
    Fault,
    other_region,
    signed_for_another_region,
)
from tests.objectstore.server import at
from tests.patience import PATIENCE_S

OTHER_SECRET = "not-the-secret-of-anybody-0000000000000"  # noqa: S105 - and of nobody else


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.VARIABLE, "{}")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OWNER_KEY", OWNER.access_key)
    monkeypatch.setenv("OWNER_SECRET", OWNER.secret_key)
    monkeypatch.setenv("READER_KEY", READER.access_key)
    monkeypatch.setenv("READER_SECRET", READER.secret_key)
    monkeypatch.setenv("OTHER_KEY", "AKIANOBODY0000000000")
    monkeypatch.setenv("OTHER_SECRET", OTHER_SECRET)


@pytest.fixture
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What AWS's client waits between two attempts is its own affair, and takes two to four seconds."""
    monkeypatch.setattr(storage, "_ATTEMPTS", 1)


def owner(endpoint: str, **more: object) -> Storage:
    return at(endpoint, **{"access_key": "env:OWNER_KEY", "secret_key": "env:OWNER_SECRET", **more})


def refused(chosen: Storage, kind: type[LogtwinError], words: str, warehouse: str = "s3a://lake/twin") -> None:
    """The check ends so: in one line, and without a secret."""
    use(chosen)
    with pytest.raises(LogtwinError, match=words) as caught:
        check_storage(placed(warehouse))
    assert type(caught.value) is kind
    told = str(caught.value)
    assert "\n" not in told
    assert warehouse in told
    assert not [one for one in (OWNER.access_key, OWNER.secret_key, OTHER_SECRET) if one in told]


@pytest.mark.parametrize("who", ["OWNER", "READER"])
def test_owner_and_reader_pass_the_check(s3_guarded: S3Server, who: str) -> None:
    use(at(s3_guarded.endpoint, access_key=f"env:{who}_KEY", secret_key=f"env:{who}_SECRET"))
    check_storage(placed("s3://guarded/twin"))


def test_config_check_writes_a_file_there_and_removes_it_and_a_reader_is_told(s3_guarded: S3Server) -> None:
    for who, is_right in (("READER", False), ("OWNER", True)):
        keys = {"access_key": f"env:{who}_KEY", "secret_key": f"env:{who}_SECRET"}
        config = Config(warehouse="s3://guarded/probed", storage=at(s3_guarded.endpoint, **keys))
        (found,) = (one for one in checks(config) if one.of == "warehouse")
        assert found.is_right == is_right
        assert ("s3://guarded/probed cannot be written" in found.said) != is_right
    filesystem, inside = placed("s3://guarded/probed").open()
    assert filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True)) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"access_key": "env:OTHER_KEY"}, "does not know our access key.*AWS_ACCESS_KEY_ID"),
        ({"secret_key": "env:OTHER_SECRET"}, r"our secret key is not the right one.*secret_key in \[storage\]"),
        ({"access_key": "env:NOWHERE"}, "no secret in env:NOWHERE"),
        ({"secret_key": "file:/nowhere"}, "cannot read the secret in file:/nowhere"),
    ],
)
def test_wrong_keys(s3_guarded: S3Server, wrong: dict[str, str], words: str) -> None:
    use(owner(s3_guarded.endpoint, **wrong))
    with pytest.raises(ConfigurationError, match=words) as caught:
        check_storage(placed("s3a://guarded/twin"))
    assert OTHER_SECRET not in str(caught.value)
    assert "Request ID" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (ACCESS_DENIED, ConfigurationError, "we may not read it.*rights to list, read, write and delete"),
        (EXPIRED_TOKEN, StorageUnreachable, "our keys have expired.*Renew them"),
        (NO_SUCH_BUCKET, ConfigurationError, "there is no bucket lake"),
        (other_region("eu-west-1"), ConfigurationError, "the bucket is elsewhere.*region and endpoint"),
        (
            signed_for_another_region("eu-west-1", "us-east-1"),
            ConfigurationError,
            "another region.*'us-east-1' is wrong; expecting 'eu-west-1'.*Look at region",
        ),
        (SLOW_DOWN, StorageUnreachable, "asked for too much.*later"),
        (INTERNAL_ERROR, StorageUnreachable, "not well.*later"),
        (CutBefore(), StorageUnreachable, "closes the connection.*http:// or https://"),
    ],
    ids=lambda value: getattr(value, "code", None),
)
@pytest.mark.usefixtures("asked_once")
def test_what_a_store_says(s3_link: FaultProxy, fault: Fault, kind: type[LogtwinError], words: str) -> None:
    s3_link.inject(fault)
    refused(owner(s3_link.endpoint), kind, words)


@contextmanager
def listener(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Something that is no S3: what it does with each connection. Its address."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def serve() -> None:
            with suppress(OSError):  # it was closed
                while True:
                    client, _ = sock.accept()
                    with closing(client), suppress(OSError):
                        answer(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{sock.getsockname()[1]}"
        sock.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


def hang_up(client: socket.socket) -> None:
    client.recv(1)


def greet(client: socket.socket) -> None:
    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    client.recv(65536)


def say_not_found(client: socket.socket) -> None:
    client.recv(65536)
    client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")


def speak_tls(client: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with context.wrap_socket(client, server_side=True) as inside:
        inside.recv(1)


@pytest.mark.parametrize(
    ("answer", "scheme", "kind", "words"),
    [
        (hang_up, "http", StorageUnreachable, "closes the connection.*http:// or https://"),
        (greet, "http", StorageUnreachable, "does not speak HTTP"),
        (say_not_found, "http", ConfigurationError, "there is no bucket lake.*endpoint"),
        (speak_tls, "http", StorageUnreachable, "closes the connection.*http:// or https://"),
        (speak_tls, "https", ConfigurationError, "certificate of its endpoint is not to be trusted"),
        (hang_up, "https", ConfigurationError, "does not speak TLS.*http:// or https://"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.usefixtures("asked_once")
def test_an_endpoint_that_is_no_s3(
    answer: Callable[[socket.socket], object], scheme: str, kind: type[LogtwinError], words: str
) -> None:
    with listener(answer) as address:
        refused(owner(f"{scheme}://{address}"), kind, words)


@pytest.mark.usefixtures("asked_once")
def test_an_endpoint_that_cannot_be_reached() -> None:
    """A silent one is given up after `patience_s`."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for host, words in (
            (f"127.0.0.1:{deaf_port()}", "nobody answers at its endpoint"),
            ("no-such-host.invalid:9000", "host name has no address"),
            (f"127.0.0.1:{silent.getsockname()[1]}", "does not answer in time"),
        ):
            refused(owner(f"http://{host}", patience_s=1.0), StorageUnreachable, words)
    assert StorageUnreachable.exit_code == 6


def test_an_unusable_endpoint_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000")
    use(Storage())
    with pytest.raises(ConfigurationError, match=r"AWS_ENDPOINT_URL is not usable; expected http://host:port"):
        check_storage(placed("s3a://lake/twin"))


def test_other_file_systems_are_not_asked() -> None:
    use(Storage())
    check_storage(placed("/tmp"))  # noqa: S108 - nothing is written
    check_storage(placed("hdfs://nowhere.invalid/lake"))
