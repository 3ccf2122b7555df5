"""A real RocketMQ client, in Java, that makes traffic of every kind; what it says it did."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.spark.jars import java, resolve
from pipeline.system.processes import ending_with_us
from tests.peers.rocketmq_process import NameServer

PROGRAM = Path(__file__).parent / "java" / "Traffic.java"
VERSION = "5.5.0"
END_WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class Sent:
    """A message and the answer to it: the numbers and the id are of where the broker put it first.

    A client is not told the message id of a half message; its queue offset is that of the half topic.
    """

    fate: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str | None
    unique_key: str
    keys: list[str]
    tags: str | None
    body: bytes


@dataclass
class Said:
    """`checks` counts how often the broker asked for each transaction, by its unique key."""

    sent: list[Sent] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)

    def of(self, topic: str, *fates: str) -> list[Sent]:
        """What was sent to a topic, of some fates or of all."""
        return [one for one in self.sent if one.topic == topic and (not fates or one.fate in fates)]

    def hear(self, line: str) -> None:
        """One line of the program's; other lines are the client library's."""
        what, *fields = line.rstrip("\n").split("\t")
        if what == "sent":
            fate, topic, queue_id, queue_offset, message_id, unique_key, keys, tags, body = fields
            place = (int(queue_id), int(queue_offset), message_id or None)
            self.sent.append(Sent(fate, topic, *place, unique_key, keys.split(), tags or None, bytes.fromhex(body)))
        elif what == "checked":
            self.checks[fields[0]] += 1


class JavaClient:
    """The program while it runs; see Traffic.java for its arguments."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def said(self) -> Said:
        """Waits for its end. Raises AssertionError with its output where that was not a good one."""
        code = self._process.wait(END_WITHIN_S)
        text = self._output.read_text(errors="replace")
        assert code == 0, text[-3000:]
        said = Said()
        for line in text.splitlines():
            said.hear(line)
        return said


@contextmanager
def java_client(names: NameServer, home: Path, *arguments: str) -> Iterator[JavaClient]:
    """Starts the program beside a broker that `names` knows; whatever happens, it has ended afterwards."""
    home.mkdir(parents=True, exist_ok=True)
    output = home / "traffic.out"
    options = [f"-Duser.home={home}", f"-Djava.io.tmpdir={home}", "-Dfile.encoding=UTF-8", "-Xmx256m"]
    options += ["-Drocketmq.client.rebalance.waitInterval=500", "-Drocketmq.client.rebalance.minInterval=500"]
    classpath = f"{resolve('org.apache.rocketmq', 'rocketmq-broker', VERSION)}/*"
    command = [java(), *options, "-cp", classpath, str(PROGRAM), names.address, *arguments]
    with output.open("wb") as out:
        process = subprocess.Popen(
            ending_with_us(command), cwd=home, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
        )
        with process:
            try:
                yield JavaClient(process, output)
            finally:
                process.kill()
