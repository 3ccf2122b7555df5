"""Services and nodes as rows of their kinds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sources.dister.embedded.leader import EmbeddedLeader
from sources.dister.metadata import fetch, nodes_of, services_of
from sources.dister.peers import PEERS_FILE, NodeInfo
from sources.dister.services import SERVICE_FILE, Service, ServiceRegistry
from sources.errors import MasterSilent, MasterUnreachable, ProtocolViolation


def test_a_registry_as_rows() -> None:
    node = {"port": 80, "host": "h", "status": 1}
    found = services_of(ServiceRegistry(77, {"2.a.b.service.dister": Service("web", node), "odd": Service("x", {})}))
    assert found.version == 77
    assert isinstance(found.items, pa.Table)
    assert found.items.to_pylist() == [
        {
            "service_key": "2.a.b.service.dister", "name": "a.b", "index": 2, "type": "web",
            "node": '{"host":"h","port":80,"status":1}', "status": 1, "service_log_id": 77,
        },
        {
            "service_key": "odd", "name": None, "index": None, "type": "x",
            "node": "{}", "status": None, "service_log_id": 77,
        },
    ]  # fmt: skip


@pytest.mark.parametrize("status", ["1", True, 1.0, None, 2**31])
def test_a_status_that_is_no_number_stays_in_the_node_alone(status: object) -> None:
    found = services_of(ServiceRegistry(1, {"0.a.service.dister": Service("custom", {"status": status})})).items
    assert isinstance(found, pa.Table)
    assert found["status"].to_pylist() == [None]


def test_nodes_as_rows() -> None:
    node = NodeInfo(
        id="A", ip="10.0.0.1", group="g", name="n", status=1, role=0, raft=2, logid=10007, serviceid=5, version="1.6"
    )
    found = nodes_of([node]).items
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [
        {
            "id": "A", "name": "n", "group_name": "g", "ip": "10.0.0.1", "status": 1, "role": 0, "raft": 2,
            "version": "1.6", "last_log_id": 10007, "last_service_log_id": 5,
        }
    ]  # fmt: skip


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="dister_services"):
        services_of(ServiceRegistry(1, {"0.a\ud800.service.dister": Service("web", {})}))


def test_what_goes_wrong_with_one_does_not_keep_the_other(tmp_path: Path) -> None:
    """48: a torn service file is an error of this look alone."""
    EmbeddedLeader(tmp_path).close()
    (tmp_path / SERVICE_FILE).write_text('{"LastServiceLogId":')
    services, peers = fetch(str(tmp_path), str(tmp_path / PEERS_FILE))
    assert isinstance(services.items, MasterSilent)
    assert isinstance(peers.items, pa.Table)
    services, peers = fetch(str(tmp_path / "none"), str(tmp_path / "none.json"))
    assert isinstance(services.items, pa.Table)
    assert isinstance(peers.items, MasterUnreachable)
