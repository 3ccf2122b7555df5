"""What an entry log holds, by the definition, written as plainly as possible: all of it at once, file by file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

BATCH = 10**9
Piece = tuple[str, int, int, bytes]


@dataclass
class Naive:
    """`pieces` are entries and damage with their ranges and bytes; `broken` are the lines left at the end."""

    pieces: list[Piece] = field(default_factory=list)
    end: int = 0
    broken: list[bytes] = field(default_factory=list)
    lines: dict[int, bytes] = field(default_factory=dict)
    expired: int = 0


def naive(files: Mapping[int, bytes]) -> Naive:
    log = Naive(end=min(files) * BATCH if files else 0)
    for number in sorted(files):
        lines = files[number].split(b"\n")
        rest = lines.pop()
        for line in lines:
            _line(log, number, line + b"\n")
        if rest and number != max(files):
            _line(log, number, rest)
    return log


def _line(log: Naive, number: int, line: bytes) -> None:
    if len(line.rstrip(b"\n")) < 10:
        return
    entry_id = _id(number, line)
    if entry_id is None:
        log.broken.append(line)
    elif entry_id < max(log.end, 1):
        if log.lines.get(entry_id, line) != line:
            log.broken.append(line)
        else:
            log.expired += 1
    else:
        _damage(log, entry_id)
        log.pieces.append(("entry", log.end, entry_id + 1, line))
        log.lines[entry_id] = line
        log.end = entry_id + 1


def _damage(log: Naive, following: int) -> None:
    if not log.broken:
        return
    numbers = [int(match[0]) for line in log.broken if (match := re.match(rb"[0-9]+", line))]
    between = [number for number in numbers if log.end <= number < following]
    end = max(between) + 1 if between else following
    log.pieces.append(("damage", log.end, end, b"".join(log.broken)))
    log.end, log.broken = end, []


def _id(number: int, line: bytes) -> int | None:
    """None for what is no entry of this file."""
    match = re.fullmatch(rb"([0-9]+),([0-9]+),([^\n]*)\n", line)
    if match is None or int(match[1]) // BATCH != number:
        return None
    try:
        items = json.loads(match[3])
    except ValueError:
        return None
    if match[2] == b"300":
        is_right = isinstance(items, dict) and all(isinstance(value, str) for value in items.values())
    elif match[2] == b"310":
        is_right = isinstance(items, list) and all(isinstance(key, str) for key in items)
    else:
        is_right = True
    return int(match[1]) if is_right else None
