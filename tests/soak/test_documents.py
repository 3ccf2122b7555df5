"""README from the wheel: its commands and queries, typed in an environment that has the wheel and no source."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.documents import Block, blocks
from tests.pipeline.standalone import bare_python, build_wheel
from tests.test_documents import COMMANDS, README, Left, Typist

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Environment:
    """Where `logtwin` of the wheel is, and nothing of this folder."""

    program: Path

    def says(self, folder: Path, *words: str) -> str:
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LOGTWIN_CONFIG")}
        done = subprocess.run(
            [self.program, *words], cwd=folder, env=variables, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stderr[-3000:]}"
        return done.stdout


class WheelTypist(Typist):
    """In a process for each command."""

    def __init__(self, environment: Environment, left: Left, folder: Path) -> None:
        self._environment = environment
        self.left = left
        self.folder = folder

    def does(self, command: str) -> str:
        words = [self.names.get(word, word) for word in shlex.split(command)]
        return self._environment.says(self.folder, *words[1:])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    wheel = build_wheel(folder / "wheel")
    python = bare_python(folder / "env")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    return Environment(python.with_name("logtwin"))


def test_the_readme_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    out = environment.says(tmp_path, "demo", "--store", "store", "--duration-s", "6", "--rate-per-s", "500")
    typist = WheelTypist(environment, Left(tmp_path, out), tmp_path)
    assert "  equal" in out
    for block in blocks(README)[1:]:
        if block.is_run and block.language in ("console", "sh") and "logtwin get " not in block.text:
            for command in block.wanted:
                said = typist.does(command)
                assert COMMANDS[re.sub(" +", " ", command)](said, typist), f"{command}\n{said}"
        if block.language == "sql":
            assert_rows(typist, block)


def assert_rows(typist: WheelTypist, block: Block) -> None:
    for statement in block.statements:
        one = statement.rstrip(";\n").replace("\n", " ")
        said = typist.does(f"logtwin sql --config job.toml --format json -e {shlex.quote(one)}")
        assert [json.loads(line) for line in said.splitlines()], one
