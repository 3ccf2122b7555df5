"""The logs of a RocketMQ cluster: one for each broker name that its name servers list."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from sources.access.address import Address
from sources.access.spread import side_by_side
from sources.discovery import NamePattern, Warn
from sources.errors import ConfigurationError, LogtwinError, MasterError
from sources.offsets import LOG_ID_FORM, LogId
from sources.options import ReadOptions
from sources.rocketmq.broker_words import CLUSTER_INFO, clusters_in
from sources.rocketmq.wire.client import RemotingClient
from sources.rocketmq.wire.connection import NO_SECURITY
from sources.rocketmq.wire.security import RemotingSecurity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCluster:
    """The brokers of `cluster` whose names match, as `name_servers` list them (request 106).

    A broker name without a master now is a log, too: its master may come back. `options` hold for each log, except the
    id. Name servers do not know of each other, and a broker may be known to one of them only: all are asked.
    """

    cluster: str
    pattern: NamePattern
    name_servers: tuple[Address, ...]
    options: ReadOptions
    security: RemotingSecurity = NO_SECURITY

    @property
    def is_pattern(self) -> bool:
        return True

    @property
    def names(self) -> tuple[str, ...]:
        where = ";".join(map(str, self.name_servers))
        return (f"rocketmq/{self.pattern} of cluster {self.cluster} at name server {where}",)

    def find(self, warn: Warn = log.warning, /) -> Mapping[LogId, ReadOptions]:
        names = {name for name in self._listed(warn) if self.pattern.matches(name)}
        return {log_id: self._of(log_id) for log_id in sorted(map(self._log_id, names))}

    def options_of(self, log_id: LogId) -> ReadOptions | None:
        is_ours = log_id.kind == "rocketmq" and self.pattern.matches(log_id.name)
        return self._of(log_id) if is_ours else None

    def only(self, log_id: LogId) -> Self:
        return replace(self, pattern=self.pattern.only(log_id.name))

    def _of(self, log_id: LogId) -> ReadOptions:
        return self.options.model_copy(update={"id": str(log_id)})

    def _log_id(self, name: str) -> LogId:
        try:
            return LogId.parse(f"rocketmq/{name}")
        except ValueError as error:
            raise ConfigurationError(
                f"a broker of cluster {self.cluster} has a name that no log can have",
                expected=LOG_ID_FORM,
                found=repr(name),
                hint="Leave it out with exclude.",
            ) from error

    def _listed(self, warn: Warn) -> set[str]:
        clusters: dict[str, set[str]] = {}
        failures: dict[Address, LogtwinError] = {}
        for address, told in zip(self.name_servers, side_by_side(self._clusters_at, self.name_servers), strict=True):
            if isinstance(told, LogtwinError):
                failures[address] = told
                continue
            for name, brokers in told.items():
                clusters.setdefault(name, set()).update(brokers)
        if failures.keys() == set(self.name_servers):
            # Prefer an error that may go away later, whatever the other addresses answered.
            raise next((one for one in failures.values() if one.is_transient), failures[self.name_servers[-1]])
        for address, failure in failures.items():
            warn("cluster %s is listed by others than the name server at %s: %s", self.cluster, address, failure)
        if self.cluster not in clusters:
            known = ", ".join(sorted(clusters)) or "no cluster"
            warn("no broker of cluster %s is registered; the name servers know %s", self.cluster, known)
        return clusters.get(self.cluster, set())

    def _clusters_at(self, address: Address) -> Mapping[str, tuple[str, ...]] | MasterError | ConfigurationError:
        try:
            with RemotingClient(
                address,
                connect_timeout_ms=self.options.connect_timeout_ms,
                connect_attempts=self.options.connect_attempts,
                call_timeout_ms=self.options.connect_timeout_ms,
                security=self.security,
            ) as client:
                return clusters_in(client.exchange(CLUSTER_INFO), address)
        except (MasterError, ConfigurationError) as error:
            return error
