"""RocketMQ's remoting by hand: a second opinion on the project's own client, for tests with real brokers."""

import json
import socket
import struct
from typing import Self

from sources.offsets import Offset, OffsetRange

PULL, RUNTIME_INFO, VIEW_MESSAGE, SEND = 11, 28, 33, 310
SUBSCRIPTION_INCLUDED = "4"


class Refused(Exception):
    """The broker answered with a code other than 0: (code, remark)."""


class Connection:
    """A remoting connection, written from the specification (section 6.1) and nothing else."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.stream = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()
        self.socket.close()

    def call(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> tuple[dict[str, str], bytes]:
        head = {"code": code, "language": "PYTHON", "version": 0, "opaque": 1, "flag": 0, "extFields": fields or {}}
        header = json.dumps(head).encode()
        self.socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        length, header_length = struct.unpack(">ii", self.stream.read(8))
        answer = json.loads(self.stream.read(header_length))
        if answer["code"]:
            raise Refused(answer["code"], answer.get("remark"))
        return answer.get("extFields", {}), self.stream.read(length - 4 - header_length)

    def send(self, body: bytes, properties: str = "KEYS\x01k\x02") -> int:
        """Sends a message; the physical offset at which the broker has stored it (the end of its message id)."""
        fields = {"a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000"}
        fields |= {"h": "0", "i": properties, "j": "0", "k": "false", "m": "false", "n": "b1"}
        return int(self.call(SEND, fields, body)[0]["msgId"][-16:], 16)

    def log_bounds(self) -> OffsetRange:
        """[min, max) of the commit log as the broker says; [0, 0) of one that has no file yet."""
        table = json.loads(self.call(RUNTIME_INFO)[1])["table"]
        minimum, maximum = (int(table[f"commitLog{which}Offset"]) for which in ("Min", "Max"))
        return OffsetRange(Offset(max(minimum, 0)), Offset(maximum))  # -1 without a file

    def undispatched_bytes(self) -> int:
        """How much of the commit log is not in the consume queues yet."""
        return int(json.loads(self.call(RUNTIME_INFO)[1])["table"]["dispatchBehindBytes"])

    def pull(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, bytes]:
        """Up to 32 messages as any consumer gets them: the next queue offset, and the records as they are stored."""
        fields = {"consumerGroup": "readers", "topic": topic, "queueId": str(queue_id), "maxMsgNums": "32"}
        fields |= {"queueOffset": str(queue_offset), "sysFlag": SUBSCRIPTION_INCLUDED, "commitOffset": "0"}
        fields |= {"suspendTimeoutMillis": "0"}
        fields |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
        answer, records = self.call(PULL, fields)
        return int(answer["nextBeginOffset"]), records

    def view(self, offset: int) -> bytes:
        return self.call(VIEW_MESSAGE, {"offset": str(offset)})[1]
