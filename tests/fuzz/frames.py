"""HA frames, and remoting frames with headers of both kinds: what comes of any bytes, in pieces of any size."""

import functools
import json
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from sources.errors import LogtwinError, ProtocolViolation
from sources.offsets import Offset
from sources.rocketmq import broker_words
from sources.rocketmq.wire.ha import FRAME_HEAD, Frame, FrameParser, encode_frame
from sources.rocketmq.wire.remoting import Command, FrameBuffer, Serialization, decode_command, encode_command, loads
from tests import truth
from tests.fuzz.mutations import LONG_DIGITS, in_pieces, mutated, text

MAX_BYTES = 1 << 16


@functools.cache
def captured() -> tuple[bytes, ...]:
    """What went over the wire between brokers and clients: streams of remoting frames, or one of HA."""
    found: list[bytes] = []
    for version in truth.VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            wire = truth.extract(version, Path(folder)).path / "wire"
            found += [path.read_bytes()[:MAX_BYTES] for path in sorted(wire.iterdir()) if path.suffix == ".bin"]
    return tuple(found)


def check_ha(rng: random.Random) -> None:
    """The frames that a plain walk finds, and an error just where it does."""
    start = rng.choice((0, 5, 2**40))
    data = mutated(_ha_stream(rng, start) if rng.random() < 0.7 else rng.choice(captured()), rng)
    expected = rng.choice((Offset(start), None))
    frames, is_wrong = _plain_frames(data, expected)
    found, failed = _fed(data, in_pieces(data, rng), expected)
    assert failed == is_wrong
    assert found == (frames[: len(found)] if failed else frames)


def _ha_stream(rng: random.Random, at: int) -> bytes:
    parts = []
    for _ in range(rng.randint(0, 6)):
        body = rng.randbytes(rng.choice((0, 0, 1, 100, 3000)))
        parts.append(encode_frame(Offset(at), body))
        at += len(body)
    return b"".join(parts)


def _plain_frames(data: bytes, expected: int | None) -> tuple[list[Frame], bool]:
    frames: list[Frame] = []
    at = 0
    while len(data) - at >= FRAME_HEAD.size:
        offset, size = FRAME_HEAD.unpack_from(data, at)
        if offset < 0 or not 0 <= size <= MAX_BYTES or (expected is not None and offset != expected):
            return frames, True
        at += FRAME_HEAD.size + size
        if at > len(data):
            break
        frames.append(Frame(offset, data[at - size : at]))
        expected = offset + size
    return frames, False


def _fed(data: bytes, pieces: list[bytes], expected: Offset | None) -> tuple[list[Frame], bool]:
    assert b"".join(pieces) == data
    parser, frames = FrameParser(expected, MAX_BYTES), []
    for piece in pieces:
        try:
            frames += parser.feed(piece)
        except ProtocolViolation:
            return frames, True
    return frames, False


def check_remoting(rng: random.Random) -> None:
    """Commands of the types that they promise, which come back from their own bytes; or ProtocolViolation."""
    data = _remoting_stream(rng)
    buffer = FrameBuffer(MAX_BYTES)
    for piece in in_pieces(data, rng):
        try:
            commands = buffer.feed(piece)
        except ProtocolViolation:
            break
        for command in commands:
            _check_command(command)
    _check_words(rng)


def _remoting_stream(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return mutated(rng.choice(captured()), rng)
    if rng.random() < 0.4:
        header = _json_header(rng)
        return (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header
    fields = {text(rng)[:9000]: text(rng)[:9000] for _ in range(rng.randint(0, 4))}
    command = Command(
        code=rng.randint(-(2**15), 2**15 - 1), opaque=rng.randint(-(2**31), 2**31 - 1), flag=rng.randint(0, 3),
        ext_fields=fields, remark=rng.choice((None, text(rng), _repeated(rng))),
        body=rng.choice((rng.randbytes(20), _repeated(rng).encode())),
        serialization=rng.choice(tuple(Serialization)),
    )  # fmt: skip
    return mutated(encode_command(command), rng)


def _repeated(rng: random.Random) -> str:
    """Of a broker that says one thing again and again: what makes a parser of JSON go on, or begin anew."""
    again = rng.choice(('\\"', "\\", '"', '"",', "{", "[", "[{},", '{"a":', "{1:", ",1", "1", ", ", "\n", " ", "\\u"))
    return rng.choice(("", '"', "{", '{"a":"', "[1", "{1")) + again * rng.choice((1, 40, 3000, 20_000))


def _json_header(rng: random.Random) -> bytes:
    plain = ("1", "-1", '"1"', "null", "[]", "{}", "1.5", "true", '{"a":1}', '{"a":null}')
    odd = (_repeated(rng), json.dumps(_repeated(rng)), *plain, "[" * 2000, *LONG_DIGITS)
    names = ("code", "opaque", "flag", "version", "language", "remark", "extFields")
    pairs = [f'"{name}":{rng.choice(odd)}' for name in names if rng.random() < 0.6]
    return ("{" + ",".join(pairs) + "}").encode()


def _check_command(command: Command) -> None:
    assert all(type(number) is int for number in (command.code, command.opaque, command.flag, command.version))
    assert command.remark is None or type(command.remark) is str
    assert all(type(name) is str and type(value) is str for name, value in command.ext_fields.items())
    if command.serialization is Serialization.JSON:
        assert decode_command(encode_command(command)) == command
    with suppress(ProtocolViolation):
        loads(command.body)


def _check_words(rng: random.Random) -> None:
    """What a broker says of itself, whatever it says: values, or an error with a name."""
    numbers = ("0", "-1", "1073741824", "--5", " 7", text(rng))
    names = ("commitLogMinOffset", "commitLogMaxOffset", "commitLogDiskRatio", "mappedFileSizeCommitLog",
             "haListenPort", "fileReservedTime", "inSyncReplicas", "haHousekeepingInterval", "brokerIP2")  # fmt: skip
    words = {name: rng.choice(numbers) for name in names if rng.random() < 0.8}
    words["commitLogDirCapacity"] = rng.choice(
        ("Total : 250.9 GiB, Free", "Total : " + rng.choice(LONG_DIGITS) + " GiB")
    )
    asked: tuple[Any, ...] = (
        broker_words.log_bounds, broker_words.ha_address, broker_words.takes_turns, broker_words.counted_for_s,
        broker_words.files, lambda some: broker_words.retention(some, some),
    )  # fmt: skip
    for ask in asked:
        try:
            ask(words)
        except LogtwinError as error:
            json.dumps(error.facts())
