"""Addresses as an operator writes them."""

import pytest

from sources.access.address import Address
from sources.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:10912", "127.0.0.1", 10912),
        ("broker-a.example:1", "broker-a.example", 1),
        ("[::1]:10911", "::1", 10911),
        ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert Address.parse(f" {text} ") == Address(host, port)
    assert str(Address(host, port)) == text


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "10912", ":10912", "a:", "a:b", "a:0", "a:65536", "a:-1", "::1:10911", "a b:1", "http://a:1"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """MS-12."""
    with pytest.raises(
        ConfigurationError, match=r"expected host:port, with a port from 1 to 65535, found .*127\.0\.0\.1:10912"
    ) as caught:
        Address.parse(text)
    assert caught.value.found == repr(text)
