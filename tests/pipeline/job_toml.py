"""Configurations as people write them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

SMALL = {"spark.master": "local[2]", "spark.driver.memory": "512m"}
"""Spark of a process of its own."""


def job_toml(folder: Path, *logs: Mapping[str, object], **more: object) -> Path:
    """``job.toml`` in `folder`: a warehouse beside it, `more` keys, and these logs, ``rocketmq/test`` unless named."""
    job = folder / "job.toml"
    tables = ["[[logs]]\n" + _keys({"id": "rocketmq/test", **one}) for one in logs]
    job.write_text("".join([_keys({"warehouse": folder / "lake", **more}), *tables]))
    return job


def _keys(values: Mapping[str, object]) -> str:
    return "".join(f"{name} = {_value(one)}\n" for name, one in values.items())


def _value(one: object) -> str:
    if isinstance(one, Mapping):
        return "{ " + ", ".join(f'"{name}" = {_value(each)}' for name, each in one.items()) + " }"
    if isinstance(one, Sequence) and not isinstance(one, str):
        return f"[{', '.join(map(_value, one))}]"
    return json.dumps(one if isinstance(one, bool | int | float) else str(one))
