"""The client of a running server (`pipeline.sql.serve.server`), which saves starting Spark.

It imports neither Spark nor anything else that takes long, because the user waits for it.
"""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path
from typing import BinaryIO, Final

from pipeline.sql.output import destination
from pipeline.sql.serve.meeting import (
    DONE,
    ERROR,
    NOTE,
    OUTPUT,
    REPORT,
    Ask,
    ClientFrame,
    Hello,
    check_owned,
    error_in,
    local_warehouse,
    next_message,
    socket_path,
)
from pipeline.system.console import err, show
from pipeline.system.folders import limit_rights
from pipeline.system.peers import peer_is_owner
from pipeline.version import own_version
from sources.errors import ConfigurationError, QueryError

_HELLO_WITHIN_S: Final = 2.0
_SHARED: Final = re.compile(r"\bglobal(_temp)?\b", re.I)
"""Matches names of global views, which all sessions of the server would share."""
_BY_PATH: Final = re.compile(
    r"\b(binaryfile|csv|delta|json|orc|parquet|text|xml)\s*\.\s*`(?!\s*(/|\w+:))|\bview\b.*\busing\b", re.I | re.S
)
"""Matches a file whose path may be relative to the folder in which the process was started."""


class Served:
    """A connection to a server that has sent its hello, and waits for a request."""

    def __init__(self, connection: socket.socket) -> None:
        """Raises OSError or ValueError if no hello comes."""
        self._connection = connection
        self._stream = connection.makefile("rb")
        self.hello = Hello.read(next_message(self._stream))
        connection.settimeout(None)

    def answer(self, ask: Ask, sink: BinaryIO) -> None:
        """Write the server's answer to `sink`, as `pipeline.sql.reader.run_text` would. Raises what that raises.

        If this ends early, the server stops its work on the request.
        """
        with self._connection, self._stream:
            self._send(ask)
            while (message := self._next()).kind != DONE:
                if message.kind == ERROR:
                    raise error_in(message)
                if message.kind == NOTE:
                    err.print(message.body.decode(), markup=False, highlight=False)
                elif message.kind == OUTPUT:
                    sink.write(message.body)
                    sink.flush()

    def close(self) -> None:
        self._stream.close()
        self._connection.close()

    def _send(self, ask: Ask) -> None:
        try:
            self._connection.sendall(ask.message().encoded())
        except OSError as error:
            raise self._gone() from error

    def _next(self) -> ClientFrame:
        try:
            message = next_message(self._stream)
        except (OSError, ValueError) as error:
            raise self._gone() from error
        if message is None:
            raise self._gone()
        return message

    def _gone(self) -> QueryError:
        return QueryError(
            f"the server (process {self.hello.pid}) ended while it answered",
            hint="Ask again: without a server logtwin sql starts a session of its own.",
        )


def answered(config: Path, form: str, *, text: str = "", output: Path | None, width: int | None = None) -> bool:
    """Let a server for that configuration file answer into `output`. Returns whether there was one.

    Raises what answering raises, and ConfigurationError if `output` cannot be written.
    """
    try:
        given = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False  # the code that loads the file reports the error
    server = server_for(given, text, form)
    if server is None:
        return False
    limit_rights(local_warehouse(tomllib.loads(given)))
    with destination(output) as sink:
        server.answer(Ask(text, form, width, given, str(config)), sink)
    return True


def server_for(config: str, text: str, form: str) -> Served | None:
    """A server that answers as a process of our own would; None if there is none.

    Prints a note if one seems to exist but cannot be used. `config` is the text of a configuration file.
    """
    try:
        path = socket_path(tomllib.loads(config))
    except (ValueError, ConfigurationError):
        return None  # the code that loads the file reports the error; without a socket's path there is no server
    try:
        check_owned(path.parent)
        check_owned(path)
    except FileNotFoundError:
        return None
    except ConfigurationError as error:
        _say(str(error))
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_HELLO_WITHIN_S)
    try:
        connection.connect(str(path))
        if not peer_is_owner(connection):
            raise ValueError("it belongs to another user")
        server = Served(connection)
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        return None  # left by a killed server
    except (OSError, ValueError) as error:
        connection.close()
        _say(f"the server at {path} does not identify itself: {error}")
        return None
    return _fitting(server, text, form)


def _fitting(server: Served, text: str, form: str) -> Served | None:
    said = server.hello
    is_other = said.version != own_version()
    if is_other:
        _say(f"the server (process {said.pid}) is logtwin {said.version}, this is {own_version()}")
    # a report names typed tables, whose schemas are files
    needs_folder = form == REPORT or _BY_PATH.search(text) is not None
    if is_other or _SHARED.search(text) or (needs_folder and said.folder != str(Path.cwd())):
        server.close()
        return None
    return server


def _say(why: str) -> None:
    show(f"{why}; starting a session of our own instead", to=err)
