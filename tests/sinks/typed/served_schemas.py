"""A schema registry of a test, on the loopback, and what is sent by it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from sinks.typed.definition import Reading
from sinks.typed.formats.json_fields import Reader
from sinks.typed.readers import reader


class Served:
    """Answers by path, what was asked, and by whom."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, object]] = {}
        self.asked: list[tuple[str, str | None]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked.append((self.path, self.headers.get("Authorization")))
                missing = 404, {"error_code": 40403, "message": "Schema not found"}
                status, answer = served.answers.get(self.path, missing)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reader(self, form: str = "avro", path: str = "", **more: Any) -> Reader:
        return cast("Reader", reader.__wrapped__(Reading(format=form, registry=self.url + path, **more)))


def frame(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body
