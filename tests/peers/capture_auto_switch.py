"""Makes tests/fixtures/auto-switch: what a real master in controller mode says to a learner, byte for byte.

``python -m tests.peers.capture_auto_switch 5.5.0`` starts a group, fails over once, and writes what the master's own
requests and files say beside what came over HA.
"""

import json
import socket
import struct
import sys
import tempfile
from pathlib import Path

from tests.patience import wait_until
from tests.peers.elected import elected_group, epochs_of
from tests.peers.replicating import end_of
from tests.peers.sender import Sender

FIXTURES = Path(__file__).parents[1] / "fixtures" / "auto-switch"
MESSAGES = 3


def capture(version: str, home: Path) -> dict[str, object]:
    with elected_group(home, 2, version=version) as group:
        first, second = group.brokers
        Sender(first.port, "before").send(MESSAGES)
        wait_until(lambda: end_of(second) == end_of(first), "the slave")
        first.kill()
        group.await_another_master(first)
        after = Sender(second.port, "after")
        wait_until(lambda: after.send(1)[0].is_ok, "a master that takes messages")
        after.send(MESSAGES)
        end = end_of(second)
        with socket.create_connection(("127.0.0.1", second.ha_port), 10) as sock:
            sock.settimeout(20)
            sock.sendall(struct.pack(">ihhq", 1, 0, 1, -1))
            answer = _exactly(sock, 20)
            answer += _exactly(sock, struct.unpack(">i", answer[4:8])[0])
            sock.sendall(struct.pack(">iq", 2, 1))
            frames, at = b"", 1
            while at < end:
                head = _exactly(sock, 36)
                body = _exactly(sock, struct.unpack(">i", head[4:8])[0])
                frames, at = frames + head + body, at + len(body)
            frames += _exactly(sock, 36)  # a heartbeat
        return {
            "answer": answer.hex(),
            "frames": frames.hex(),
            "epochs": epochs_of(second),
            "maximum": end,
            "log": second.log_bytes(end).hex(),
        }


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size, socket.MSG_WAITALL) if size else b""
    assert len(data) == size
    return data


if __name__ == "__main__":
    version = sys.argv[1]
    FIXTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        found = capture(version, Path(home))
    (FIXTURES / f"{version}.json").write_text(json.dumps(found, indent=1) + "\n")
