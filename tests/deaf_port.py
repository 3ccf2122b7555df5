"""A port of this machine at which nobody listens, and nobody will."""

import socket


def deaf_port() -> int:
    """It stays bound until the process ends, so no other program is given it."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    port: int = sock.getsockname()[1]
    sock.detach()
    return port
