"""What an operator types, run in the test's own process: verbs, their exit codes, what they say."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.cli.app import main
from tests.pipeline.job_toml import job_toml


class Said(NamedTuple):
    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Said:
    """``logtwin …``"""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    code = ended.value.code
    said = capsys.readouterr()
    return Said(code if isinstance(code, int) else 0, said.out, said.err)


@dataclass(frozen=True)
class Operator:
    """At a configuration in `folder` with one log, ``rocketmq/test``."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def job(self) -> Path:
        return self.folder / "job.toml"

    def configure(self, **log: object) -> None:
        job_toml(self.folder, log, trigger_interval_s=0.1)

    def does(self, verb: str, *arguments: str) -> Said:
        """``logtwin <verb> --config job.toml …``"""
        return run(self.capsys, *verb.split(), "--config", self.job, *arguments)

    def must(self, verb: str, *arguments: str) -> Said:
        said = self.does(verb, *arguments)
        assert said.code == 0, f"{verb}: exit {said.code}\n{said.err[-3000:]}"
        return said

    def replicates(self) -> Said:
        return self.must("replicate", "--available-now")

    def fails(self, code: int, error: str, verb: str = "replicate", *arguments: str) -> Said:
        said = self.does(verb, *(arguments or (("--available-now",) if verb == "replicate" else ())))
        assert (said.code, error in said.err) == (code, True), f"exit {said.code}: {said.err[-3000:]}"
        assert "rocketmq/test" in said.err
        return said
