"""Whole states as they stand beside a log: in files, and as a node answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sources.dister.files.snapshots import read_nodes, read_services
from sources.dister.peers import NodeInfo
from sources.dister.services import SERVICE_FILE
from sources.errors import MasterRefused, MasterSilent, MasterUnreachable

LISTED = b'[{"id":"A1","ip":"10.0.0.1","group":"g","raft":2,"version":"1.6"}]'
NODE = NodeInfo(id="A1", ip="10.0.0.1", group="g", raft=2, version="1.6")


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The URL of a node's REST that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *arguments: object) -> None: ...  # noqa: A002  (the name is the base class's)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/node"
        server.shutdown()
        thread.join()


def body(status: int, data: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def test_a_service_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / SERVICE_FILE).mkdir()
    with pytest.raises(MasterUnreachable, match=SERVICE_FILE) as caught:
        read_services(tmp_path)
    assert caught.value.hint


def test_nodes_as_a_node_answers() -> None:
    with answering(body(200, b'{"result":1,"message":"ok","data":' + LISTED + b"}")) as url:
        assert read_nodes(url) == (NODE,)


def test_a_node_that_refuses() -> None:
    with answering(body(404, b"")) as url, pytest.raises(MasterRefused) as caught:
        read_nodes(url)
    assert caught.value.found == "404"


def test_a_node_that_says_nothing() -> None:
    done = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        done.wait(30)

    with answering(wait) as url:
        try:
            with pytest.raises(MasterSilent, match="no answer") as caught:
                read_nodes(url, timeout_s=0.1)
        finally:
            done.set()
    assert caught.value.expected == "one within 0.1 s"


def test_a_node_that_breaks_off() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(LISTED)

    with answering(answer) as url, pytest.raises(MasterUnreachable):
        read_nodes(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/node", "http://[", "http:///node"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(MasterUnreachable) as caught:
        read_nodes(url)
    assert caught.value.hint
