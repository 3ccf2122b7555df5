"""An S3 server on loopback, for the demo and for tests: moto's S3, as a program beside ours.

``python -m pipeline.demo.s3_server --bucket lake`` prints where it listens as one line of JSON, and serves until it is
stopped. Its content ends with it.

What must hold:

* **Conditional writes are atomic.** moto checks whether a key exists, and then puts it, without a lock. So if several
  clients put the same new key with ``If-None-Match: *``, several may be told that they were first, and some that the
  server failed. Therefore moto gets one request at a time; bodies are received before, and answers sent after, in
  parallel.
* **Connections are kept open.** moto's own server closes each after one answer.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from pipeline.system.processes import allow_many_files, child_process
from sources.errors import ConfigurationError

Application: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""

REGION: Final = "us-east-1"

_OBJECT_IN_MEMORY_BYTES: Final = 64 * 1024
_LARGE_BODY_BYTES: Final = 1024 * 1024
_NO_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys with which a client signs."""

    access_key: str
    secret_key: str


OWNER: Final = Keys("AKIALOGTWINOWNER0000", "the-secret-of-the-owner-of-the-buckets00")
READER: Final = Keys("AKIALOGTWINREADER000", "the-secret-of-one-who-may-only-read00000")
"""If access is checked, OWNER may do everything, and READER only get and list. Otherwise any keys are accepted."""

_MAY: Final = {OWNER: ["s3:*"], READER: ["s3:Get*", "s3:List*", "s3:Head*"]}


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server."""

    port: int
    bucket: str
    pid: int
    region: str = REGION
    keys: Keys = OWNER

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"


@contextmanager
def running_server(
    bucket: str = "lake", *, folder: Path | None = None, checks_access: bool = False
) -> Iterator[S3Server]:
    """Run a server with an empty bucket, on a free port, during the `with` block. It ends with us, however we end.

    Objects of more than 64 KiB are unnamed temporary files in `folder`, by default the system's. With `checks_access`
    only the keys OWNER and READER are accepted. Raises ConfigurationError if moto is not installed.
    """
    _require_moto()
    command = [sys.executable, "-m", "pipeline.demo.s3_server", "--bucket", bucket]
    command += ["--folder", str(folder)] if folder else []
    command += ["--check-access"] if checks_access else []
    code = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")]))}
    with child_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment
    ) as process, _output_of(process) as output:  # fmt: skip
        line = output.readline()
        if not line:
            raise ConfigurationError("the S3 server did not start", found=f"exit code {process.wait()}")
        yield S3Server(**json.loads(line))


def _output_of(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdout is None:
        raise AssertionError("its output is a pipe")
    return process.stdout


def _require_moto() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("moto", "flask", "flask_cors")):
        raise ConfigurationError(
            "an S3 server on this machine takes moto, which is not installed",
            hint="Install it: pip install 'moto[server]>=5.1,<6'; or name an S3 endpoint of your own.",
        )


class OneAtATime:
    """Wraps a WSGI application so that it handles one request after the other."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        with self._turn:
            answer = self._application(environ, start_response)
            try:
                return list(answer)
            finally:
                if hasattr(answer, "close"):
                    answer.close()


class S3HttpServer(ThreadingHTTPServer):
    """Serves `application`, with a thread for each connection."""

    request_queue_size = 128

    def __init__(self, port: int, application: Application) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.application = application

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that goes away; show anything else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Handles a connection: request after request, each received whole before it is answered."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024  # the head of an answer goes out with its body

    server: S3HttpServer

    def _serve(self) -> None:
        body = self._received()
        status, headers = 500, list[tuple[str, str]]()

        def start_response(status_line: str, its_headers: list[tuple[str, str]], _: Any = None) -> None:
            nonlocal status, headers
            status, headers = int(status_line.partition(" ")[0]), its_headers

        answer = b"".join(self.server.application(self._environ(body), start_response))
        self._answer(status, headers, answer)
        if len(body) > _LARGE_BODY_BYTES:
            gc.collect(1)  # moto leaves reference cycles that keep the body alive

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = _serve

    def handle_expect_100(self) -> bool:
        """Tell the client at once, not with the answer, to send its body."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Log nothing: a proxy in between can count better."""

    def _received(self) -> bytes:
        """The body of the request. moto decodes S3's own framing in it (aws-chunked)."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._exactly(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self._exactly(size))
            self.rfile.readline()
        while self.rfile.readline() not in (b"\r\n", b"\n", b""):
            """Skip headers that follow the body."""
        return b"".join(pieces)

    def _exactly(self, length: int) -> bytes:
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionAbortedError("it ended within a body")
        return body

    def _environ(self, body: bytes) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": self.path,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": str(self.server.server_port),
            "SERVER_PROTOCOL": self.request_version,
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in self.headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        environ["CONTENT_LENGTH"] = str(len(body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        return environ

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        names = {name.lower() for name, _ in headers}
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if "date" not in names:
            self.send_header("Date", formatdate(usegmt=True))
        if "content-length" not in names and status not in _NO_BODY:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _application(bucket: str, *, folder: Path | None, checks_access: bool) -> Application:
    """moto's S3 with that bucket, as a WSGI application."""
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(_OBJECT_IN_MEMORY_BYTES))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(folder)
    from moto import settings
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.models import s3_backends

    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, REGION)
    if checks_access:
        for keys, actions in _MAY.items():
            _let_in(keys, actions)
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    return OneAtATime(create_backend_app("s3"))  # S3 alone: finding the service takes moto as long as serving


def _let_in(keys: Keys, actions: list[str]) -> None:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.iam.models import iam_backends

    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    name = keys.access_key.lower()
    iam.create_user(region_name=REGION, user_name=name)
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    iam.put_user_policy(name, "all", json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    made = iam.create_access_key(name)
    made.access_key_id, made.secret_access_key = keys.access_key, keys.secret_key


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.demo.s3_server", description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--bucket", default="lake", help="made at the start")
    parser.add_argument(
        "--folder", type=Path, help="where objects lie while it runs; default: as other temporary files"
    )
    parser.add_argument(
        "--check-access", action="store_true", help="refuse other keys than its two, and wrong signatures"
    )
    given = parser.parse_args(arguments)
    try:
        _require_moto()
    except ConfigurationError as error:
        print(f"configuration error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    allow_many_files()  # each object beyond 64 KiB is an open file
    application = _application(given.bucket, folder=given.folder, checks_access=given.check_access)
    with S3HttpServer(given.port, application) as server:
        print(json.dumps({"port": server.server_port, "bucket": given.bucket, "pid": os.getpid()}), flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
