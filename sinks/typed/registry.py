"""Schemas in a registry: Confluent's frame around a body, and a client of the registry's REST interface.

A frame is 00, the id of the body's schema (4 bytes, big-endian), the body. Tasks ask once for each schema id:

    GET /schemas/ids/{id}                       {"schema": …, "schemaType": …, "references": [{name, subject, version}]}
    GET /subjects/{subject}/versions/{version}  the same, of a reference

For a .proto ``?format=serialized`` gives its file descriptor, in base64, so nobody has to compile it. Answers are kept
as long as the process lives; "not found" is kept for `_AGAIN_S`.
"""

from __future__ import annotations

import base64
import http.client
import json
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from sinks.typed.formats.json_fields import NoObject, given
from sources.access.security import Secret
from sources.errors import ConfigurationError, RegistryUnreachable

_T = TypeVar("_T")
_HEAD: Final = struct.Struct(">bI")
MAGIC: Final = b"\0"
"""What each frame begins with, and no JSON."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a registry has it; `others` are the names and texts of those that it uses, each after its own."""

    type: str
    text: str
    others: tuple[tuple[str, str], ...] = ()


def framed(
    registered: Callable[[int], Registered], of: Mapping[str, Callable[[Registered], Callable[[bytes], _T]]]
) -> Callable[[bytes | None], _T]:
    """A reader of frames; `of` makes the reader of a body, once for each schema, by the type of the schema."""

    @cache
    def reading(number: int) -> Callable[[bytes], _T] | NoObject:
        found = registered(number)
        if found.type not in of:
            return NoObject("unusable_schema", f"schema {number} is {found.type}, and not {' or '.join(of)}")
        try:
            return of[found.type](found)
        except ConfigurationError as error:
            return NoObject("unusable_schema", f"schema {number}: {error}")

    def read(body: bytes | None) -> _T:
        body = given(body)
        if len(body) < _HEAD.size or body[:1] != MAGIC:
            raise NoObject("no_schema_id", f"{body[: _HEAD.size].hex()}: no 00 and four bytes at the beginning")
        found = reading(_HEAD.unpack_from(body)[1])
        if isinstance(found, NoObject):
            raise NoObject(found.reason, str(found))
        return found(body[_HEAD.size :])

    return read


_PATIENCE_S: Final = 10.0
_AGAIN_S: Final = 60.0
_MOST_BYTES: Final = 64 << 20
_MOST_REFERENCES: Final = 200
_SERIALIZED: Final = "?format=serialized"
_NOT_FOUND: Final = (40401, 40402, 40403)
"""The error codes for a missing subject, version or schema, which come with status 404."""


class SchemaRegistry:
    """The registry at `url`, which may have a path; with basic authentication if username and password are given."""

    def __init__(self, url: str, username: Secret | None = None, password: Secret | None = None) -> None:
        self._url = urlsplit(url)
        self._keys = None if username is None or password is None else (username, password)
        self._missing: dict[int, float] = {}

    def schema(self, number: int) -> Registered:
        """The schema with id `number`, as text.

        Raises NoObject if the registry has none, RegistryUnreachable, ConfigurationError.
        """
        return self._registered(number, "")

    def serialized(self, number: int) -> Registered:
        """Like `schema`, but a .proto comes as its file descriptor in base64."""
        found = self._registered(number, _SERIALIZED)
        try:
            if found.type == "PROTOBUF":
                base64.b64decode(found.text, validate=True)
        except ValueError:
            path = f"/schemas/ids/{number}{_SERIALIZED}"
            raise self._wrong(path, "a file descriptor in base64", found.text[:100]) from None
        return found

    def _registered(self, number: int, how: str) -> Registered:
        unknown = NoObject("unknown_schema", f"the registry has no schema {number}")
        if time.monotonic() - self._missing.get(number, -_AGAIN_S) < _AGAIN_S:
            raise unknown
        found = self._get(f"/schemas/ids/{number}{how}")
        if found is None:
            self._missing[number] = time.monotonic()
            raise unknown
        others: dict[str, str | None] = {}
        self._add_references(found, how, others)
        listed = tuple((name, text) for name, text in others.items() if text is not None)
        return Registered(found.get("schemaType", "AVRO"), found["schema"], listed)

    def _add_references(self, of: dict[str, Any], how: str, others: dict[str, str | None]) -> None:
        """Add the schemas that a schema uses to `others`, each after those that it uses itself.

        None stands for one whose own are still being added, which may refer to it again.
        """
        for one in of.get("references") or ():
            name = one["name"]
            if name in others:
                continue
            path = f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}{how}"
            if len(others) == _MOST_REFERENCES:
                raise self._wrong(path, f"at most {_MOST_REFERENCES} schemas that one refers to", "more")
            found = self._get(path)
            if found is None:
                raise self._wrong(path, "what a schema of its own refers to", "nothing")
            others[name] = None
            self._add_references(found, how, others)
            del others[name]  # it comes behind its own
            others[name] = found["schema"]

    def _get(self, path: str) -> dict[str, Any] | None:
        """The registry's answer; None if it says that there is no such thing."""
        status, body = self._asked(path)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        if status == http.HTTPStatus.NOT_FOUND and answer.get("error_code") in _NOT_FOUND:
            return None
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise self._away(path, f"{status}: {answer.get('message', body[:100])}")
        if status != http.HTTPStatus.OK or not _is_schema(answer):
            raise self._wrong(path, "a schema", f"{status}: {answer.get('message', body[:100])}")
        return answer

    def _asked(self, path: str) -> tuple[int, bytes]:
        """Send a request, and return its status and body. No proxy is used and no redirect followed: our keys are for
        this registry only."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=_PATIENCE_S)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._keys is not None:
            pair = ":".join(one.reveal() for one in self._keys)
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            connection.request("GET", self._url.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._away(path, error) from error
        finally:
            connection.close()

    def _away(self, path: str, found: object) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"the schema registry {self._url.geturl()} does not answer", expected=f"GET {path}", found=found,
            hint="The step is done again when it does; nothing of it was committed.",
        )  # fmt: skip

    def _wrong(self, path: str, expected: str, found: object) -> ConfigurationError:
        return ConfigurationError(
            f"the schema registry {self._url.geturl()} gives no schema", expected=f"{expected}, from GET {path}",
            found=found, hint="Is that its address, and may we read from it?",
        )  # fmt: skip


def _is_schema(answer: dict[str, Any]) -> bool:
    references = answer.get("references") or []
    return (
        isinstance(answer.get("schema"), str)
        and isinstance(answer.get("schemaType", ""), str)
        and isinstance(references, list)
        and all(map(_is_reference, references))
    )


def _is_reference(value: object) -> bool:
    match value:
        case {"name": str(), "subject": str(), "version": int()}:
            return True
    return False
