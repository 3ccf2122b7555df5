"""First starts of a host without a network: in a namespace that has nothing but a loopback, with an empty cache, and
the jars in a folder or at a mirror on the loopback. There is a log by path, and an S3 server.
"""

import fcntl
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.config.jars import FROM_ENVIRONMENT
from pipeline.demo.s3_server import running_server
from pipeline.spark.jars import JarSet, Module, delta_set, storage_sets, write_jars
from tests.pipeline.faulty_log import FaultyLog
from tests.resident import PROJECT

JOB = """warehouse = "{lake}"\n[storage]\n{storage}\n[[logs]]\nid = "rocketmq/test"\npath = "store/commitlog"\n"""
KEYS = """endpoint = "{endpoint}"\naccess_key = "env:USED"\nsecret_key = "env:USED"\n"""
POM = "<project><modelVersion>4.0.0</modelVersion>{of}<dependencies>{needed}</dependencies></project>"
OF = "<groupId>{0.organisation}</groupId><artifactId>{0.name}</artifactId><version>{0.revision}</version>"
IVY = """<ivysettings><settings defaultResolver="mirror"/><caches defaultCacheDir="{cache}"/><resolvers>
<ibiblio name="mirror" m2compatible="true" root="http://127.0.0.1:{port}/"/></resolvers></ivysettings>
"""
READ_ONLY = "mount --bind {0} {0} && mount --bind /tmp /tmp && mount -o remount,bind,ro / && "
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
COUNT = ("--format", "csv", "-e", "SELECT count(*) AS n FROM messages")
VERBS = {"folder": [("replicate", "--available-now"), ("sql", *COUNT), ("maintain",), ("report",)], "mirror": []}
"""For a warehouse on a disk. On S3 it is replicated and asked either way."""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", VERBS)
def test_a_first_start_without_a_network(way: str, tmp_path: Path) -> None:
    """Out of a folder also where nothing can be written but the temporary folder and the cache."""
    FaultyLog(tmp_path / "store").append(random.Random(3), 100)
    for one in (delta_set(), *storage_sets("s3")):
        found = one.downloaded(FROM_ENVIRONMENT)
        if way == "folder":
            write_jars(tmp_path / "jars", one.name, found)
        else:
            as_maven(tmp_path / "maven", one, found)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LOGTWIN_"))}
    ours |= {"PYTHONPATH": str(PROJECT), "LOGTWIN_CACHE": str(tmp_path / "cache"), "USED": "any"}
    inside = f"{READ_ONLY if way == 'folder' else ''}cd {{0}} && exec {sys.executable} -m {__name__} {way}"
    command = ["unshare", "--net", "--mount", "sh", "-c", inside.format(tmp_path)]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lakes = 2 if way == "folder" else 1
    assert done.stdout.count("done at offset") == lakes
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["100"] * lakes
    assert (tmp_path / "report.html").exists() == (not (tmp_path / "cache" / "jars").exists()) == (way == "folder")


def as_maven(root: Path, one: JarSet, jars: list[Path]) -> None:
    """The jars of a set as a repository has them. Its first module needs all others."""
    known = {f"{module.name}-{module.revision}": module for module in one.modules}
    for jar in jars:
        known.setdefault(jar.stem, Module("org.others", *re.split(r"-(?=\d)", jar.stem, maxsplit=1)))
    needed = "".join(
        f"<dependency>{OF.format(other)}</dependency>" for other in known.values() if other not in one.modules
    )
    for jar in jars:
        module = known[jar.stem]
        folder = root.joinpath(*module.organisation.split("."), module.name, module.revision)
        folder.mkdir(parents=True)
        (folder / jar.name).symlink_to(jar)
        text = POM.format(of=OF.format(module), needed=needed if module == one.modules[0] else "")
        (folder / jar.name).with_suffix(".pom").write_text(text)


def main(way: str) -> None:
    """In the namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    handler = partial(SimpleHTTPRequestHandler, directory="maven")
    with running_server() as server, ThreadingHTTPServer(("127.0.0.1", 0), handler) as mirror:
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        if way == "folder":
            given = {"LOGTWIN_JARS": "jars"}
        else:
            given = {"LOGTWIN_IVY_SETTINGS": "ivy.xml"}
            Path("ivy.xml").write_text(IVY.format(cache=Path("ivy").absolute(), port=mirror.server_port))
        for lake, storage in (("lake", ""), (f"s3://{server.bucket}/lake", KEYS.format(endpoint=server.endpoint))):
            Path("logtwin.toml").write_text(JOB.format(lake=lake, storage=storage))
            for words in VERBS[way] if not storage else VERBS["folder"][:2]:
                subprocess.run([sys.executable, "-m", "pipeline", *words], env=os.environ | given, check=True)
        mirror.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
