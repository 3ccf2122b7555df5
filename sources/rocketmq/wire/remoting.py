"""Remoting frames, the wire format between RocketMQ's brokers, name servers and clients. Sans-I/O.

A frame (`RemotingCommand`, `NettyDecoder`); integers are big-endian:

=====  ==============  ==================================================================
bytes  field           meaning
=====  ==============  ==================================================================
i32    length          bytes after this field
i32    header word     top byte: serialization of the header, 0 JSON, 1 binary; low 24
                       bits: length of the header
n      header          code, flag, opaque, remark, ext fields
rest   body            depends on the request code
=====  ==============  ==================================================================

The JSON header has the keys `code`, `language`, `version`, `opaque`, `flag`, `remark`, `extFields` (string to string)
and `serializeTypeCurrentRPC`. The binary header (`RocketMQSerializable`):

=====  ==============  ==================================================================
i16    code            request or response code
i8     language        index into LANGUAGES
i16    version         of the sender; 0 will do
i32    opaque          id of the request, echoed by the response
i32    flag            bit 0: a response, bit 1: no response wanted
i32 n  remark          length, 0 for none, and UTF-8
i32 n  ext fields      length of them all; each: i16 length, key, i32 length, value
=====  ==============  ==================================================================

JSON bodies come from fastjson, which leaves integer keys of maps unquoted: `loads` reads them.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from sources.errors import MasterRefused, ProtocolViolation

FRAME_HEAD: Final = struct.Struct(
    ">"
    "i"  # length
    "I"  # header word: serialization and header length
)
LENGTH: Final = struct.Struct(">i")
BINARY_HEAD: Final = struct.Struct(
    ">"
    "h"  # code
    "b"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
    "i"  # remark length
)
_KEY_LENGTH: Final = struct.Struct(">h")
_VALUE_LENGTH: Final = struct.Struct(">i")

DEFAULT_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The default of `com.rocketmq.remoting.frameMaxLength`, which counts the length field, too."""

LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
    "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip
_HEADER_LENGTH_MASK: Final = 0xFFFFFF
MASTER_ID: Final = "0"
"""The broker id of a master; its slaves have others."""
_RESPONSE_FLAG: Final = 1
_ONE_WAY_FLAG: Final = 2

Buffer = bytes | bytearray | memoryview


class Serialization(IntEnum):
    """The encoding of a header. Brokers read both; 4.9.7 answers as it was asked, 5.5.0 answers sends in JSON."""

    JSON = 0
    ROCKETMQ = 1


class RequestCode(IntEnum):
    """The kind of a request (`RequestCode` of rocketmq-remoting)."""

    SEND_MESSAGE = 10
    UPDATE_CONSUMER_OFFSET = 15
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    CONTROLLER_GET_REPLICA_INFO = 1004


class ResponseCode(IntEnum):
    """The result of a request (`ResponseCode`, `RemotingSysResponseCode`). 10 to 12: stored, with a warning."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    INVALID_PARAMETER = 29


@dataclass(frozen=True, slots=True)
class Command:
    """One frame, a request or a response. `code` stays a plain int: peers may send codes not named here."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext_fields: dict[str, str] = field(default_factory=dict)
    remark: str | None = None
    body: bytes = b""
    serialization: Serialization = Serialization.JSON
    language: str = "OTHER"
    version: int = 0

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & _ONE_WAY_FLAG)

    def response(
        self, code: int, *, ext_fields: dict[str, str] | None = None, remark: str | None = None, body: bytes = b""
    ) -> Command:
        """Return a response to this request, with the same opaque and serialization."""
        return Command(
            code=code,
            opaque=self.opaque,
            flag=_RESPONSE_FLAG,
            ext_fields=ext_fields or {},
            remark=remark,
            body=body,
            serialization=self.serialization,
            language=self.language,
        )


def encode_command(command: Command) -> bytes:
    """Return the whole frame, length field first."""
    header = _ENCODE_HEADER[command.serialization](command)
    word = command.serialization << 24 | len(header)
    return FRAME_HEAD.pack(LENGTH.size + len(header) + len(command.body), word) + header + command.body


def decode_command(frame: Buffer) -> Command:
    """Decode one whole frame, length field first. Raises ProtocolViolation."""
    data = bytes(frame)
    if len(data) < FRAME_HEAD.size:
        raise _violation(f"at least {FRAME_HEAD.size} bytes", f"a frame of {len(data)}")
    length, word = FRAME_HEAD.unpack_from(data)
    if length != len(data) - LENGTH.size:
        raise _violation(f"a length field of {len(data) - LENGTH.size}", length)
    body_at = FRAME_HEAD.size + (word & _HEADER_LENGTH_MASK)
    if body_at > len(data):
        raise _violation(f"a header of at most {len(data) - FRAME_HEAD.size} bytes", word & _HEADER_LENGTH_MASK)
    decode_header = _DECODE_HEADER.get(word >> 24)
    if decode_header is None:
        raise _violation("header serialization 0 (JSON) or 1 (binary)", word >> 24)
    return decode_header(data[FRAME_HEAD.size : body_at], data[body_at:])


def accepted(request_code: int, answer: Command, by: str) -> Command:
    """Return `answer` if it is a success. Raises MasterRefused with `by` whom, code and remark."""
    if answer.code != ResponseCode.SUCCESS:
        raise MasterRefused(
            f"{by} refused request {code_name(RequestCode, request_code)}",
            expected="code 0",
            found=f"code {code_name(ResponseCode, answer.code)}: {answer.remark or 'no remark'}",
            hint="The code and the remark are its own; its log says more.",
        )
    return answer


def code_name(codes: type[IntEnum], code: int) -> str:
    """Return for example ``"28 GET_BROKER_RUNTIME_INFO"``; a code without a name stays a number."""
    names = {int(known): known.name for known in codes}
    return f"{code} {names.get(code, '')}".rstrip()


class FrameBuffer:
    """Takes what the socket gave, in pieces of any size, and returns whole frames.

    A length is checked as soon as its four bytes are there, before making room for the frame.
    """

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()

    def feed(self, data: Buffer) -> list[Command]:
        """Return the commands that `data` completes. After a ProtocolViolation the stream is of no use."""
        self._pending += data
        commands = []
        at = 0
        with memoryview(self._pending) as view:
            while (end := self._frame_end(at)) is not None:
                commands.append(decode_command(view[at:end]))
                at = end
        del self._pending[:at]
        return commands

    def _frame_end(self, at: int) -> int | None:
        """Return where the frame that starts at `at` ends; None if not all of it has come."""
        if len(self._pending) - at < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._pending, at)
        if not LENGTH.size <= length <= self._max_frame_bytes - LENGTH.size:
            raise _violation(f"a frame of 8 to {self._max_frame_bytes} bytes", f"a length field of {length}")
        end = at + LENGTH.size + int(length)
        return end if end <= len(self._pending) else None


_compact: Final = json.JSONEncoder(separators=(",", ":")).encode


def _encode_json_header(command: Command) -> bytes:
    header: dict[str, Any] = {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "serializeTypeCurrentRPC": "JSON",
    }
    if command.remark is not None:
        header["remark"] = command.remark
    if command.ext_fields:
        header["extFields"] = command.ext_fields
    return _compact(header).encode()


def _decode_json_header(data: bytes, body: bytes) -> Command:
    try:
        header = json.loads(data)
        return Command(
            code=int(header["code"]),
            opaque=int(header.get("opaque", 0)),
            flag=int(header.get("flag", 0)),
            ext_fields={str(name): str(value) for name, value in (header.get("extFields") or {}).items()},
            remark=None if header.get("remark") is None else str(header["remark"]),
            body=body,
            serialization=Serialization.JSON,
            language=str(header.get("language", "OTHER")),
            version=int(header.get("version", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _violation(
            "a header with code, opaque, flag and extFields", data[:200].decode("utf-8", "replace")
        ) from error


def _encode_binary_header(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    ext_fields = b"".join(_encode_pair(name, value) for name, value in command.ext_fields.items())
    head = BINARY_HEAD.pack(
        command.code,
        LANGUAGES.index(command.language),
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return head + remark + _VALUE_LENGTH.pack(len(ext_fields)) + ext_fields


def _encode_pair(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return _KEY_LENGTH.pack(len(key)) + key + _VALUE_LENGTH.pack(len(text)) + text


def _decode_binary_header(data: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_bytes = BINARY_HEAD.unpack_from(data)
        remark, at = _take(data, BINARY_HEAD.size, remark_bytes)
        ext_bytes, at = _take_length(data, at, _VALUE_LENGTH)
        ext_fields = _decode_pairs(data[at : at + ext_bytes])
        if at + ext_bytes > len(data):
            raise _violation(f"{ext_bytes} bytes of ext fields", len(data) - at)
    except (struct.error, UnicodeDecodeError) as error:
        raise _violation("a whole binary header", f"{len(data)} bytes: {error}") from error
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        ext_fields=ext_fields,
        remark=remark or None,
        body=body,
        serialization=Serialization.ROCKETMQ,
        language=LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER",
        version=version,
    )


def _decode_pairs(data: bytes) -> dict[str, str]:
    pairs = {}
    at = 0
    while at < len(data):
        key_bytes, at = _take_length(data, at, _KEY_LENGTH)
        key, at = _take(data, at, key_bytes)
        value_bytes, at = _take_length(data, at, _VALUE_LENGTH)
        pairs[key], at = _take(data, at, value_bytes)
    return pairs


def _take_length(data: bytes, at: int, form: struct.Struct) -> tuple[int, int]:
    return int(form.unpack_from(data, at)[0]), at + form.size


def _take(data: bytes, at: int, size: int) -> tuple[str, int]:
    """Read `size` bytes of UTF-8 from `at`; return the text and where it ends."""
    if not 0 <= size <= len(data) - at:
        raise _violation(f"a text of at most {len(data) - at} bytes", size)
    return data[at : at + size].decode(), at + size


_ENCODE_HEADER: Final = {
    Serialization.JSON: _encode_json_header,
    Serialization.ROCKETMQ: _encode_binary_header,
}
_DECODE_HEADER: Final = {
    int(Serialization.JSON): _decode_json_header,
    int(Serialization.ROCKETMQ): _decode_binary_header,
}

# A string that does not end takes the whole rest, so that no byte is looked at from each quote before it.
_STRING_OR_INTEGER_KEY: Final = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|([{,]\s*+)(-?[0-9]++)(?=\s*+:)', re.DOTALL)


def quote_integer_keys(text: str) -> str:
    """Turn fastjson's maps with unquoted integer keys into JSON, in linear time. Strings are left alone."""
    return _STRING_OR_INTEGER_KEY.sub(lambda match: match[1] or f'{match[2]}"{match[3]}"', text)


def loads(data: Buffer | str) -> Any:
    """Parse JSON written by fastjson; integer keys become strings. Raises ProtocolViolation."""
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(quote_integer_keys(text))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise _violation("JSON", error) from error


def _violation(expected: object, found: object) -> ProtocolViolation:
    return ProtocolViolation(
        "not a frame of RocketMQ's remoting protocol",
        expected=expected,
        found=found,
        hint="Check that the address is a broker's normal (listen) port, not its HA port.",
    )
