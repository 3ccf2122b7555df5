"""Where a server of ``logtwin sql`` and its clients meet, what they say, and who is kept out; without Spark."""

import io
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.sql.serve import client, meeting
from pipeline.sql.serve.client import server_for
from pipeline.sql.serve.meeting import (
    DONE,
    LONGEST_ADDRESS_BYTES,
    OUTPUT,
    Ask,
    ClientFrame,
    Hello,
    check_owned,
    make_folder,
    next_message,
    socket_path,
)
from pipeline.sql.serve.server import listening, reserved
from pipeline.system.peers import peer_is_owner
from pipeline.version import own_version
from sources.errors import ConfigurationError, QueryError

PROJECT = Path(__file__).parents[3]
TEXT = "SELECT 1"

HELLO = Hello("0.1.0", 4711, "/data/消息")
ASK = Ask("SELECT '消息'", "csv", None, 'warehouse = "lake"', "job.toml")
ERROR = QueryError("line 1: no", expected="a", found="b", hint="c")


@pytest.fixture(autouse=True)
def here(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.toml"
    file.write_text('warehouse = "lake"\n')
    return file


def found(job: Path) -> client.Served | None:
    return server_for(job.read_text(), TEXT, "csv")


def test_a_replica_has_one_place_however_it_is_named(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a runtime folder it is in the cache."""
    place = socket_path({"warehouse": "lake"})
    assert place.parent == runtime / "logtwin"
    for same in ("./lake", f"{tmp_path}/lake", f"file:{tmp_path}/lake", f"{tmp_path}/x/../lake"):
        assert socket_path({"warehouse": same, "logs": [1]}) == place
    assert socket_path({}) == socket_path({"warehouse": "./warehouse"})
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("LOGTWIN_CACHE", str(runtime / "cache"))
    assert socket_path({}).parent == runtime / "cache" / "serve"


def test_what_is_reached_or_read_in_another_way_has_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lake: dict[str, object] = {"warehouse": "s3a://lake"}
    ways: list[dict[str, object]] = [
        {"warehouse": "lake"},
        lake,
        lake | {"storage": {"endpoint": "http://a"}},
        lake | {"storage": {"endpoint": "http://b"}},
        lake | {"spark": {"sql": {"ansi": {"enabled": False}}}},
    ]
    places = {socket_path(one) for one in ways}
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert len({*places, socket_path(lake)}) == len(ways) + 1


def test_a_name_that_no_socket_can_have_is_refused(
    runtime: Path, job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = runtime / ("x" * (LONGEST_ADDRESS_BYTES - len(os.fsencode(socket_path({}))) - 1))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(longest))
    with reserved(job) as path, listening(path):
        assert len(os.fsencode(path)) == LONGEST_ADDRESS_BYTES
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{longest}x")
    with pytest.raises(ConfigurationError, match="XDG_RUNTIME_DIR"), reserved(job):
        pass
    assert found(job) is server_for("warehouse = ", TEXT, "csv") is None  # nor with a file that cannot be read
    assert capsys.readouterr().err == ""  # there can be no server, so nothing is worth a word


def test_the_place_is_its_owners_alone_and_gone_at_the_end(job: Path) -> None:
    with reserved(job) as path, listening(path) as listener:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(path))
            accepted, _ = listener.accept()
            with accepted:
                assert peer_is_owner(accepted)
    assert not path.exists()


def test_a_folder_that_others_can_enter_is_refused(
    job: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_folder(runtime / "logtwin")
    (runtime / "logtwin").chmod(0o750)
    with pytest.raises(ConfigurationError, match=r"others can use .*found owner .*, drwxr-x---"), reserved(job):
        pass
    assert found(job) is None
    assert "others can use" in capsys.readouterr().err


def test_a_folder_of_another_user_or_no_folder_is_refused(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "real").mkdir(mode=0o700)
    (runtime / "link").symlink_to(runtime / "real")
    with pytest.raises(ConfigurationError, match="others can use"):
        check_owned(runtime / "link")
    (runtime / "file").touch(mode=0o600)
    with pytest.raises(ConfigurationError, match="cannot be made"):
        make_folder(runtime / "file")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(ConfigurationError, match="expected owner 4711"):
        check_owned(runtime / "real")


def test_a_socket_that_others_can_use_is_not_asked(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reserved(job) as path, listening(path):
        path.chmod(0o666)
        assert found(job) is None
    assert "others can use" in capsys.readouterr().err


def test_there_is_one_server_for_a_replica(job: Path) -> None:
    taken = pytest.raises(ConfigurationError, match=f"served already.*process {os.getpid()}")
    with reserved(job), taken, reserved(job):
        pass
    with reserved(job):
        pass


def test_what_a_killed_server_left_is_taken_over(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with reserved(job) as path:
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()
        path.chmod(0o600)
    assert found(job) is None
    with reserved(job) as path, listening(path):
        pass
    assert capsys.readouterr().err == ""


def test_a_server_that_says_nothing_is_not_waited_for(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_HELLO_WITHIN_S", 0.1)
    with reserved(job) as path, listening(path):
        assert found(job) is None
    assert "does not identify itself" in capsys.readouterr().err


def test_a_server_that_ends_in_the_middle_of_an_answer_is_no_end_of_the_answer(job: Path) -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(Hello(own_version(), 4711, str(Path.cwd())).message().encoded())
            connection.sendall(ClientFrame(OUTPUT, b"n\n").encoded())
            connection.recv(1)

    with reserved(job) as path, listening(path) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        server, sink = found(job), io.BytesIO()
        assert server is not None
        with pytest.raises(QueryError, match=r"process 4711. ended while it answered"):
            server.answer(Ask(TEXT, "csv", None, "", ""), sink)
        thread.join()
    assert sink.getvalue() == b"n\n"


@pytest.mark.job
@pytest.mark.parametrize("arguments", [["sql", "--format", "csv", "-e", TEXT], ["report"]])
def test_asking_a_server_imports_nothing_slow(job: Path, arguments: list[str]) -> None:
    """What is slow to import is not there to be imported: only the server, which is asked first, can answer."""

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            connection.sendall(Hello(own_version(), 4711, str(job.parent)).message().encoded())
            ask = Ask.read(next_message(stream))
            connection.sendall(ClientFrame(OUTPUT, ask.form.encode()).encoded() + ClientFrame(DONE).encoded())

    look = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('pyspark', 'pyarrow'))\n"
        "from pipeline.cli.entry import main\n"
        f"sys.argv = {['logtwin', *arguments, '--config', 'job.toml']}\n"
        "main()"
    )
    with reserved(job) as path, listening(path) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        environment = os.environ | {"PYTHONPATH": str(PROJECT)}
        command = [sys.executable, "-c", look]
        found = subprocess.run(command, cwd=job.parent, env=environment, capture_output=True, text=True, check=False)
        listener.close()
        thread.join(10)
    is_report = arguments == ["report"]
    assert (found.returncode, found.stdout, found.stderr) == (0, "report.html\n" if is_report else "csv", "")
    assert not is_report or (job.parent / "report.html").read_text() == "report"


def test_what_is_written_is_read_in_order() -> None:
    sent = [HELLO.message(), ASK.message(), ClientFrame(OUTPUT, bytes(range(256)) * 500), ClientFrame(DONE)]
    stream = io.BytesIO(b"".join(one.encoded() for one in sent))
    assert [next_message(stream) for _ in sent] == sent
    assert next_message(stream) is None
    assert Hello.read(sent[0]) == HELLO
    assert Ask.read(sent[1]) == ASK
    assert [next_message(io.BytesIO(sent[1].encoded()[:at])) for at in (1, 4, 5, 20)] == [None] * 4  # it breaks off
    more = json.loads(sent[0].body) | {"version": "9.9", "memory": 1}  # of a server of another version
    assert Hello.read(ClientFrame(meeting.HELLO, json.dumps(more).encode())).version == "9.9"


def test_a_message_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="a message of 1,"):
        next_message(io.BytesIO(b"GET / HTTP/1.1"))
    monkeypatch.setattr(meeting, "LONGEST_BYTES", 3)
    with pytest.raises(ConfigurationError, match="too many statements"):
        ASK.message().encoded()


@pytest.mark.parametrize(
    "message", [None, HELLO.message(), ClientFrame(meeting.ASK, b"[]"), ClientFrame(meeting.ASK, b"{}")]
)
def test_other_messages_are_no_question(message: ClientFrame | None) -> None:
    with pytest.raises(ValueError):
        Ask.read(message)
