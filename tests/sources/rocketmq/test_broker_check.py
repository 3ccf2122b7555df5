from __future__ import annotations

import pytest

from sources.errors import ConfigurationError
from sources.rocketmq.broker_check import check_broker


@pytest.mark.parametrize(
    "config",
    [
        {},  # 4.9.7 knows none of the keys of 5.x
        {"enableControllerMode": "false", "enableDLegerCommitLog": "false", "inSyncReplicas": "1"},
        {"enableControllerMode": "true", "inSyncReplicas": "3"},  # which waits for no learner
        {"inSyncReplicas": "2"},  # producers wait for one replica: us
    ],
)
def test_a_broker_may_be_replicated(config: dict[str, str]) -> None:
    check_broker(config, parallel_reads=True)
    check_broker(config | {"inSyncReplicas": "5"}, parallel_reads=False)  # in turns


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"enableDLegerCommitLog": "true"}, ["DLedger"]),
        ({"inSyncReplicas": "3"}, ["inSyncReplicas=3", "parallel_reads", "slave"]),
    ],
)
def test_what_cannot_be_replicated_honestly_is_refused(config: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_broker(config, parallel_reads=True)
    for word in words:
        assert word in str(caught.value)
