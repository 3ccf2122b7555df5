"""Azurite, the emulator of Azure's Blob Storage, as `make azurite-setup` installs it."""

import base64
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline.system.processes import child_process
from sinks.storage.settings import Storage

_FOLDER: Final = Path(__file__).parents[2] / ".azurite"
PROGRAM: Final = _FOLDER / "node_modules/azurite/dist/src/blob/main.js"
INSTALLED: Final = _FOLDER / ".installed"
"""There once all of it is."""
ACCOUNT: Final = "logtwin"
_KEEP_ALIVE_S: Final = "300"
"""Arrow takes up connections that were idle for less than a minute. One that the server has ended, after 5 s unless it
is told otherwise, costs Arrow 4, 8 and 16 s until the next try."""
_LISTENS: Final = re.compile(r"listens on (http://127\.0\.0\.1:\d+)$")


@dataclass(frozen=True, slots=True)
class Azurite:
    """One that runs; the key of its account is in `key_file`, which tasks can read, too."""

    endpoint: str
    key_file: Path

    def storage(self, **more: object) -> dict[str, Any]:
        """``[storage]`` of it."""
        return {"endpoint": self.endpoint, "account_key": f"file:{self.key_file}", "patience_s": 4.0, **more}

    def with_container(self, name: str) -> str:
        """A warehouse in a new one."""
        filesystem, _ = Storage.model_validate(self.storage()).open("abfs", of(name))
        filesystem.create_dir(name)
        return f"abfs://{of(name)}/lake"


def of(container: str) -> str:
    """The authority of a container's URI."""
    return f"{container}@{ACCOUNT}.dfs.core.windows.net"


def what_is_missing() -> str | None:
    """To start it here."""
    if shutil.which("node") is None:
        return "no node on the PATH: install Node.js, then make azurite-setup"
    return None if INSTALLED.exists() else "no Azurite in .azurite: make azurite-setup"


@contextmanager
def azurite(folder: Path) -> Iterator[Azurite]:
    """A server with one account, whose key nobody had before, on a free port of the loopback, while the `with` lasts.

    What it holds is in its memory. Hadoop and Arrow speak newer versions of the protocol than it knows.
    """
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    key_file = folder / "key"
    key_file.touch(0o600)
    key_file.write_text(key)
    command = ["node", str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", "0"]
    command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    command += ["--blobKeepAliveTimeout", _KEEP_ALIVE_S]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    environment = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}
    with child_process(command, cwd=folder, env=environment, **options) as process:
        yield Azurite(_endpoint(process), key_file)


def _endpoint(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        found = _LISTENS.search(line.strip())
        if found is not None:
            return found[1]
    raise AssertionError(f"Azurite did not start: {''.join(said)}")
