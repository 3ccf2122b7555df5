"""What a master knows besides its log: topics, groups, consumer offsets. The contract, and the columns of an item.

A `MetadataKind` is a set of items, each found by its key. Sources fetch whole sets and sinks keep every version of
every item; neither knows the other. An item's version ends when one of its compared columns changes. The `noted`
columns (clocks that a master moves on while nothing happens) stay as they were when the version was first seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sources.errors import LogtwinError
from sources.records import TIMESTAMP


@dataclass(frozen=True, slots=True)
class MetadataKind:
    """A set of items of one shape. `name` is also the table's name; a kind without `key` has one item at most.

    `lasting` is a column and a value that some item always has. If a fetch has no such item, the master has left it out
    of its answer, and the recorded one stays.
    """

    name: str
    comment: str
    key: tuple[pa.Field, ...]
    compared: tuple[pa.Field, ...]
    noted: tuple[pa.Field, ...] = ()
    lasting: tuple[str, str | int] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Every column of an item, in table order."""
        return pa.schema([*self.key, *self.compared, *self.noted])


@dataclass(frozen=True, slots=True)
class FetchedMetadata:
    """The answer to a request for a kind.

    `items` are all items there are now, in the kind's schema. A value that this master's version does not have is null,
    and maps have sorted keys. It is None if the master has no such kind, or an error if it could not be fetched.

    `version` is the master's own number for this state of all items, which grows with each change; 0 if it has none.
    """

    kind: MetadataKind
    items: pa.Table | LogtwinError | None
    version: int = 0


def _field(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, kind, metadata={"comment": comment})


_TOPIC: Final = _field("topic", pa.string(), "topic; retry, dead-letter and system topics are there too")
_GROUP: Final = _field("consumer_group", pa.string(), "consumer group")
_ATTRIBUTES: Final = _field(
    "attributes", pa.map_(pa.string(), pa.string()), "attributes such as message.type or cleanup.policy; null of 4.x"
)
_STORED: Final = _field("stored", pa.string(), "the whole item as the master sent it, JSON with sorted keys")

TOPICS: Final = MetadataKind(
    "topics",
    "every version of every topic's configuration",
    key=(_TOPIC,),
    compared=(
        _field("read_queue_nums", pa.int32(), "queues that consumers read"),
        _field("write_queue_nums", pa.int32(), "queues that producers write"),
        _field("perm", pa.int32(), "bits: 4 read, 2 write, 1 inherit, 8 priority"),
        _field("topic_filter_type", pa.string(), "SINGLE_TAG or MULTI_TAG"),
        _field("topic_sys_flag", pa.int32(), "bits: 1 unit, 2 unit subscription"),
        _field("ordered", pa.bool_(), "whether the topic is configured as ordered (order)"),
        _ATTRIBUTES,
        _field("queue_mapping", pa.string(), "of a static topic (5.x): where its logical queues are, JSON; else null"),
        _STORED,
    ),
)
SUBSCRIPTION_GROUPS: Final = MetadataKind(
    "subscription_groups",
    "every version of every consumer group's configuration",
    key=(_GROUP,),
    compared=(
        _field("consume_enable", pa.bool_(), "whether the group may consume"),
        _field("consume_from_min_enable", pa.bool_(), "whether it may start at a queue's minimum"),
        _field("consume_broadcast_enable", pa.bool_(), "whether it may consume by broadcast"),
        _field("consume_message_orderly", pa.bool_(), "whether a proxy consumes in order for it; null of 4.x"),
        _field("retry_queue_nums", pa.int32(), "queues of its retry topic"),
        _field("retry_max_times", pa.int32(), "redeliveries before a message goes to the dead-letter topic"),
        _field("group_retry_policy", pa.string(), "how long between redeliveries, JSON; null of 4.x"),
        _field("consume_timeout_minute", pa.int32(), "minutes that consuming may take; null of 4.x"),
        _field("broker_id", pa.int64(), "broker it consumes from; 0 the master"),
        _field("which_broker_when_consume_slowly", pa.int64(), "broker it is sent to when it lags"),
        _field("notify_consumer_ids_changed_enable", pa.bool_(), "whether members hear of changes in the group"),
        _field("group_sys_flag", pa.int32(), "bits, as of topics; null of 4.x"),
        _ATTRIBUTES,
        _field("forbidden", pa.map_(pa.string(), pa.int32()), "topic to bits of what the group must not do there"),
        _STORED,
    ),
)
CONSUMER_OFFSETS: Final = MetadataKind(
    "consumer_offsets",
    "how far each consumer group is in each queue, every version seen",
    key=(_TOPIC, _GROUP, _field("queue_id", pa.int32(), "queue of the topic")),
    compared=(
        _field("next_queue_offset", pa.int64(), "queue_offset of the message that the group consumes next"),
        _field(
            "next_pull_queue_offset", pa.int64(), "queue_offset that it pulls next; null where the broker does not tell"
        ),
    ),
)
DELAY_OFFSETS: Final = MetadataKind(
    "delay_offsets",
    "how far the delivery of delayed messages is, per delay level, every version seen",
    key=(_field("delay_level", pa.int32(), "delay level; queue delay_level - 1 of SCHEDULE_TOPIC_XXXX"),),
    compared=(_field("next_queue_offset", pa.int64(), "queue_offset of the message that is delivered next"),),
)
MESSAGE_REQUEST_MODES: Final = MetadataKind(
    "message_request_modes",
    "how groups ask for messages of a topic where that was set (5.x), every version",
    key=(_TOPIC, _GROUP),
    compared=(
        _field("mode", pa.string(), "PULL or POP"),
        _field("pop_share_queue_num", pa.int32(), "queues that consumers share by POP"),
        _STORED,
    ),
)
TIMER_METRICS: Final = MetadataKind(
    "timer_metrics",
    "messages that wait in the timer, per topic (5.x), every version seen",
    key=(_TOPIC,),
    compared=(_field("waiting", pa.int64(), "messages that wait to be delivered"),),
    # This moves with every message that comes and goes.
    noted=(_field("counted_at", TIMESTAMP, "when the master counted, as this version was first seen; its clock"),),
)
TIMER_CHECKPOINT: Final = MetadataKind(
    "timer_checkpoint",
    "how far the timer is (5.x), every version seen; one row is current",
    key=(),
    compared=(
        _field("last_timer_log_flush_position", pa.int64(), "bytes of the timer log that are on disk"),
        _field("last_timer_queue_offset", pa.int64(), "queue_offset of the timer's topic that is taken over next"),
        _field("master_timer_queue_offset", pa.int64(), "the same of its master, as a slave has heard of it"),
    ),
    # The wheel turns every second, with or without messages.
    noted=(_field("last_read_at", TIMESTAMP, "where the wheel stood as this version was first seen; master's clock"),),
)
DISTER_SERVICES: Final = MetadataKind(
    "dister_services",
    "every version of every node of dister's service registry",
    key=(_field("service_key", pa.string(), "key in the registry: index, name and service.dister, joined by dots"),),
    compared=(
        _field("name", pa.string(), "service; null where the key has another form"),
        _field("index", pa.int64(), "index of the node among those of its service; null as name"),
        _field("type", pa.string(), "how its health is checked: mysql, pgsql, web, tcp, custom"),
        _field("node", pa.string(), "the node's own values, JSON with sorted keys"),
        _field("status", pa.int32(), "health as the leader found it: 1 alive, 0 dead; null before the first check"),
    ),
    # All items share the registry's, which moves with each change of any of them.
    noted=(_field("service_log_id", pa.int64(), "LastServiceLogId of the registry as this version was first seen"),),
)
DISTER_PEERS: Final = MetadataKind(
    "dister_peers",
    "every version of every node of a dister group, as its leader tells",
    key=(_field("id", pa.string(), "node id; of a node that was added and has not spoken yet, its ip"),),
    compared=(
        _field("name", pa.string(), "name of the node"),
        _field("group_name", pa.string(), "group that it belongs to (group); empty until it has spoken"),
        _field("ip", pa.string(), "its address"),
        _field("status", pa.int32(), "1 alive, 0 dead"),
        _field("role", pa.int32(), "0 server, 1 client, 2 monitor"),
        _field("raft", pa.int32(), "0 follower, 1 candidate, 2 leader"),
        _field("version", pa.string(), "version of dister that it runs"),
    ),
    # These move with every entry.
    noted=(
        _field("last_log_id", pa.int64(), "logid: its last entry id as this version was first seen"),
        _field("last_service_log_id", pa.int64(), "serviceid: its LastServiceLogId as this version was first seen"),
    ),
    lasting=("raft", 2),  # a leader's own list of peers lacks the leader
)
KAFKA_PARTITIONS: Final = MetadataKind(
    "kafka_partitions",
    "leader, bounds and committed offset of each partition of a Kafka topic, every version seen",
    key=(_field("partition", pa.int32(), "partition of the topic, which log_id names: kafka/<cluster>/<topic>"),),
    # Ends that move begin versions, so the history of the ends tells how far behind anybody was.
    compared=(
        _field("topic_id", pa.string(), "id of the topic; one that was deleted and created again has another"),
        _field("leader", pa.int32(), "node id of the broker that leads it; null while none does"),
        _field("leader_epoch", pa.int32(), "epoch of that leader; null without one, as the next three"),
        _field("log_start", pa.int64(), "offset below which all was deleted (log start offset)"),
        _field("last_stable", pa.int64(), "offset below which no transaction is open (last stable offset)"),
        _field("log_end", pa.int64(), "offset below which all can be read, whatever its transaction (high watermark)"),
        _field("consumer_group", pa.string(), "group that the replica acknowledges with; null where it does not"),
        _field("group_offset", pa.int64(), "offset that this group has committed; null without one"),
    ),
)
KINDS: Final = (
    TOPICS,
    SUBSCRIPTION_GROUPS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    MESSAGE_REQUEST_MODES,
    TIMER_METRICS,
    TIMER_CHECKPOINT,
    DISTER_SERVICES,
    DISTER_PEERS,
    KAFKA_PARTITIONS,
)
"""All kinds of all masters; each master has some of them."""
