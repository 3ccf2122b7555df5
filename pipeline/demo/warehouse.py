"""The warehouse of a demo: a folder, or, for ``make run WAREHOUSE=s3``, an S3 server that ends with the demo."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.fs as pafs
from rich.console import Console

from pipeline.config.configuration import Config, load, parse
from pipeline.demo.s3_server import OWNER, S3Server, running_server
from pipeline.monitoring.display import size
from sinks.storage.place import open_folder, placed

S3: Final = "s3"
"""Stands for an S3 server that the demo starts, in place of a folder. A folder of that name is ``./s3``."""

_JOB: Final = """\
# The warehouse of the demo that runs, as any job says it. The server takes any keys.
warehouse = "s3://{server.bucket}/warehouse"

[storage]
endpoint = "{server.endpoint}"
access_key = "file:{folder}/access_key"
secret_key = "file:{folder}/secret_key"
"""


_LEFT: Final = "demo.toml"


def demo_job(settings: Config, **job: Any) -> Config:
    """The configuration of a job into the demo's warehouse. Raises ConfigurationError."""
    given = {"warehouse": settings.warehouse, "storage": settings.storage.as_said(), "spark": dict(settings.spark)}
    return parse({**given, **job}, where="demo").model_copy(update={"jars": settings.jars})


def leave_job(warehouse: str, **job: Sequence[Mapping[str, Any]]) -> None:
    """Write a configuration beside the tables in a folder, for use after the demo has ended.

    `job` has arrays of TOML tables by name; their values are strings, numbers, or lists of these.
    """
    left = _left(warehouse)
    if left is None:
        return
    lines = [
        "# The demo's warehouse, and where its master left the log.",
        f"warehouse = {json.dumps(str(left.parent.absolute()))}",
    ]
    for name, several in job.items():
        for one in several:
            lines += ["", f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in one.items())]
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("\n".join([*lines, ""]))


def _left(warehouse: str) -> Path | None:
    """The file that `leave_job` writes; None if the warehouse is no local folder."""
    folder = placed(warehouse).local
    return None if folder is None else folder / _LEFT


def _ways_in(job: Path) -> Iterator[str]:
    """Commands to look at the warehouse. For a topic without ``verify``, because its broker has ended."""
    here = Path(sys.executable).with_name("logtwin")
    program = "logtwin" if not here.exists() else os.path.relpath(here)
    for verb in ("sql", "report --serve", "status", "coverage", *(["verify"] if load(job).logs else [])):
        yield f"  {program} {verb} --config {os.path.relpath(job)}"


@contextmanager
def demo_warehouse(settings: Config, console: Console) -> Iterator[Config]:
    """`settings` with a warehouse that exists during the `with` block. At the end prints what remains of it.

    Raises ConfigurationError if the S3 server cannot be started.
    """
    if settings.warehouse != S3:
        yield settings
        console.print(f"\ntables: {settings.warehouse}; run it again and it goes on from there", soft_wrap=True)
        console.print("look at them (docs/sql.md has queries):", soft_wrap=True)
        left = _left(settings.warehouse)
        for line in () if left is None else _ways_in(left):
            console.print(line, soft_wrap=True, highlight=False)
        return
    with running_server() as server, _job_file(server, Path(settings.embedded_master.store) / "s3") as job:
        on_s3 = _loaded(settings, job)
        console.print(f"S3 server: {server.endpoint}, warehouse {on_s3.warehouse}", soft_wrap=True)
        console.print(f"ask it while this runs: logtwin sql --config {job}", soft_wrap=True)
        yield on_s3
        console.print(
            f"\ntables: {on_s3.warehouse}, {_contents(on_s3.warehouse)}; they end with the S3 server, now",
            soft_wrap=True,
        )
        console.print(
            "--keep goes on until Ctrl-C; docs/object-stores.md says how a job is given a store", soft_wrap=True
        )


@contextmanager
def _job_file(server: S3Server, folder: Path) -> Iterator[Path]:
    """A configuration file of the warehouse on `server` for other programs, removed at the end of the `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / "access_key").write_text(OWNER.access_key)
        (folder / "secret_key").write_text(OWNER.secret_key)
        job = folder / "demo.toml"
        job.write_text(_JOB.format(server=server, folder=folder.absolute()))
        yield job
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _loaded(settings: Config, job: Path) -> Config:
    given = load(job)
    return settings.model_copy(update={"warehouse": given.warehouse, "storage": given.storage})


def _contents(warehouse: str) -> str:
    filesystem, folder = open_folder(warehouse)
    found = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    sizes = [one.size for one in found if one.is_file]
    return f"{len(sizes):,} objects of {size(sum(sizes))}"
