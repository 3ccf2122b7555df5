"""What in a broker's configuration (request 26) makes replicating from it impossible. Pure.

=========================  =====  =====================================================================================
key                        since  why it matters
=========================  =====  =====================================================================================
``enableDLegerCommitLog``  4.5    records are wrapped in DLedger entries, and nothing is served at the HA port
``inSyncReplicas``         5.0    from 3 on the broker waits for several replicas and counts *connections* for them. The
                                  session and a task take turns then (`sources.rocketmq.session.turns`); tasks that read
                                  side by side cannot
=========================  =====  =====================================================================================

The keys are those of RocketMQ's MessageStoreConfig and BrokerConfig; a broker without a key does not know the feature.
"""

from __future__ import annotations

from collections.abc import Mapping

from sources.errors import ConfigurationError
from sources.rocketmq.broker_words import MOST_IN_SYNC_REPLICAS, takes_turns


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
