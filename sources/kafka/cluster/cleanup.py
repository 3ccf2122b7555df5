"""What happens to a topic's old records: its cleanup.policy, as any broker knows it."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin import DescribeConfigsRequest

from sources.kafka.cluster.codes import check_code
from sources.kafka.cluster.connection import Cluster

_OF_TOPIC: Final = 2
"""The resource type of a topic (ConfigResource.java)."""
_KEY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


def is_compacted(cluster: Cluster, topic: str) -> bool:
    """Whether newer records of a key replace older ones, perhaps besides deletion by age or size.

    Raises ConfigurationError (not allowed), MasterRefused, ProtocolViolation, and as `Cluster.call` does.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = resource(resource_type=_OF_TOPIC, resource_name=topic, configuration_keys=[_KEY])
    (found,) = cluster.call(DescribeConfigsRequest(resources=[asked])).results
    check_code(found.error_code, f"for the {_KEY} of topic {topic}")
    values = (one.value or "" for one in found.configs if one.name == _KEY)
    return any(_COMPACT in value.split(",") for value in values)
