"""A schema registry with Confluent's REST interface: what stands for a number. Tasks ask it, once for each.

    GET /schemas/ids/{id}                       {"schema": …, "schemaType": …, "references": [{name, subject, version}]}
    GET /subjects/{subject}/versions/{version}  the same, of a reference

``?format=serialized`` gives of a .proto its file descriptor, in base64, so that nobody has to compile it. An answer
counts as long as the process lives; "not found" for `_AGAIN_S`.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import Any, Final
from urllib.parse import quote, urlsplit

from sinks.typed.formats.confluent import Registered
from sinks.typed.formats.json_fields import NoObject
from sources.access.secrets import Secret
from sources.errors import ConfigurationError, RegistryUnreachable

_PATIENCE_S: Final = 10.0
_AGAIN_S: Final = 60.0
_MOST_BYTES: Final = 64 << 20
_SERIALIZED: Final = "?format=serialized"
_NOT_FOUND: Final = (40401, 40402, 40403)
"""Subject, version, schema: what a registry says beside 404."""


class Registry:
    """At a URL, which may have a path; with basic authentication where username and password say where they are."""

    def __init__(self, url: str, username: Secret | None = None, password: Secret | None = None) -> None:
        self._url = urlsplit(url)
        self._keys = None if username is None or password is None else (username, password)
        self._missing: dict[int, float] = {}

    def schema(self, number: int) -> Registered:
        """What has that number, as text.

        Raises NoObject where the registry has none, RegistryUnreachable, ConfigurationError.
        """
        return self._registered(number, "")

    def serialized(self, number: int) -> Registered:
        """The same, of a .proto its file descriptor in base64."""
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
        others: dict[str, str] = {}
        self._add_references(found, how, others)
        return Registered(found.get("schemaType", "AVRO"), found["schema"], tuple(others.items()))

    def _add_references(self, of: dict[str, Any], how: str, others: dict[str, str]) -> None:
        """What a schema uses, each after what that uses itself."""
        for one in of.get("references") or ():
            if one["name"] in others:
                continue
            path = f"/subjects/{quote(one['subject'], safe='')}/versions/{one['version']}{how}"
            found = self._get(path)
            if found is None:
                raise self._wrong(path, "what a schema of its own refers to", "nothing")
            self._add_references(found, how, others)
            others[one["name"]] = found["schema"]

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer; None where the registry says that there is no such thing."""
        status, body = self._asked(path)
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        if status == http.HTTPStatus.NOT_FOUND and answer.get("error_code") in _NOT_FOUND:
            return None
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise self._away(path, f"{status}: {answer.get('message', body[:100])}")
        if status != http.HTTPStatus.OK or not isinstance(answer.get("schema"), str):
            raise self._wrong(path, "a schema", f"{status}: {answer.get('message', body[:100])}")
        return answer

    def _asked(self, path: str) -> tuple[int, bytes]:
        """Neither a proxy nor another address that it names is asked: our keys are for this one."""
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
