"""The service registry: its file, and what SET and REMOVE make of it."""

import pytest

from sources.dister.states import Service, ServiceRegistry, decode_services, encode_services, key_of, parse_key
from sources.errors import MasterSilent, ProtocolViolation

FILE = (
    b'{"LastServiceLogId":1700000000123,"Service":{"0.web.service.dister":{"type":"web","node":{"url":"http://a/?x=1'
    b'\\u0026y","status":1,"<b>":"\xc3\xa9"}},"1.web.service.dister":{"type":"web","node":{}}}}'
)


def registry(names: dict[str, int], last: int = 100) -> ServiceRegistry:
    nodes = {
        key_of(index, name): Service("tcp", {"n": index}) for name, count in names.items() for index in range(count)
    }
    return ServiceRegistry(last, nodes)


def test_a_registry_is_read_and_written_as_go_writes_it() -> None:
    services = {
        "0.web.service.dister": Service("web", {"url": "http://a/?x=1&y", "status": 1, "<b>": "é"}),
        "1.web.service.dister": Service("web", {}),
    }
    of_dister = ServiceRegistry(1700000000123, services)
    assert decode_services(FILE) == of_dister
    assert (
        encode_services(of_dister)
        == (
            '{"LastServiceLogId":1700000000123,"Service":{"0.web.service.dister":{"node":{"\\u003cb\\u003e":"é","status":1,'
            '"url":"http://a/?x=1\\u0026y"},"type":"web"},"1.web.service.dister":{"node":{},"type":"web"}}}'
        ).encode()
    )


TORN = [*(FILE[:size] for size in (0, 1, 20, len(FILE) - 1)), b"\xff", b'{"LastServiceLogId":NaN}', b"[" * 100_000]


@pytest.mark.parametrize("data", TORN)
def test_48_a_torn_file_is_for_the_next_look(data: bytes) -> None:
    """Also DI-115: who gets this keeps what it has."""
    with pytest.raises(MasterSilent, match="not whole") as caught:
        decode_services(data)
    assert caught.value.is_transient


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        '{"LastServiceLogId":"7","Service":{}}',
        '{"LastServiceLogId":-1,"Service":{}}',
        '{"LastServiceLogId":9223372036854775808,"Service":{}}',
        '{"LastServiceLogId":7,"Service":[]}',
        '{"LastServiceLogId":7,"Service":{"0.a.service.dister":null}}',
        '{"LastServiceLogId":7,"Service":{"0.a.service.dister":{"type":"web"}}}',
        '{"LastServiceLogId":7,"Service":{"0.a.service.dister":{"type":"web","node":[]}}}',
        '{"LastServiceLogId":7,"Service":{"0.a.service.dister":{"type":1,"node":{}}}}',
    ],
)
def test_json_of_another_shape_does_not_pass_for_a_registry(text: str) -> None:
    with pytest.raises(ProtocolViolation, match="another shape") as caught:
        decode_services(text.encode())
    assert not caught.value.is_transient


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("0.web.service.dister", (0, "web")),
        ("12.a.b.service.dister", (12, "a.b")),
        ("3.x.service.dister.service.dister", (3, "x.service.dister")),
        ("web", (None, None)),
        (".web.service.dister", (None, None)),
        ("-1.web.service.dister", (None, None)),
        ("0..service.dister", (None, None)),
    ],
)
def test_a_key_has_an_index_and_a_name(key: str, expected: tuple[int | None, str | None]) -> None:
    assert parse_key(key) == expected


def test_set_replaces_all_nodes_of_the_name() -> None:
    """DI-108: 3 nodes, then 1 node, leave one."""
    after = registry({"web": 3, "db": 1}).with_nodes("web", "http", [{"host": "h"}], now_ms=500)
    assert after == ServiceRegistry(
        500, {"0.db.service.dister": Service("tcp", {"n": 0}), "0.web.service.dister": Service("http", {"host": "h"})}
    )


def test_47_index_holes_keep_nothing_alive() -> None:
    """D-27: dister stops to delete at the first index that is missing."""
    holes = {key_of(index, "web"): Service("tcp", {}) for index in (0, 2, 5)}
    before = ServiceRegistry(100, {**holes, key_of(7, "db"): Service("tcp", {})})
    assert list(before.without(["web"], now_ms=500).services) == ["7.db.service.dister"]
    assert sorted(before.with_nodes("web", "tcp", [{}], now_ms=500).services) == [
        "0.web.service.dister",
        "7.db.service.dister",
    ]


def test_46_a_set_of_no_nodes_removes_and_is_heard_of() -> None:
    """DI-110, D-27: in dister the id stays, so that no follower ever hears of it. Here it moves."""
    assert registry({"web": 2}).with_nodes("web", "tcp", [], now_ms=500) == ServiceRegistry(500, {})


def test_the_id_moves_only_if_something_was_removed() -> None:
    """DI-111."""
    before = registry({"web": 1})
    assert before.without(["nobody"], now_ms=500) is before
    assert before.with_nodes("nobody", "tcp", [], now_ms=500) is before
    assert before.without(["nobody", "web"], now_ms=500).id == 500


@pytest.mark.parametrize(("last", "now_ms", "expected"), [(100, 500, 500), (100, 100, 101), (100, 7, 101)])
def test_the_id_is_the_clock_and_never_stands_still(last: int, now_ms: int, expected: int) -> None:
    """DI-109, D-26: two changes in one millisecond, or a clock that went back."""
    assert registry({}, last).with_nodes("web", "tcp", [{}], now_ms).id == expected
    assert registry({"web": 1}, last).without(["web"], now_ms).id == expected
