"""What our user may do with a topic and a group, as the brokers say themselves (KIP-430): nothing is tried."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.metadata import MetadataRequest

from sources.errors import ConfigurationError
from sources.kafka.cluster.client_errors import NONE
from sources.kafka.cluster.connection import Cluster
from sources.kafka.cluster.topics import WITH_IDS

_NEEDED: Final = {"READ": 3, "DESCRIBE": 8}
"""The operations that a job needs of both, with their numbers (AclOperation.java)."""

_GROUPS_WITH_RIGHTS: Final = 3
_GONE_IS_NO_ERROR: Final = 5  # the last version of DescribeGroups that describes a group that does not exist yet


def check_topic_rights(cluster: Cluster, topic: str) -> None:
    """Raise ConfigurationError if our user may not read `topic`, and as `Cluster.call` does."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=WITH_IDS,
    )
    (found,) = cluster.call(request).topics
    _check(found.error_code, found.authorized_operations, f"topic {topic}")


def check_group_rights(cluster: Cluster, group: str, coordinator: int) -> None:
    """Raise ConfigurationError if our user may not commit in `group`, and as `Cluster.call` does."""
    request = DescribeGroupsRequest(
        groups=[group],
        include_authorized_operations=True,
        min_version=_GROUPS_WITH_RIGHTS,
        max_version=_GONE_IS_NO_ERROR,
    )
    (found,) = cluster.call(request, coordinator).groups
    _check(found.error_code, found.authorized_operations, f"group {group}")


def _check(code: int, allowed: Set[int] | None, what: str) -> None:
    if code != NONE or allowed is None:
        return  # other questions meet the error; a broker that does not tell is believed when it refuses
    missing = [name for name, operation in _NEEDED.items() if operation not in allowed]
    if missing:
        raise ConfigurationError(
            f"our user lacks rights on {what}",
            expected=" and ".join(_NEEDED),
            found=f"no {' and no '.join(missing)}",
            hint=f"kafka-acls.sh --add --allow-principal User:… --operation {missing[0]} grants it.",
        )
