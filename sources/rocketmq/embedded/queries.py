"""What the embedded master says about itself and its metadata: requests 21, 26, 28, 43, 45, 60, 61, 201, 402, 906, 907.

The shapes are those of a 5.x broker; a 4.9.x slave ignores the keys it does not know. This master has no consumers and
no timers of its own, but its store may come from a broker that had. So consumer offsets, delay offsets, subscription
groups, request modes and timer metrics are served from the files of the store's `config/` directory, as they are,
unquoted integer keys and all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sources.access.address import Address
from sources.rocketmq.embedded.ha_service import HAService, Slave
from sources.rocketmq.embedded.remoting_service import Handler
from sources.rocketmq.embedded.store import CommitLogStore
from sources.rocketmq.embedded.topics import TopicTable
from sources.rocketmq.format.layout import Host
from sources.rocketmq.metadata import CHECKPOINT
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode

VERSION: Final = "LOGTWIN_EMBEDDED"
_EMPTY_VERSION: Final = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_METADATA_FILES: Final = {
    RequestCode.GET_ALL_CONSUMER_OFFSET: ("consumerOffset.json", {"dataVersion": _EMPTY_VERSION, "offsetTable": {}}),
    RequestCode.GET_ALL_DELAY_OFFSET: ("delayOffset.json", {"offsetTable": {}}),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        "subscriptionGroup.json",
        {"dataVersion": _EMPTY_VERSION, "forbiddenTable": {}, "subscriptionGroupTable": {}},
    ),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: ("messageRequestMode.json", {"messageRequestModeMap": {}}),
    RequestCode.GET_TIMER_METRICS: ("timermetrics", {"dataVersion": _EMPTY_VERSION, "timingCount": {}}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Answers the queries about one master."""

    store: CommitLogStore
    ha: HAService
    topics: TopicTable
    config_directory: Path
    config: Mapping[str, str]
    in_sync_gap_bytes: int  # a slave that lacks this much or more is not in sync
    address: Address
    ha_address: Address
    started_ms: int

    def table(self) -> dict[int, Handler]:
        """Return the handler of each request code."""
        queries: dict[int, Handler] = {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._broker_config,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topic_config,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._ha_info,
            RequestCode.GET_TIMER_CHECK_POINT: self._timer_checkpoint,
        }
        return queries | dict.fromkeys(_METADATA_FILES, self._metadata)

    def _runtime_info(self, request: Command, _sender: Host) -> Command:
        store, now_ms = self.store, time.time_ns() // 1_000_000
        table = {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION,
            "bootTimestamp": str(self.started_ms),
            "runtime": _runtime((now_ms - self.started_ms) // 1000),
            "commitLogMinOffset": str(-1 if store.is_empty else store.min_offset),  # as a real broker does
            "commitLogMaxOffset": str(store.max_offset),
            "earliestMessageTimeStamp": str(store.first_timestamp_ms or -1),
            "putMessageTimesTotal": str(store.appended_messages),
            "putMessageSizeTotal": str(store.appended_bytes),
            "putMessageAverageSize": str(store.appended_bytes / max(store.appended_messages, 1)),
            "remainHowManyDataToFlush": f"{store.max_offset - store.flushed_offset} B",
            "dispatchBehindBytes": "0",
        }
        return _json(request, {"table": table})

    def _broker_config(self, request: Command, _sender: Host) -> Command:
        text = "".join(f"{name}={value}\n" for name, value in self.config.items())
        return request.response(ResponseCode.SUCCESS, body=text.encode())

    def _topic_config(self, request: Command, _sender: Host) -> Command:
        mappings = {
            "mappingDataVersion": _EMPTY_VERSION,
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        return _json(request, self.topics.to_json() | mappings)

    def _metadata(self, request: Command, _sender: Host) -> Command:
        name, empty = _METADATA_FILES[RequestCode(request.code)]
        path = self.config_directory / name
        if path.exists():
            return request.response(ResponseCode.SUCCESS, body=path.read_bytes())
        return _json(request, empty)

    def _ha_status(self, request: Command, _sender: Host) -> Command:
        end = self.store.max_offset
        slaves = [self._slave_status(slave, end) for slave in self.ha.slaves]
        status = {
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "maxOffset": 0,
                "transferredByteInSecond": 0,
            },
            "haConnectionInfo": slaves,
            "inSyncSlaveNums": sum(slave["inSync"] for slave in slaves),
            "master": True,
            "masterCommitLogMaxOffset": end,
        }
        return _json(request, status)

    def _ha_info(self, request: Command, _sender: Host) -> Command:
        fields = {
            "masterAddress": str(self.address),
            "masterHaAddress": str(self.ha_address),
            "masterFlushOffset": str(self.store.flushed_offset),
        }
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)

    def _slave_status(self, slave: Slave, log_end: int) -> dict[str, Any]:
        behind = log_end - slave.acknowledged
        return {
            "addr": slave.address,
            "diff": behind,
            "inSync": behind < self.in_sync_gap_bytes,
            "slaveAckOffset": slave.acknowledged,
            "transferFromWhere": -1 if slave.next_transfer is None else slave.next_transfer,
            "transferredByteInSecond": slave.transferred_bytes_per_s,
        }

    def _timer_checkpoint(self, request: Command, _sender: Host) -> Command:
        path = self.config_directory / "timercheck"
        body = path.read_bytes() if path.exists() else b""  # then zeros: nothing was read yet
        return request.response(ResponseCode.SUCCESS, body=body[: CHECKPOINT.size].ljust(CHECKPOINT.size, b"\0"))


def _runtime(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _json(request: Command, value: Any) -> Command:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return request.response(ResponseCode.SUCCESS, body=body)
