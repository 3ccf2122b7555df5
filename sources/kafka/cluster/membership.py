"""The members of a consumer group, of the classic protocol or the newer one (KIP-848), and whether we may use it.

A broker describes groups of each protocol in a different answer; the list of groups says which protocol a group has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_message import ApiMessage

from sources.errors import ConfigurationError
from sources.kafka.cluster.client_errors import check_code
from sources.kafka.cluster.connection import Cluster

CONSUMER: Final = "consumer"
"""The protocol type of consumer groups. A group that only ever had offsets committed has none."""

_SCHEMAS: Final = "sources.kafka.schemas"
_WITH_STATES: Final = 4  # the first version of ListGroups that tells them
_EMPTY: Final = "Empty"
_GONE: Final = ("", "Dead")


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc] # without types
    """Asks for the members of groups of the newer protocol."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg,misc] # without types
    """The answer to ConsumerGroupDescribeRequest."""


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer: its id in the group, its client id, and where it connects from."""

    id: str
    client: str
    host: str

    def __str__(self) -> str:
        return f"{self.id} (client {self.client!r} at {self.host.lstrip('/')})"


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as its coordinator describes it."""

    state: str
    protocol_type: str
    members: tuple[Member, ...]


def described(cluster: Cluster, coordinator: int, name: str) -> DescribedGroup | None:
    """Return the group `name`; None if it does not exist.

    Raises MasterRefused (it is not the coordinator, or is loading), ConfigurationError (not allowed), and as
    `Cluster.call` does.
    """
    found = cluster.call(DescribeGroupsRequest(groups=[name]), coordinator).groups[0]
    if found.error_code == kafka_errors.GroupIdNotFoundError.errno:
        return _listed(cluster, coordinator, name)
    members = _members(found, name)
    if found.group_state in _GONE:  # how brokers before Kafka 4 describe a missing group
        return _listed(cluster, coordinator, name)
    return DescribedGroup(found.group_state, found.protocol_type, members)


def check_unused(name: str, group: DescribedGroup | None) -> None:
    """Raise ConfigurationError if others consume with `group`, or could; None means that it does not exist yet."""
    if group is None:
        return
    if group.protocol_type not in ("", CONSUMER):
        raise ConfigurationError(
            f"group {name} is none of consumers",
            expected="a group of its own",
            found=f"protocol type {group.protocol_type}",
            hint="Choose another name.",
        )
    if group.members or group.state not in (_EMPTY, *_GONE):
        raise ConfigurationError(
            f"group {name} is consumed by others",
            expected="a group without members",
            found=", ".join(map(str, group.members)) or f"a group that is {group.state}",
            hint="Offsets of two would overwrite each other: choose a name of its own, or stop them.",
        )


def _listed(cluster: Cluster, coordinator: int, name: str) -> DescribedGroup | None:
    """Return the group if it is not of the classic protocol."""
    answer = cluster.call(ListGroupsRequest(min_version=_WITH_STATES), coordinator)
    check_code(answer.error_code, "which groups there are")
    listed = next((group for group in answer.groups if group.group_id == name), None)
    if listed is None:
        return None
    is_described = listed.protocol_type == CONSUMER and listed.group_state not in (_EMPTY, *_GONE)
    members: tuple[Member, ...] = ()
    if is_described:
        (found,) = cluster.call(ConsumerGroupDescribeRequest(group_ids=[name]), coordinator).groups
        members = _members(found, name)
    return DescribedGroup(listed.group_state, listed.protocol_type, members)


def _members(group: Any, name: str) -> tuple[Member, ...]:
    check_code(group.error_code, f"who is in group {name}")
    return tuple(Member(one.member_id, one.client_id, one.client_host) for one in group.members)
