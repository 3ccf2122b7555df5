"""The topics of the embedded master: which exist, and how many queues each has.

A real broker keeps them in `config/topics.json`, in the shape of the answer to request 21. This one does the same, and
it reads a real broker's file.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sources.rocketmq.embedded.remoting_service import Refused
from sources.rocketmq.wire.remoting import ResponseCode

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The template that means "create it": no message may be sent to it."""
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
"""A topic that every broker has."""
RETRY_PREFIX: Final = "%RETRY%"
MAX_CREATED_QUEUES: Final = 8
MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1  # new topics are modelled on it

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic's configuration."""

    name: str
    queues: int
    perm: int = PERM_READ | PERM_WRITE
    rest: dict[str, Any] = field(default_factory=dict)  # fields of a real broker's file that have no meaning here

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> TopicConfig:
        return cls(config["topicName"], config["writeQueueNums"], config["perm"], config)

    @property
    def is_of_inner_batches(self) -> bool:
        """Whether one record may stand for many messages (5.x, BatchCQ)."""
        return bool(self.rest.get("attributes", {}).get("queue.type") == "BatchCQ")

    def to_json(self) -> dict[str, Any]:
        """Return the form of request 21 and topics.json (5.x; a 4.9.x slave ignores `attributes`)."""
        return {
            "attributes": {},
            "order": False,
            "readQueueNums": self.queues,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            **self.rest,
            "perm": self.perm,
            "topicName": self.name,
            "writeQueueNums": self.queues,
        }


class TopicTable:
    """The topics of one broker, kept in a file."""

    def __init__(self, path: Path) -> None:
        """Read `path` if it exists. Raises ValueError, KeyError on a file that is not a topic table."""
        self._path = path
        self._version = {"counter": 0, "stateVersion": 0, "timestamp": _now_ms()}
        self._topics: dict[str, TopicConfig] = {}
        if path.exists():
            kept = json.loads(path.read_text("utf-8"))
            self._version |= kept["dataVersion"]
            self._topics = {name: TopicConfig.from_json(topic) for name, topic in kept["topicConfigTable"].items()}

    def to_json(self) -> dict[str, Any]:
        """Return the answer to request 21."""
        table = {name: topic.to_json() for name, topic in self._topics.items()}
        return {"dataVersion": self._version, "topicConfigTable": table}

    def for_name_server(self) -> dict[str, Any]:
        """Return what a name server is told: the same and a broker's own topics, to which nothing is sent.

        A client that does not know a topic asks for the template's route. That is writable, so it may create the topic.
        """
        own = (
            TopicConfig(AUTO_CREATE_TOPIC, MAX_CREATED_QUEUES, PERM_INHERIT | PERM_READ | PERM_WRITE),
            TopicConfig(SELF_TEST_TOPIC, 1, PERM_INHERIT),
        )
        told = self.to_json()
        return told | {"topicConfigTable": {topic.name: topic.to_json() for topic in own} | told["topicConfigTable"]}

    def add_missing(self, queues: Iterable[tuple[str, int]]) -> None:
        """Add the topics that the log holds (topic, queue id), in case the file is outdated or missing."""
        counts: Counter[str] = Counter()
        for name, queue_id in queues:
            counts[name] = max(counts[name], queue_id + 1)
        missing = {name: TopicConfig(name, count) for name, count in counts.items() if name not in self._topics}
        if missing:
            self._topics |= missing
            self._save()

    def for_sending(self, name: str, wanted_queues: int) -> TopicConfig:
        """Return the topic to store into; unknown ones are created with `wanted_queues` queues. Raises Refused."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._create(name, wanted_queues)
        if not topic.perm & PERM_WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {name} is not writable")
        if topic.is_of_inner_batches:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"topic {name} counts its queues in batches: not done here")
        return topic

    def _create(self, name: str, wanted_queues: int) -> TopicConfig:
        _check_name(name)
        is_retry = name.startswith(RETRY_PREFIX)
        if wanted_queues < 1:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {name} does not exist")
        topic = TopicConfig(name, 1 if is_retry else min(wanted_queues, MAX_CREATED_QUEUES))
        self._topics[name] = topic
        self._save()
        return topic

    def _save(self) -> None:
        self._version["counter"] += 1
        self._version["timestamp"] = _now_ms()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".json.new")
        written.write_text(json.dumps(self.to_json(), ensure_ascii=False, indent=1), "utf-8")
        written.replace(self._path)


def _check_name(name: str) -> None:
    if name == AUTO_CREATE_TOPIC:
        raise Refused(ResponseCode.NO_PERMISSION, f"sending message to topic {name} is forbidden")
    if not _TOPIC.fullmatch(name):
        raise Refused(
            ResponseCode.INVALID_PARAMETER, f"topic {name!r} is empty or has characters other than %|a-zA-Z0-9_-"
        )
    limit = MAX_RETRY_TOPIC_LENGTH if name.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH
    if len(name) > limit:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"topic of {len(name)} characters, {limit} are allowed")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
