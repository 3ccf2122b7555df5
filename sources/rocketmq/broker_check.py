"""What a broker's configuration (request 26) says against replicating from it. Pure.

=========================  =====  =====================================================================================
key                        since  why it matters
=========================  =====  =====================================================================================
``enableControllerMode``   5.0    the HA port speaks AutoSwitchHA: our 8-byte report would wait there for ever
``enableDLegerCommitLog``  4.5    records are wrapped in DLedger entries and nothing is served at the HA port
``inSyncReplicas``         5.0    acknowledgements needed, the master's own included. A broker counts *connections*,
                                  and logtwin has two, one that reads and one that acknowledges: from 3 on it could
                                  pass for two replicas
=========================  =====  =====================================================================================

Keys as in RocketMQ's MessageStoreConfig and BrokerConfig; a broker without a key does not know the feature.
"""

from __future__ import annotations

from collections.abc import Mapping

from sources.errors import ConfigurationError

MOST_IN_SYNC_REPLICAS = 2


def check_broker(config: Mapping[str, str]) -> None:
    """Raises ConfigurationError, without a log, for what logtwin cannot honestly replicate."""
    for key, mode in (("enableControllerMode", "controller mode"), ("enableDLegerCommitLog", "DLedger mode")):
        if config.get(key, "false").lower() == "true":
            raise ConfigurationError(
                f"the broker runs in {mode}, which has another replication protocol",
                expected=f"{key}=false",
                found=f"{key}=true",
                hint="Replicate from a plain master or slave, or read the segment files by path (not DLedger's).",
            )
    needed = config.get("inSyncReplicas", "1")
    if needed.lstrip("-").isdigit() and int(needed) > MOST_IN_SYNC_REPLICAS:
        raise ConfigurationError(
            "the broker needs several replicas' word, and would count the two connections of this one as two",
            expected=f"inSyncReplicas of {MOST_IN_SYNC_REPLICAS} or less",
            found=f"inSyncReplicas={needed}",
            hint="Replicate from a slave of this broker: its HA port serves the same log, and our word stays there.",
        )
