"""Describe what a figure was measured on: processor, memory, versions, and the commit of this project."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from pipeline.spark.jars import java

_PACKAGES = {"Spark": "pyspark", "Delta": "delta-spark", "pyarrow": "pyarrow", "kafka-python": "kafka-python"}


def machine() -> dict[str, str | int | float]:
    """A description of the machine that JSON can hold. Raises ConfigurationError if there is no Java."""
    return {
        "processor": _processor(Path("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0)),
        "memory GB": round(psutil.virtual_memory().total / 1e9, 1),
        "Python": platform.python_version(),
        "Java": _java_version(),
        **{name: version(package) for name, package in _PACKAGES.items()},
    }


def commit() -> str | None:
    """The short hash of this tree, with a plus if it has uncommitted changes; None outside a repository."""
    head = _git("rev-parse", "--short", "HEAD")
    if head is None:
        return None
    return f"{head}+" if _git("status", "--porcelain", "--untracked-files=no") else head


def _processor(cpuinfo: Path) -> str:
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _java_version() -> str:
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    lines = (line for line in said.splitlines() if not line.startswith("Picked up"))
    return next(lines, "unknown").replace('"', "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
