"""The S3 server of a test session, and a plain client of it."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import urllib3

from pipeline.demo.s3_server import S3Server
from sinks.storage.settings import Storage

_NUMBERS = itertools.count(1)
KEY_VARIABLE = "HOME"
"""Every process has it, and the server takes any keys."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Its headers' names are lower-case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class PlainClient:
    """Asks for keys of a bucket by HTTP alone, over connections that are kept; it tries nothing twice.

    Its signature is none, but names its key, as all that the server wants to see.
    """

    def __init__(self, endpoint: str, bucket: str) -> None:
        self._connections = urllib3.PoolManager(maxsize=32, retries=False)
        self.bucket = bucket
        self._place = f"{endpoint}/{bucket}"
        self._headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, "
            "SignedHeaders=host, Signature=0"
        }

    @classmethod
    def of(cls, server: S3Server) -> Self:
        return cls(server.endpoint, server.bucket)

    def __call__(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """`target` is a key, with its query; or a query of the bucket, from its question mark on."""
        path = target if target.startswith("?") else f"/{target}"
        sent = {**self._headers, **(headers or {})}
        reply = self._connections.request(method, self._place + path, body=body or None, headers=sent)
        return Reply(reply.status, reply.data, {name.lower(): reply.headers[name] for name in reply.headers})

    def put_if_absent(self, key: str, body: bytes) -> int:
        """Its status: 200 for the first, 412 for all others."""
        return self("PUT", key, body, {"If-None-Match": "*"}).status


def at(endpoint: str, **more: object) -> Storage:
    """``[storage]`` of a store there, which takes any keys."""
    keys = {"access_key": f"env:{KEY_VARIABLE}", "secret_key": f"env:{KEY_VARIABLE}"}
    return Storage.model_validate({"endpoint": endpoint, "region": "us-east-1", "patience_s": 4.0, **keys, **more})


def with_own_bucket(server: S3Server) -> S3Server:
    """The same server, and a bucket that nobody else uses.

    Hadoop keeps its connection to a bucket as long as its JVM lives, whichever server has the name then: of those that
    the session of the tests reaches each has a name of its own. The demo's is "lake".
    """
    own = replace(server, bucket=f"lake-{next(_NUMBERS)}")
    if PlainClient.of(own)("PUT", "").status != 200:
        raise AssertionError(f"no bucket {own.bucket}")
    return own
