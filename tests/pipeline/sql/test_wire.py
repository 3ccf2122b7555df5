"""Messages between a client and a server of ``logtwin sql``."""

from __future__ import annotations

import io
import json

import pytest

from pipeline.sql.serve import wire
from pipeline.sql.serve.wire import Ask, ClientFrame, Hello, next_message
from sources.errors import ConfigurationError, QueryError

HELLO = Hello("0.1.0", 4711, "/data/消息")
ASK = Ask("SELECT '消息'", "csv", None, 'warehouse = "lake"', "job.toml")
ERROR = QueryError("line 1: no", expected="a", found="b", hint="c")


def test_what_is_written_is_read_in_order() -> None:
    sent = [HELLO.message(), ASK.message(), ClientFrame(wire.OUTPUT, bytes(range(256)) * 500), ClientFrame(wire.DONE)]
    stream = io.BytesIO(b"".join(one.encoded() for one in sent))
    assert [next_message(stream) for _ in sent] == sent
    assert next_message(stream) is None
    assert Hello.read(sent[0]) == HELLO
    assert Ask.read(sent[1]) == ASK


@pytest.mark.parametrize("at", [1, 4, 5, 20])
def test_a_message_that_breaks_off_is_none(at: int) -> None:
    assert next_message(io.BytesIO(ASK.message().encoded()[:at])) is None


def test_a_message_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="a message of 1,"):
        next_message(io.BytesIO(b"GET / HTTP/1.1"))
    monkeypatch.setattr(wire, "LONGEST_BYTES", 3)
    with pytest.raises(ConfigurationError, match="too many statements"):
        ASK.message().encoded()


def test_a_server_of_another_version_may_say_more() -> None:
    more = json.loads(HELLO.message().body) | {"version": "9.9", "memory": 1}
    assert Hello.read(ClientFrame(wire.HELLO, json.dumps(more).encode())).version == "9.9"


@pytest.mark.parametrize("message", [None, HELLO.message(), ClientFrame(wire.ASK, b"[]"), ClientFrame(wire.ASK, b"{}")])
def test_other_messages_are_no_question(message: ClientFrame | None) -> None:
    with pytest.raises(ValueError):
        Ask.read(message)
