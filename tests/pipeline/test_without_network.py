"""First starts of a host without a network: in a namespace that has nothing but a loopback, with an empty cache, and
the jars in a folder or at a mirror on the loopback. There is a log by path, and an S3 server.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.config.jars import FROM_ENVIRONMENT
from pipeline.demo.s3_server import running_server
from pipeline.spark.jar_folder import write_jars
from pipeline.spark.jars import JarSet, Module, delta_set, storage_sets
from tests.pipeline.faulty_log import FaultyLog

PROJECT = Path(__file__).parents[2]
POM = "<project><modelVersion>4.0.0</modelVersion>{at}<dependencies>{needed}</dependencies></project>"
IVY = """<ivysettings><settings defaultResolver="mirror"/><caches defaultCacheDir="{cache}"/><resolvers>
<ibiblio name="mirror" m2compatible="true" root="{mirror}/"/></resolvers></ivysettings>
"""
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def sets() -> list[JarSet]:
    return [delta_set(), *storage_sets("s3")]


@pytest.mark.parametrize("way", ["folder", "mirror"])
def test_a_first_start_without_a_network(way: str, sets: list[JarSet], tmp_path: Path) -> None:
    """Out of a folder also where, but for the temporary folder and the cache, nothing can be written."""
    log = FaultyLog(tmp_path / "store")
    log.append(random.Random(3), 100)
    for one in sets:
        found = one.downloaded(FROM_ENVIRONMENT)
        if way == "folder":
            write_jars(tmp_path / "jars", one.name, found)
        else:
            as_maven(tmp_path / "maven", one, found)
    (tmp_path / "local.toml").write_text(job(tmp_path, "lake"))
    read_only = f"mount --bind {tmp_path} {tmp_path} && mount --bind /tmp /tmp && mount -o remount,bind,ro / && "
    inside = f"{read_only if way == 'folder' else ''}cd {tmp_path} && exec {sys.executable} -m {__name__} {way}"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", inside],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=800,
    )  # fmt: skip
    if "unshare failed" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("done at offset") == 2
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["100"] * (2 if way == "folder" else 1)
    if way == "folder":
        assert (tmp_path / "report.html").stat().st_size > 1000
        assert not (tmp_path / "cache" / "jars").exists()


def job(folder: Path, warehouse: str, **storage: str) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in storage.items()]
    log = f'[[logs]]\nid = "rocketmq/test"\npath = "{folder}/store/commitlog"\n'
    return "\n".join([f'warehouse = "{warehouse}"', "[storage]", *lines, log])


def environment(folder: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LOGTWIN_"))}
    return ours | {"PYTHONPATH": str(PROJECT), "LOGTWIN_CACHE": str(folder / "cache"), "S3_USER": "u", "S3_KEY": "k"}


def as_maven(root: Path, one: JarSet, jars: list[Path]) -> None:
    """The jars of a set as a repository has them. Its first module needs all others."""
    known = {f"{module.name}-{module.revision}.jar": module for module in one.modules}
    modules = {
        jar: known.get(jar.name) or Module("org.others", *re.split(r"-(?=\d)", jar.stem, maxsplit=1)) for jar in jars
    }
    for jar, module in modules.items():
        folder = root.joinpath(*module.organisation.split("."), module.name, module.revision)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / jar.name).symlink_to(jar)
        needed = [other for other in modules.values() if module == one.modules[0] and other not in one.modules]
        text = POM.format(
            at=as_pom(module), needed="".join(f"<dependency>{as_pom(other)}</dependency>" for other in needed)
        )
        (folder / jar.name).with_suffix(".pom").write_text(text)


def as_pom(module: Module) -> str:
    return (
        f"<groupId>{module.organisation}</groupId><artifactId>{module.name}</artifactId>"
        f"<version>{module.revision}</version>"
    )


# in the namespace


def main(way: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    here = Path.cwd()
    with running_server() as server, jars_from(way, here) as given:
        logtwin(given, "replicate --available-now --config local.toml")
        if way == "folder":
            logtwin(given, "sql --config local.toml --format csv -e", "SELECT count(*) AS n FROM messages")
            logtwin(given, "maintain --config local.toml")
            logtwin(given, "report --config local.toml")
        keys = {"endpoint": server.endpoint, "access_key": "env:S3_USER", "secret_key": "env:S3_KEY"}
        (here / "s3.toml").write_text(job(here, f"s3://{server.bucket}/lake", **keys))
        logtwin(given, "replicate --available-now --config s3.toml")
        logtwin(given, "sql --config s3.toml --format csv -e", "SELECT count(*) AS n FROM messages")


@contextmanager
def jars_from(way: str, here: Path) -> Iterator[Mapping[str, str]]:
    """What the environment says of them."""
    if way == "folder":
        yield {"LOGTWIN_JARS": str(here / "jars")}
        return
    handler = partial(SimpleHTTPRequestHandler, directory=str(here / "maven"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as mirror:
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        settings = here / "ivy.xml"
        settings.write_text(IVY.format(cache=here / "ivy", mirror=f"http://127.0.0.1:{mirror.server_port}"))
        yield {"LOGTWIN_IVY_SETTINGS": str(settings)}
        mirror.shutdown()


def logtwin(given: Mapping[str, str], verb: str, *last: str) -> None:
    subprocess.run([sys.executable, "-m", "pipeline", *verb.split(), *last], env=os.environ | given, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
