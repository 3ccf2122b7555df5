"""What brokers say of themselves, and name servers of brokers, as values. Pure.

A broker's runtime info (request 28) and configuration (26):

=================================  ====  ==============================================================================
key                                from  meaning
=================================  ====  ==============================================================================
``commitLogMinOffset``             28    first byte of its oldest file; −1 if it has none
``commitLogMaxOffset``             28    end of its newest record
``commitLogDiskRatio``             28    usage of the log's disk, 0 to 1, rounded up to a percent; −1: no such path
``commitLogDirCapacity``           28    ``Total : 250.9 GiB, Free : 128.0 GiB.``: the disk of `storePathRootDir`
``brokerRole``                     26    ASYNC_MASTER, SYNC_MASTER or SLAVE
``brokerIP2``, ``haListenPort``    26    where it listens for slaves
``mappedFileSizeCommitLog``        26    bytes of a segment file
``fileReservedTime``               26    hours after which a file is deleted, counted from when it was last written
``diskSpaceCleanForciblyRatio``    26    5.x, percent: on a fuller disk files are deleted at any age; 85 in 4.x
``cleanFileForciblyEnable``        26    whether that is done at all
``inSyncReplicas``                 26    5.x: acknowledgements that a message needs, the master's own included
``enableDLegerCommitLog``          26    records are wrapped in DLedger entries, and nothing is served at the HA port
``enableControllerMode``           26    5.x: a controller elects the master; the HA port speaks another dialect
``haHousekeepingInterval``         26    ms after which a silent connection is closed
=================================  ====  ==============================================================================

`diskMaxUsedSpaceRatio` is no limit here: on a disk fuller than that, and before the hour `deleteWhen`, only expired
files are deleted. That hour is in a time zone that the broker does not tell, so it is ignored, and a file counts as
lost as soon as it expires. From 3 `inSyncReplicas` on the broker counts *connections*: the session and a task take
turns then (`sources.rocketmq.session.turns`); tasks that read side by side cannot. (`RunningStats`,
`AdminBrokerProcessor.prepareRuntimeInfo`, `MessageStoreConfig`, `CleanCommitLogService`.)

A name server's answer to request 106, GET_BROKER_CLUSTER_INFO, is JSON (`ClusterInfo` of org.apache.rocketmq):

================  ==================================================================================================
clusterAddrTable  cluster name -> list of its broker names
brokerAddrTable   broker name -> object with brokerName, cluster, and brokerAddrs: broker id -> host:port; id 0 is the
                  master, and is missing while a group has none
================  ==================================================================================================

A broker is in both tables from its first registration on, until the last of its group has unregistered, or has been
silent for two minutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from sources.access.address import MAX_PORT, Address
from sources.bounds import MasterRetention
from sources.errors import ConfigurationError, ProtocolViolation
from sources.master import NOTHING_KNOWN, Known
from sources.offsets import Offset, OffsetRange
from sources.rocketmq.format.layout import Files
from sources.rocketmq.wire.auto_switch import AutoSwitch
from sources.rocketmq.wire.ha import Dialect, Plain
from sources.rocketmq.wire.remoting import Command, RequestCode, ResponseCode, accepted, loads

MOST_IN_SYNC_REPLICAS: Final = 2
"""With more than this, a broker waits for several slaves and would take two connections of one for two slaves."""

_DEFAULT_FORCIBLY_PERCENT: Final = 85
_FORCIBLY_PERCENT_LIMITS: Final = (30, 85)  # the broker limits the configured value to these
_DEFAULT_HOUSEKEEPING_MS: Final = 20_000
_MOST_MS: Final = 2**31 - 1  # Java's int
_HOUSEKEEPING_MARGIN_S: Final = 2.0  # a broker checks its clocks every second, and later when busy
_TOTAL: Final = re.compile(r"Total : ([0-9]{1,18}(?:[.,][0-9]{1,18})?) (?:([KMGTPE])i)?B")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_UNIT_BYTES: Final = {unit: 1024**power for power, unit in enumerate(("", *"KMGTPE"))}

Words = Mapping[str, str]


def words_of(properties: bytes) -> Words:
    """Return the properties in the text of an answer to request 26."""
    pairs = (line.partition("=") for line in properties.decode("utf-8", "replace").splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def log_bounds(info: Words) -> OffsetRange:
    """Return the range from the oldest byte to the newest record's end; [0, 0) if empty. Raises ProtocolViolation."""
    start = max(_offset(info, "commitLogMinOffset"), 0)
    end = _offset(info, "commitLogMaxOffset")
    if end < start:
        raise ProtocolViolation(
            "the broker's commit log ends before it starts",
            expected=f"commitLogMaxOffset at or above {start}",
            found=end,
        )
    return OffsetRange(Offset(start), Offset(end))


def ha_address(config: Words) -> Address:
    """Return the address at which the broker says it listens for slaves. Raises ProtocolViolation."""
    host, port = config.get("brokerIP2", ""), _number(config, "haListenPort")
    if not host or not port or not 0 < port <= MAX_PORT:
        raise ProtocolViolation(
            "the broker's configuration lacks its HA address",
            expected="brokerIP2 and haListenPort",
            found=f"{host or 'no host'}, {port or 'no port'}",
        )
    return Address(host, port)


def is_elected(config: Words) -> bool:
    """Whether a controller elects the broker's master. Then we are an asynchronous learner, which nobody waits for."""
    return config.get("enableControllerMode", "").lower() == "true"


def dialect_of(config: Words, known: Known = NOTHING_KNOWN, *, beyond_confirm: bool = False) -> Dialect:
    """Return the dialect of the broker's HA port; for the arguments see `AutoSwitch`."""
    return AutoSwitch(known, beyond_confirm=beyond_confirm) if is_elected(config) else Plain()


def may_let_wait(config: Words) -> bool:
    """Whether producers may wait for the slaves of this broker, by its configuration; if so, a report is a promise.

    The role is looked at with each message (`CommitLog.submitReplicaRequest` of 4.x, `needHandleHA` of 5.x). It may
    change while a broker runs, but then nobody waits for bytes that it already has. So if a broker is asked first for
    its end and then for its role, nobody waits for a report up to that end.

    In controller mode it may count a learner's word beside those of its replicas in sync. But what we report lies below
    the confirm offset, so all of these have it.
    """
    return config.get("brokerRole") not in ("ASYNC_MASTER", "SLAVE") and not is_elected(config)


def lets_wait(config: Words) -> bool:
    """Whether producers do wait for a slave.

    They do on a 4.x SYNC_MASTER, and on a 5.x one with inSyncReplicas of 2 or more, which counts the master itself.
    Only a broker that does not know that key is of 4.x.
    """
    return may_let_wait(config) and ("inSyncReplicas" not in config or (_number(config, "inSyncReplicas") or 1) > 1)


def takes_turns(config: Words) -> bool:
    """Whether two connections of one replica could pass for two replicas: on a 5.x broker that needs several.

    A broker that makes nobody wait now may change its role; but nobody sends a slave anything to wait for.
    """
    if is_elected(config):
        return False
    return config.get("brokerRole") != "SLAVE" and (_number(config, "inSyncReplicas") or 1) > MOST_IN_SYNC_REPLICAS


def counted_for_s(config: Words) -> float | None:
    """Implement `MasterLog.counted_for_s`: for how long a silent connection is counted, if connections are counted."""
    if not takes_turns(config):
        return None
    interval_ms = min(_number(config, "haHousekeepingInterval") or _DEFAULT_HOUSEKEEPING_MS, _MOST_MS)
    return interval_ms / 1000 + _HOUSEKEEPING_MARGIN_S


def files(config: Words) -> Files | None:
    """Return how its commit log is cut into files, all of one size; None if it does not tell."""
    size = _number(config, "mappedFileSizeCommitLog")
    return Files(0, size) if size else None


def retention(info: Words, config: Words) -> MasterRetention | None:
    """Return how the broker deletes; None if it does not tell the size of its files."""
    file_size_bytes = _number(config, "mappedFileSizeCommitLog")
    if not file_size_bytes:
        return None
    hours = _number(config, "fileReservedTime")
    return MasterRetention(
        file_size_bytes=file_size_bytes,
        keeps_s=None if hours is None else hours * 3600.0,
        room_bytes=_room_bytes(info, config),
    )


def _room_bytes(info: Words, config: Words) -> int | None:
    """Return how many bytes fit until the disk is so full that files are deleted at any age.

    The size of the disk is known only for the root directory, so it is unknown for a commit log elsewhere.
    """
    total_bytes, used = _total_bytes(info), _ratio(info)
    if (
        total_bytes is None
        or used is None
        or config.get("cleanFileForciblyEnable") == "false"
        or not _is_one_disk(config)
    ):
        return None
    lowest, highest = _FORCIBLY_PERCENT_LIMITS
    percent = _number(config, "diskSpaceCleanForciblyRatio") or _DEFAULT_FORCIBLY_PERCENT
    limit = min(max(percent, lowest), highest) / 100
    return max(int((limit - used) * total_bytes), 0)


def _is_one_disk(config: Words) -> bool:
    """Whether the commit log lies below the root directory, as far as paths tell."""
    root, log = config.get("storePathRootDir"), config.get("storePathCommitLog")
    return not log or (root is not None and PurePath(root) in PurePath(log).parents)


def _total_bytes(info: Words) -> int | None:
    match = _TOTAL.match(info.get("commitLogDirCapacity", ""))
    return None if match is None else int(float(match[1].replace(",", ".")) * _UNIT_BYTES[match[2] or ""])


def _ratio(info: Words) -> float | None:
    try:
        ratio = float(info["commitLogDiskRatio"])
    except (KeyError, ValueError):
        return None
    return ratio if 0 <= ratio <= 1 else None


def _number(config: Words, key: str) -> int | None:
    text = config.get(key, "")
    return int(text) if _NUMBER.fullmatch(text) else None


def _offset(info: Words, name: str) -> int:
    offset = _number(info, name)
    if offset is None:
        raise ProtocolViolation(
            "the broker's runtime info lacks an offset",
            expected=f"a number {name}",
            found=info.get(name, "none"),
            hint="Check that the address is that of a broker, not of a name server or proxy.",
        )
    return offset


def check_broker(config: Mapping[str, str], *, parallel_reads: bool) -> None:
    """Raise ConfigurationError, without a log, for a broker that logtwin cannot honestly replicate."""
    if config.get("enableDLegerCommitLog", "false").lower() == "true":
        raise ConfigurationError(
            "the broker runs in DLedger mode, whose log is another one and which serves no slaves",
            expected="enableDLegerCommitLog=false",
            found="enableDLegerCommitLog=true",
            hint="Replicate from a plain master or slave, or from a broker in controller mode, which took DLedger's "
            "place in RocketMQ 5.",
        )
    if parallel_reads and takes_turns(config):
        raise ConfigurationError(
            "the broker needs several replicas' word, and would count each of this one's reading connections as one",
            expected=f"parallel_reads = false, or inSyncReplicas of {MOST_IN_SYNC_REPLICAS} or less",
            found=f"parallel_reads = true and inSyncReplicas={config.get('inSyncReplicas')}",
            hint="Leave parallel_reads out: connections then take turns. Or replicate from a slave of this broker: its "
            "HA port serves the same log, and our word stays there.",
        )


CLUSTER_INFO: Final = Command(RequestCode.GET_BROKER_CLUSTER_INFO)


def check_kind(asked: Address, answer: Command, kind: str) -> None:
    """Raise ConfigurationError if what answers at `asked` does not know the question of a `kind`; brokers do not."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise ConfigurationError(
            f"what answers at {asked} is no {kind}, but perhaps a broker",
            expected=f"the address of a {kind}, which knows where masters are",
            found=answer.remark or "a refusal of the question",
            hint="A broker's own addresses are master and remoting, of the HA port and of the normal one.",
        )


def groups_in(answer: Command, name_server: Address) -> Mapping[str, Any]:
    """Return the brokerAddrTable. Raises ConfigurationError, MasterRefused, ProtocolViolation."""
    return _table(answer, name_server, "brokerAddrTable")


def clusters_in(answer: Command, name_server: Address) -> Mapping[str, tuple[str, ...]]:
    """Return the broker names of each cluster. Raises as `groups_in`."""
    table = _table(answer, name_server, "clusterAddrTable")
    for name, brokers in table.items():
        if not isinstance(brokers, list):
            raise _violation(name_server, f"a list of the brokers of {name}", brokers)
    return {name: tuple(map(str, brokers)) for name, brokers in table.items()}


def _table(answer: Command, name_server: Address, key: str) -> Mapping[str, Any]:
    check_kind(name_server, answer, "name server")
    told = loads(accepted(CLUSTER_INFO.code, answer, f"the name server at {name_server}").body)
    table = told.get(key) if isinstance(told, dict) else None
    if not isinstance(table, dict):
        raise _violation(name_server, f'a JSON object "{key}"', told)
    return table


def _violation(name_server: Address, expected: str, found: object) -> ProtocolViolation:
    return ProtocolViolation(
        f"the cluster info of the name server at {name_server} is none",
        expected=expected,
        found=found,
        hint="Check that the address is that of a name server.",
    )
