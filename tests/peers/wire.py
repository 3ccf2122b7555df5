"""RocketMQ's remoting by hand: a second opinion on the project's own client, for tests with real brokers."""

import json
import socket
from typing import Self

from sources.offsets import Offset, OffsetRange
from tests.sources.rocketmq.embedded.conversation import Conversation, send_fields

PULL, RUNTIME_INFO, VIEW_MESSAGE, SEND = 11, 28, 33, 310
SUBSCRIPTION_INCLUDED = "4"


class Refused(Exception):
    """The broker answered with a code other than 0: (code, remark)."""


class Connection(Conversation):
    """A remoting connection, written from the specification (section 6.1) and nothing else."""

    def __init__(self, port: int) -> None:
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        super().__init__(connection, connection.makefile("rb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()
        self.connection.close()

    def call(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> tuple[dict[str, str], bytes]:
        answer, found = self.ask(code, fields, body)
        if answer["code"]:
            raise Refused(answer["code"], answer.get("remark"))
        return answer.get("extFields", {}), found

    def send(self, body: bytes, properties: str = "KEYS\x01k\x02") -> int:
        """Sends a message; the physical offset at which the broker has stored it (the end of its message id)."""
        return int(self.call(SEND, send_fields("orders", 0, properties), body)[0]["msgId"][-16:], 16)

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
