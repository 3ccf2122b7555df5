"""``logtwin report --serve``: a page that stays open, for its owner's browser on this machine.

What ``logtwin status`` says is looked up when a page asks, at most every LOOK_EVERY_S for all pages, and less often
where that takes long. The report itself may need Spark: it is made by a process of its own when a page is opened for
the first time, or somebody asks for it anew; all pages show the same one. So nothing runs while nobody looks.

Only a process of the same user, or of root, is answered, as the kernel says (`pipeline.system.peers`), which knows the
secret in the address, new at each start. An address with the name of another host is refused: a web site could have a
name of its own lead here, and read what it gets (DNS rebinding). No answer says that other sites may read it.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pipeline.config.configuration import Config
from pipeline.inspect.overview import Overview, overview
from pipeline.report.drawing.now import ReportState
from pipeline.report.page import live_page, live_policy, now_part
from pipeline.system.peers import peer_is_owner
from pipeline.system.processes import STOP_TIMEOUT_S, child_process
from sinks.warehouse import absolute
from sources.errors import ConfigurationError, LogtwinError, of_log

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

HOST: Final = "127.0.0.1"
LOOK_EVERY_S: Final = 5.0
_REST: Final = 3.0  # after a look that took long, as a multiple of that
_SILENT_S: Final = 10.0  # a browser may open connections without a request
_OURS: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"


class KeptOverview:
    """The present, for all who ask: `look` is called when somebody does, and its answer kept for a while."""

    def __init__(self, look: Callable[[], Overview], clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._lock = threading.Lock()
        self._kept: tuple[Overview | LogtwinError, datetime] | None = None
        self._until_s = 0.0

    def newest(self) -> tuple[Overview | LogtwinError, datetime]:
        """The last answer, or the error instead of one, and when it came."""
        with self._lock:
            if self._kept is None or self._clock() >= self._until_s:
                begun_s = self._clock()
                self._kept = self._seen(), datetime.now(UTC)
                ended_s = self._clock()
                self._until_s = ended_s + max(LOOK_EVERY_S, _REST * (ended_s - begun_s))
            return self._kept

    def _seen(self) -> Overview | LogtwinError:
        try:
            return self._look()
        except LogtwinError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a defect, which the page says, as the verb would
            return of_log(error, None)


class Reports:
    """The report that was made last. `command` makes one, into the file whose path is added to it."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._state = ReportState()
        self._made = b""
        self._process: subprocess.Popen[str] | None = None
        self._maker: threading.Thread | None = None
        self._is_closed = False

    @property
    def state(self) -> ReportState:
        return self._state

    @property
    def made(self) -> bytes:
        return self._made

    def begin(self) -> None:
        """Make one anew, unless one is being made."""
        with self._lock:
            if self._state.begun_at is None and not self._is_closed:
                self._state = replace(self._state, begun_at=datetime.now(UTC), error=None)
                self._maker = threading.Thread(target=self._make, name="makes a report", daemon=True)
                self._maker.start()

    def close(self) -> None:
        """End the process that makes one."""
        with self._lock:
            self._is_closed = True
            process = self._process
        if process is not None:
            process.terminate()
        if self._maker is not None:
            self._maker.join(STOP_TIMEOUT_S)

    def _make(self) -> None:
        try:
            made, error = self._run()
        except OSError as failed:
            made, error = b"", str(failed)
        with self._lock:
            before = self._state
            self._state = replace(before, begun_at=None, error=error)
            if error is None:
                self._made = made
                self._state = ReportState(number=before.number + 1, since=before.begun_at)

    def _run(self) -> tuple[bytes, str | None]:
        """The page, or why there is none. The process logs JSON, whose last line has its error."""
        told = {"LOGTWIN_LOG_FORMAT": "json", "LOGTWIN_LOG_LEVEL": "warning"}
        with TemporaryDirectory(prefix="logtwin-report-") as folder:
            file = Path(folder, "report.html")
            with child_process(
                [*self._command, str(file)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | told,
            ) as process:
                with self._lock:
                    self._process = process
                    if self._is_closed:
                        process.terminate()
                _, said = process.communicate()
            if process.returncode:
                return b"", _last_words(said) or f"it ended with exit code {process.returncode}"
            return file.read_bytes(), None


def _last_words(said: str) -> str:
    line = (said.strip().splitlines() or [""])[-1]
    try:
        return str(json.loads(line)["message"])
    except (KeyError, TypeError, ValueError):
        return line


class LivePage:
    """The page and what it asks for, as a WSGI application below ``/<secret>/``."""

    def __init__(self, warehouse: str, secret: str, looks: KeptOverview, reports: Reports) -> None:
        self._secret, self._looks, self._reports = secret.encode(), looks, reports
        self._page = live_page(warehouse).encode()
        self._headers = [
            ("Content-Security-Policy", live_policy()),
            ("Cache-Control", "no-store"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ]

    def __call__(self, environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        status, kind, body = self._answer(environment)
        length = ("Content-Length", str(len(body)))
        start(f"{status.value} {status.phrase}", [("Content-Type", kind), length, *self._headers])
        return [body]

    def _answer(self, environment: WSGIEnvironment) -> tuple[HTTPStatus, str, bytes]:
        secret, slash, name = environment["PATH_INFO"].removeprefix("/").partition("/")
        is_known = bool(slash) and hmac.compare_digest(secret.encode(), self._secret)
        if not is_known or _OURS.fullmatch(environment.get("HTTP_HOST", "")) is None:
            return HTTPStatus.NOT_FOUND, _TEXT, b"Open the address that logtwin report --serve has said.\n"
        match environment["REQUEST_METHOD"], name:
            case "GET", "":
                if not self._reports.state.number:
                    self._reports.begin()
                return HTTPStatus.OK, _HTML, self._page
            case "GET", "now":
                return HTTPStatus.OK, _HTML, self._now().encode()
            case "GET", "report" if self._reports.state.number:
                return HTTPStatus.OK, _HTML, self._reports.made
            case "POST", "report":
                self._reports.begin()
                return HTTPStatus.ACCEPTED, _TEXT, b""
        return HTTPStatus.NOT_FOUND, _TEXT, b"There is no such page.\n"

    def _now(self) -> str:
        return now_part(*self._looks.newest(), LOOK_EVERY_S, self._reports.state)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Hang up on other users, with a word for one who wonders."""
        with suppress(OSError):  # it has gone already
            if peer_is_owner(request, or_root=True):
                return True
            request.sendall(b"HTTP/1.0 403 Forbidden\r\n\r\nThis page is for the user alone who started it.\n")
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that broke or sent nothing: the browser tries again."""


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, *_: Any) -> None:
        """Log nothing: the address is a secret."""


class PageServer:
    """Listens from the start, and serves the page while `run` runs; `url` is its address."""

    def __init__(self, file: Path, config: Config, port: int) -> None:
        """`config` is what `file` says, with its patterns; port 0 takes a free one. Raises ConfigurationError."""
        secret = secrets.token_urlsafe()
        command = [sys.executable, "-m", "pipeline", "report", "--config", str(file), "--output"]
        self._reports = Reports(command)
        page = LivePage(absolute(config.warehouse), secret, KeptOverview(lambda: overview(config)), self._reports)
        try:
            self._server = make_server(HOST, port, page, _Server, _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"the page cannot be served at {HOST}:{port}",
                expected="a free port",
                found=error,
                hint="Without --port it takes a free one.",
            ) from error
        self.url = f"http://{HOST}:{self._server.server_port}/{secret}/"
        self._stopping = threading.Event()

    def request_stop(self) -> None:
        """Ask `run` to end. From any thread."""
        self._stopping.set()

    def run(self) -> None:
        """Answer until asked to stop, then end what still runs."""
        answering = threading.Thread(target=self._server.serve_forever, name="answers", daemon=True)
        answering.start()
        try:
            self._stopping.wait()
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._reports.close()
