"""Sockets to listen on: free ones, taken ones, and pairs."""

import socket

import pytest

from sources.errors import ConfigurationError
from sources.rocketmq.embedded.connections import address_of, bound, bound_with_vip


def test_a_port_may_be_bound_again_at_once() -> None:
    """HA-15: also while connections of before are still being closed."""
    with bound("127.0.0.1", 0, "port") as listener:
        listener.listen()
        address = address_of(listener)
        client = socket.create_connection((address.host, address.port))
        served, _ = listener.accept()
        served.close()  # the side that closes first keeps the port in TIME_WAIT
        client.close()
    bound("127.0.0.1", address.port, "port").close()


def test_on_all_interfaces_every_address_of_the_machine_reaches_it() -> None:
    """HA-15."""
    with bound("0.0.0.0", 0, "ha_port") as listener:  # noqa: S104 - what is tested
        listener.listen()
        for host in ("127.0.0.1", "127.0.0.2"):
            socket.create_connection((host, address_of(listener).port)).close()


def test_a_second_port_that_is_taken_is_a_clear_error() -> None:
    """HA-16: mended."""
    listener, vip = bound_with_vip("127.0.0.1", 0)
    port = address_of(listener).port
    listener.close()
    with vip:
        vip.listen()
        with pytest.raises(ConfigurationError, match=f"cannot listen at 127.0.0.1:{port - 2}.*one two below"):
            bound_with_vip("127.0.0.1", port)
    listener, vip = bound_with_vip("127.0.0.1", port)  # and nothing was left bound
    listener.close()
    vip.close()
