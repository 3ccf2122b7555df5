"""Whether a topic is compacted, as brokers say it."""

from __future__ import annotations

from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.protocol.admin import DescribeConfigsResponse

from sources.errors import ConfigurationError
from sources.kafka.cluster.cleanup import is_compacted
from tests.sources.kafka.scripted_cluster import ScriptedCluster


def answer(policy: str | None, error: int = 0) -> Any:
    of_topic = DescribeConfigsResponse.DescribeConfigsResult
    config = of_topic.DescribeConfigsResourceResult(name="cleanup.policy", value=policy)
    configs = [] if error else [config]
    return DescribeConfigsResponse(results=[of_topic(error_code=error, configs=configs)], version=4)


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact", "delete", "", None])
def test_the_policy_says_it(policy: str | None) -> None:
    cluster = ScriptedCluster(answer(policy))
    assert is_compacted(cluster, "orders") is (policy not in ("delete", "", None))
    ((request, node_id),) = cluster.asked
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "orders")
    assert (list(resource.configuration_keys), node_id) == (["cleanup.policy"], None)


def test_who_may_not_ask_is_told_what_to_grant() -> None:
    cluster = ScriptedCluster(answer(None, kafka_errors.TopicAuthorizationFailedError.errno))
    with pytest.raises(ConfigurationError, match=r"cleanup\.policy of topic orders") as caught:
        is_compacted(cluster, "orders")
    assert "DESCRIBE_CONFIGS" in (caught.value.hint or "")
