"""Connections to a Kafka cluster, which handle one request at a time.

kafka-python makes the connections, authenticates, and encodes requests and answers. Every wait has a limit, and every
failure becomes one of our errors. What must hold: secrets go from here only to a broker. kafka-python logs what it
sends, including passwords, and the user's name; those lines are filtered out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, TypeVar

from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_random_exponential,
)

from sources.access.kept import KeptConnections
from sources.access.security import tls_context
from sources.errors import LogtwinError, MasterRefused, NobodyListens
from sources.kafka.cluster.client_errors import ASKING, CONNECTING, is_nobody, meaning
from sources.kafka.cluster.settings import KafkaSettings, Security

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""An answer that claims more is garbage. The largest is a fetch: what was requested, or one larger batch."""

_TLS_GRACE_MS: Final = 500
"""kafka-python limits every wait of a connection except its TLS handshake. Our limit comes this much after its own."""

_THROTTLED_LOOK_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2

T = TypeVar("T")

for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).addFilter(lambda record: record.levelno >= logging.WARNING)


@contextmanager
def connected(settings: KafkaSettings) -> Iterator[Cluster]:
    """Give a cluster, reached through the first server that answers; closed at the end. Raises as `Cluster.call`."""
    options = _options(settings)
    net = NetworkSelector(client_id=settings.client_id)
    manager = _Connections(net, **options)
    try:
        cluster = Cluster(settings, net, manager)
        _answered.add(settings.servers)
        yield cluster
    finally:
        manager.close()
        net.close()


def kept(settings: KafkaSettings) -> AbstractContextManager[Cluster]:
    """Like `connected`, but leave the connection open for the next use, unless what is done inside fails."""
    return _kept.kept(settings)


def has_answered(settings: KafkaSettings) -> bool:
    """Whether this process has ever reached one of these servers."""
    return settings.servers in _answered


_answered: set[tuple[str, ...]] = set()
_kept: Final = KeptConnections["KafkaSettings", "Cluster"](lambda settings: connected(settings))


class Cluster:
    """Connections to the brokers of a cluster, made when needed, and again after they broke.

    For one thread at a time.
    """

    cluster_id: str
    """The cluster's own id, as its brokers tell it."""

    topics: dict[str, Any]
    """The topics as these connections learned of them, by name (`sources.kafka.cluster.topics`). Whoever finds an entry
    outdated removes it."""

    def __init__(self, settings: KafkaSettings, net: NetworkSelector, manager: KafkaConnectionManager) -> None:
        self._settings = settings
        self._net = net
        self._manager = manager
        self._connections: dict[int | None, KafkaConnection] = {}
        self.topics = {}
        self._learn_brokers()

    def call(self, request: Any, node_id: int | None = None) -> Any:
        """Return the answer of broker `node_id`, or of any, to a kafka.protocol request. The caller checks error codes.

        A connection is tried `connect_attempts` times, a request once. It is not sent while the broker throttles us.

        Raises MasterUnreachable (no connection, or it broke; NobodyListens if nothing listens at any server, and none
        was reached before), MasterSilent (no answer in time), MasterRefused (there is no such broker now),
        ConfigurationError (authentication, TLS, a broker too old), ProtocolViolation.
        """
        return self.send(request, node_id)()

    def send(self, request: Any, node_id: int | None = None) -> Callable[[], Any]:
        """Like `call`, but return what waits for the answer: several brokers may be asked before any has answered.

        Every answer must be waited for before the same broker is asked again. Raises as `call` does if there is no
        connection.
        """
        self._net.poll(timeout_ms=0)  # notices a connection that the broker has closed
        connection = self._connections.get(node_id)
        if connection is None or not connection.connected:
            connection = self._connections[node_id] = self._connect(self._nodes(node_id))
        sent = self._net.call_soon_with_future(self._exchange, connection, request)

        def answer() -> Any:
            with self._naming(connection.node_id, ASKING):
                self._net.poll(future=sent)
                if sent.exception is not None:
                    raise sent.exception
                return sent.value

        return answer

    def is_whole(self) -> bool:
        """Whether no connection has broken, as far as is known here."""
        self._net.poll(timeout_ms=0)
        return all(connection.connected for connection in self._connections.values())

    def _nodes(self, node_id: int | None) -> Sequence[int | str]:
        """Return the ids of the brokers to ask; those of configured servers are names. Addresses are always current."""
        if node_id is None:
            return [server.node_id for server in self._manager.cluster.bootstrap_brokers()]
        self._learn_brokers()
        if self._manager.cluster.broker_metadata(node_id) is None:
            raise MasterRefused(f"there is no broker {node_id} at {self._settings} now", hint="Does it run?")
        return [node_id]

    def _learn_brokers(self) -> None:
        answer = self.call(MetadataRequest(topics=MetadataRequest.NO_TOPICS, allow_auto_topic_creation=False))
        self.cluster_id = answer.cluster_id
        self._manager.cluster.update_metadata(answer)

    def _connect(self, nodes: Sequence[int | str]) -> KafkaConnection:
        retrying = Retrying(
            retry=retry_if_exception(lambda error: may_pass(error) and not isinstance(error, NobodyListens)),
            stop=stop_after_attempt(self._settings.connect_attempts),
            wait=wait_exponential(multiplier=0.1, max=2),
            reraise=True,
        )
        return retrying(self._first_of, nodes)

    def _first_of(self, nodes: Sequence[int | str]) -> KafkaConnection:
        """Connect to the first node that can be reached. Raises the last error if none can, any other error at once.

        Raises NobodyListens if nothing listens at any of the configured servers.
        """
        failures: list[LogtwinError] = []
        for node in nodes:
            try:
                return self._open(node)
            except LogtwinError as error:
                if not may_pass(error):
                    raise
                failures.append(error)
        if self._manager.cluster.brokers() or not all(is_nobody(error) for error in failures):
            raise failures[-1]
        raise NobodyListens(
            f"no broker listens at {' or at '.join(self._settings.servers)}",
            found=failures[-1].found,
            hint=failures[-1].hint,
        ) from failures[-1]

    def _open(self, node: int | str) -> KafkaConnection:
        limit_ms = self._settings.connect_timeout_ms
        connection = self._manager.get_connection(node, timeout_ms=limit_ms, refresh_metadata_on_err=False)
        with ExitStack() as failing, self._naming(node, CONNECTING):
            failing.callback(connection.close)
            self._net.run(self._manager.wait_for, connection.init_future, limit_ms + _TLS_GRACE_MS)
            failing.pop_all()
        return connection

    async def _exchange(self, connection: KafkaConnection, request: Any) -> Any:
        while connection.paused:
            await self._net.sleep(_THROTTLED_LOOK_S)
        return await connection.send_request(request)

    @contextmanager
    def _naming(self, node: int | str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
        """Turn kafka-python's errors about a broker into ours, which name it."""
        known = self._manager.cluster.broker_metadata(node)
        server = f"{known.host}:{known.port}" if known else f"broker {node}"
        try:
            yield
        except errors as error:
            raise meaning(error, server, self._settings.security) from error


class _Connections(KafkaConnectionManager):  # type: ignore[misc] # has no types
    """Reads what arrives together with the end of a connection, which kafka-python would throw away.

    A broker that refuses us says why and hangs up.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        transport._sock_recv = _data_first(transport._sock_recv)
        return transport


def _data_first(receive: Callable[[], tuple[bytes, Any]]) -> Callable[[], tuple[bytes, Any]]:
    """Return data before an error; the next look at the socket meets the end again."""

    def received() -> tuple[bytes, Any]:
        data, error = receive()
        return data, None if data else error

    return received


def _options(settings: KafkaSettings) -> dict[str, Any]:
    """Return our settings as kafka-python names them. The secrets are read only now."""
    return {
        "bootstrap_servers": list(settings.servers),
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        "receive_message_max_bytes": MAX_ANSWER_BYTES,
        "reconnect_backoff_ms": 0,  # we wait ourselves
        **_credentials(settings.security),
    }


def _credentials(security: Security) -> dict[str, Any]:
    return {
        "security_protocol": security.protocol,
        "ssl_context": tls_context(security.tls) if security.with_tls else None,
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username and security.username.reveal(),
        "sasl_plain_password": security.password and security.password.reveal(),
    }


def ask_again(
    question: Callable[[], T],
    *,
    patience_ms: int,
    is_worth: Callable[[BaseException], bool] | None = None,
) -> T:
    """Return the answer to `question`, asked again after every error that a retry can help, until `patience_ms` passed.

    `is_worth` may decide otherwise which errors these are. Raises what `question` raised last.
    """
    retrying = Retrying(
        retry=retry_if_exception(is_worth or may_pass),
        stop=stop_after_delay(patience_ms / 1000),
        wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_S),
        reraise=True,
    )
    return retrying(question)


def may_pass(error: BaseException) -> bool:
    """Whether a retry can help, without anybody's doing."""
    return isinstance(error, LogtwinError) and error.is_transient
