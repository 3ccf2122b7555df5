"""The S3 server of the tests is one that can be relied on: what a table in an object store counts on, it keeps."""

from __future__ import annotations

import importlib.util
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.demo import s3_server
from pipeline.demo.s3_server import S3Server, running_server
from sources.errors import ConfigurationError
from tests.objectstore.server import PlainClient
from tests.patience import PATIENCE_S

WRITERS = 8


def race(rounds: int, write: Callable[[int, int], int]) -> list[Counter[int]]:
    """Of each round, what `write(round, writer)` said to writers that began at once."""
    together = threading.Barrier(WRITERS)

    def run(writer: int) -> list[int]:
        said = []
        for number in range(rounds):
            together.wait(PATIENCE_S)
            said.append(write(number, writer))
        return said

    with ThreadPoolExecutor(WRITERS) as threads:
        return [Counter(said) for said in zip(*threads.map(run, range(WRITERS)), strict=True)]


@pytest.mark.parametrize(("size", "rounds"), [(100, 30), (2_000_000, 5)])
def test_of_writers_that_put_a_new_key_at_once_one_is_the_first(s3: S3Server, size: int, rounds: int) -> None:
    client = PlainClient.of(s3)
    said = race(rounds, lambda number, writer: client.put_if_absent(f"log/{number}", bytes([writer]) * size))
    assert said == [Counter({200: 1, 412: WRITERS - 1})] * rounds


def test_without_moto_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'moto\[server\]"), running_server():
        pass
    with pytest.raises(SystemExit) as ended:
        s3_server.main([])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
