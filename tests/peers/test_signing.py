"""Signatures as the clients of both versions make them, by their own class."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.spark.jars import java, resolve
from tests.sources.rocketmq.signatures import CASES, Case

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

PROGRAM = Path(__file__).parent / "java" / "Sign.java"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_expected_signatures_are_made_by_the_clients_own_class(version: str, tmp_path: Path) -> None:
    assert _signatures(version, list(CASES.values()), tmp_path) == [case.signature for case in CASES.values()]


def _signatures(version: str, cases: Sequence[Case], home: Path) -> list[str]:
    folders = (f"-Duser.home={home}", f"-Djava.io.tmpdir={home}")  # 5.5.0 writes its logs there
    classpath = f"{resolve('org.apache.rocketmq', 'rocketmq-broker', version)}/*"
    command = [java(), *folders, "-cp", classpath, str(PROGRAM)]
    said = subprocess.run(
        command, cwd=home, input="".join(map(_line, cases)), capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return [line.partition("\t")[2] for line in said.splitlines() if line.startswith("signature\t")]


def _line(case: Case) -> str:
    who = case.credentials
    texts = [who.access_key, who.secret_key, who.security_token or ""]
    pairs = [text for pair in case.ext_fields.items() for text in pair]
    parts = [*(text.encode() for text in texts), case.body, *(text.encode() for text in pairs)]
    return "\t".join(part.hex() for part in parts) + "\n"
