"""Error codes of Kafka's protocol as our errors. The codes are those of its documentation, "Error Codes"."""

from __future__ import annotations

import pytest

from sources.errors import ConfigurationError, CorruptRecord, LogtwinError, MasterRefused, ProtocolViolation
from sources.kafka.cluster.codes import check_code, refusal


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-1, MasterRefused),  # UNKNOWN_SERVER_ERROR
        (2, CorruptRecord),  # CORRUPT_MESSAGE
        (3, MasterRefused),  # UNKNOWN_TOPIC_OR_PARTITION: the broker may not have heard of it yet
        (6, MasterRefused),  # NOT_LEADER_OR_FOLLOWER
        (14, MasterRefused),  # COORDINATOR_LOAD_IN_PROGRESS
        (16, MasterRefused),  # NOT_COORDINATOR
        (29, ConfigurationError),  # TOPIC_AUTHORIZATION_FAILED
        (30, ConfigurationError),  # GROUP_AUTHORIZATION_FAILED
        (31, ConfigurationError),  # CLUSTER_AUTHORIZATION_FAILED
        (35, ProtocolViolation),  # UNSUPPORTED_VERSION
        (42, ProtocolViolation),  # INVALID_REQUEST
        (56, MasterRefused),  # KAFKA_STORAGE_ERROR
        (74, MasterRefused),  # FENCED_LEADER_EPOCH
        (75, MasterRefused),  # UNKNOWN_LEADER_EPOCH
        (78, MasterRefused),  # OFFSET_NOT_AVAILABLE
        (100, MasterRefused),  # UNKNOWN_TOPIC_ID
        (9999, ProtocolViolation),  # none that we know: nobody can say that it passes
    ],
)
def test_a_code_says_whose_fault_it_is(code: int, expected: type[LogtwinError]) -> None:
    error = refusal(code, "where topic t lies", offset=5)
    assert type(error) is expected
    assert error.offset == 5
    assert f"(error {code})" in str(error)
    with pytest.raises(expected):
        check_code(code, "where topic t lies")
