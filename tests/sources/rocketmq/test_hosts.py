from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.rocketmq.format.hosts import Host
from tests.sources.rocketmq.records import hosts

# As java.net prints them: InetAddress.getByAddress(ip).getHostAddress().
JAVA = [
    ("7f000001", 10911, "127.0.0.1:10911"),
    ("ffffffff", 0, "255.255.255.255:0"),
    ("00000000000000000000000000000001", 37946, "[0:0:0:0:0:0:0:1]:37946"),
    ("20010db8000000000a0b00c000000fff", 65535, "[2001:db8:0:0:a0b:c0:0:fff]:65535"),
    ("00000000000000000000ffff0a000001", 80, "10.0.0.1:80"),  # mapped IPv4: Java makes an IPv4 address of it
    ("0000000000000000000000000a000001", 80, "[0:0:0:0:0:0:a00:1]:80"),
]


@pytest.mark.parametrize(("ip", "port", "text"), JAVA)
def test_text_and_stored_form(ip: str, port: int, text: str) -> None:
    stored = bytes.fromhex(ip) + port.to_bytes(4, "big")
    host = Host.unpack(stored)
    assert str(host) == text
    assert host.pack() == stored
    assert host.is_ipv6 == (len(ip) == 32)
    assert Host.parse(text, ipv6=len(ip) == 32) == host


@given(st.booleans(), st.data())
def test_every_host_comes_back_from_its_text(ipv6: bool, data: st.DataObject) -> None:
    host = data.draw(hosts(ipv6))
    assert Host.parse(str(host), ipv6=ipv6) == host


@pytest.mark.parametrize(
    ("text", "ipv6"),
    [
        *product(
            ("", "127.0.0.1", "broker:10911", "1.2.3:1", "1.2.3.256:1", "1..3.4:1", "[0:0:0:0:0:0:0:1]:1"), [False]
        ),
        *product(("1.2.3.4.5:1", "[::1]:1", "[0:0:0:0:0:0:0:10000]:1"), [True]),
    ],
)
def test_text_that_is_no_host(text: str, ipv6: bool) -> None:
    with pytest.raises(ValueError, match=r"."):
        Host.parse(text, ipv6=ipv6)
