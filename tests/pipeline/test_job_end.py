"""The end of a job, without Spark: whatever one part of it raises, every other part is ended, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.job import replicate
from pipeline.job.replicate import Job
from tests.pipeline.running import job_config

ended: list[str] = []
failing: set[str] = set()


class Part:
    error = None
    is_unlisted = False

    def __init__(self, name: str, options: Any = None) -> None:
        self.id, self.options = name, options

    def stop(self, *_: Any) -> None:
        ended.append(self.id)
        if self.id in failing:
            raise ConnectionRefusedError(self.id)


def log(_spark: object, _config: object, options: Any, **_: Any) -> Part:
    return Part(options.id, options)


EVERYTHING = ["tables", "catalog", "group", "rocketmq/a", "rocketmq/b"]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    ended.clear()
    failing.clear()
    for name, part in {"TypedTables": "tables", "Catalogued": "catalog", "LogGroup": "group"}.items():
        monkeypatch.setattr(replicate, name, lambda *_, part=part, **__: Part(part))
    monkeypatch.setattr(replicate, "Replication", log)
    monkeypatch.setattr(replicate, "prepare_for_many_files", lambda _: None)
    config = job_config(tmp_path / "lake", path=str(tmp_path))
    logs = tuple(config.logs[0].model_copy(update={"id": log_id}) for log_id in ("rocketmq/a", "rocketmq/b"))
    return Job(cast(SparkSession, None), config.model_copy(update={"logs": logs}), available_now=False)


@pytest.mark.parametrize("fails", [[], *([part] for part in EVERYTHING), EVERYTHING], ids=", ".join)
def test_every_part_is_ended_and_the_error_raised(job: Job, fails: list[str]) -> None:
    failing.update(fails)
    if fails:
        with pytest.raises(ConnectionRefusedError):
            job.close()
    else:
        job.close()
    assert sorted(ended) == sorted(EVERYTHING)
    assert ended[:3] == EVERYTHING[:3]
    assert job._pool._shutdown
