"""What an object store, or the way to it, may do to a request. Pure."""

from dataclasses import dataclass, field
from typing import TypeAlias
from xml.sax.saxutils import escape

from tests.objectstore.s3_requests import Request, When

REQUEST_ID = "4442587FB7D0A2F9"


@dataclass(frozen=True, slots=True)
class Answer:
    """In the place of the server, which never sees the request: as S3 words it."""

    status: int
    code: str
    message: str
    details: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    def body(self, request: Request) -> bytes:
        fields = [("Code", self.code), ("Message", self.message), *self.details]
        fields += [("Resource", f"/{request.bucket}/{request.key}"), ("RequestId", REQUEST_ID), ("HostId", "loopback")]
        inner = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inner}</Error>'.encode()


@dataclass(frozen=True, slots=True)
class CutBefore:
    """The connection breaks, and the server has not seen the request."""


@dataclass(frozen=True, slots=True)
class CutAfter:
    """The server has done what was asked, and the connection breaks before it can say so."""


@dataclass(frozen=True, slots=True)
class CutWithinAnswer:
    """Of the answer's body so many bytes come, then the connection breaks."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Late:
    """The server has done what was asked, and its answer takes so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Held:
    """The request reaches the server so much later, also where its client has given up by then."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Unconditional:
    """A store that does not know If-None-Match, and writes."""


Fault: TypeAlias = Answer | CutBefore | CutAfter | CutWithinAnswer | Late | Held | Unconditional

INTERNAL_ERROR = Answer(500, "InternalError", "We encountered an internal error. Please try again.")
SLOW_DOWN = Answer(503, "SlowDown", "Please reduce your request rate.")
ACCESS_DENIED = Answer(403, "AccessDenied", "Access Denied")
EXPIRED_TOKEN = Answer(400, "ExpiredToken", "The provided token has expired.")
NOT_IMPLEMENTED = Answer(
    501,
    "NotImplemented",
    "A header you provided implies functionality that is not implemented",
    details=(("Header", "If-None-Match"),),
)
CONFLICT = Answer(
    409,
    "ConditionalRequestConflict",
    "The conditional request cannot succeed due to a conflicting operation against this resource.",
)
"""S3's word where two write one key at once: neither was told that it is there. To be tried again."""
NO_SUCH_BUCKET = Answer(404, "NoSuchBucket", "The specified bucket does not exist")


def other_region(region: str) -> Answer:
    """The bucket is in another one than the client speaks to."""
    return Answer(
        301,
        "PermanentRedirect",
        "The bucket you are attempting to access must be addressed using the specified endpoint. "
        "Please send all future requests to this endpoint.",
        details=(("Endpoint", f"s3.{region}.amazonaws.com"),),
        headers=(("x-amz-bucket-region", region),),
    )


def signed_for_another_region(expected: str, signed: str) -> Answer:
    """The client has signed for another one than the bucket's."""
    return Answer(
        400,
        "AuthorizationHeaderMalformed",
        f"The authorization header is malformed; the region '{signed}' is wrong; expecting '{expected}'",
        details=(("Region", expected),),
        headers=(("x-amz-bucket-region", expected),),
    )


@dataclass(slots=True)
class Rule:
    """A fault for requests of a kind, so many times, or for ever."""

    fault: Fault
    when: When
    times: int | None = None
    met: int = field(default=0, init=False)
    """How often it has happened."""

    def meets(self, request: Request) -> bool:
        """Whether it happens to this one, which counts then."""
        is_met = (self.times is None or self.met < self.times) and self.when(request)
        self.met += is_met
        return is_met


@dataclass(frozen=True, slots=True)
class Credentials:
    """The ones that are let in: others have expired."""

    access_key: str
    session_token: str | None = None
