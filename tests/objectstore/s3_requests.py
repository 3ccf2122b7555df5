"""Requests of S3 as tests count them: what each asks for, of which key, by whose keys. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")


class Kind(StrEnum):
    GET = "get"
    HEAD = "head"
    PUT = "put"
    COPY = "copy"
    DELETE = "delete"
    DELETE_MANY = "delete many"
    LIST = "list"
    INITIATE = "initiate upload"
    PART = "part"
    COMPLETE = "complete upload"
    ABORT = "abort upload"
    LIST_UPLOADS = "list uploads"
    BUCKET = "bucket"  # is there one, make one
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Request:
    """One, without its body. The names of its headers are lower-case."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def kind(self) -> Kind:
        if not self.key:
            return _kind_of_bucket(self.method, self.query)
        if "uploadId" in self.query:
            return _OF_UPLOAD.get(self.method, Kind.OTHER)
        if self.method == "POST":
            return Kind.INITIATE if "uploads" in self.query else Kind.OTHER
        if self.method == "PUT" and "x-amz-copy-source" in self.headers:
            return Kind.COPY
        return _OF_OBJECT.get(self.method, Kind.OTHER)

    @property
    def is_conditional(self) -> bool:
        """It wants to write only where nothing is."""
        return self.method in ("PUT", "POST") and "if-none-match" in self.headers

    @property
    def access_key(self) -> str | None:
        """Whose it is, by its signature's own word."""
        found = _CREDENTIAL.search(self.headers.get("authorization", ""))
        return found and found[1]

    @property
    def session_token(self) -> str | None:
        return self.headers.get("x-amz-security-token")


_OF_OBJECT = {"GET": Kind.GET, "HEAD": Kind.HEAD, "PUT": Kind.PUT, "DELETE": Kind.DELETE}
_OF_UPLOAD = {"PUT": Kind.PART, "POST": Kind.COMPLETE, "DELETE": Kind.ABORT, "GET": Kind.LIST_UPLOADS}


def _kind_of_bucket(method: str, query: Mapping[str, str]) -> Kind:
    if method == "GET":
        return Kind.LIST_UPLOADS if "uploads" in query else Kind.LIST
    if method == "POST" and "delete" in query:
        return Kind.DELETE_MANY
    return Kind.BUCKET if method in ("HEAD", "PUT", "DELETE") else Kind.OTHER


def request_of(method: str, target: str, headers: Mapping[str, str]) -> Request:
    """`target` is a path with its query, the bucket first, as the request line has it."""
    parts = urlsplit(target if "://" in target else f"http://host{target}")
    bucket, _, key = parts.path.removeprefix("/").partition("/")
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Request(method, unquote(bucket), unquote(key), query, {name.lower(): at for name, at in headers.items()})


When: TypeAlias = Callable[[Request], bool]
"""Which requests a fault is for."""


def any_request(_: Request) -> bool:
    return True


def which(*kinds: Kind, key: str = "") -> When:
    """Requests of these kinds, or of any, whose key matches the expression `key` somewhere."""
    in_key = re.compile(key)

    return lambda request: (not kinds or request.kind in kinds) and in_key.search(request.key) is not None


@dataclass(slots=True)
class Seen:
    """A request, and how it was answered; without a status, it has no answer yet, or the connection was cut before."""

    request: Request
    status: int | None = None
    fault: object = None


@dataclass(slots=True)
class RequestLog:
    """What was asked, in the order in which it began."""

    all: list[Seen] = field(default_factory=list)

    def __iter__(self) -> Iterator[Seen]:
        return iter(list(self.all))

    def __len__(self) -> int:
        return len(self.all)

    def of(self, *kinds: Kind, key: str = "") -> list[Seen]:
        wanted = which(*kinds, key=key)
        return [seen for seen in self if wanted(seen.request)]

    def kinds(self) -> Counter[Kind]:
        return Counter(seen.request.kind for seen in self)

    def table(self) -> str:
        """For people: by kind and status."""
        rows = Counter((str(seen.request.kind), str(seen.status or "cut")) for seen in self)
        return "\n".join(f"{kind:16}{status:>7}{count:>10,}" for (kind, status), count in sorted(rows.items()))
