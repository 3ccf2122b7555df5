"""Statistics of log ids as older versions and Delta's OPTIMIZE write them: cut at 32 characters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHARACTERS = 32


def cut_statistics(table: Path, tie_breaker: str) -> int:
    """Cut those of every file that was ever added; how many had a longer id."""
    folder = table / "_delta_log"
    for derived in (*folder.glob("*.checkpoint*.parquet"), *folder.glob("*.crc"), *folder.glob("_last_checkpoint")):
        derived.unlink()
    return sum(_cut_in(commit, tie_breaker) for commit in sorted(folder.glob("*.json")))


def _cut_in(commit: Path, tie_breaker: str) -> int:
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    cut = [_cut(action["add"], tie_breaker) for action in actions if "add" in action]
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return sum(cut)


def _cut(add: dict[str, Any], tie_breaker: str) -> bool:
    statistics = json.loads(add["stats"])
    least, greatest = statistics["minValues"]["log_id"], statistics["maxValues"]["log_id"]
    statistics["minValues"]["log_id"] = least[:CHARACTERS]
    if len(greatest) > CHARACTERS:
        statistics["maxValues"]["log_id"] = greatest[:CHARACTERS] + tie_breaker
    add["stats"] = json.dumps(statistics)
    return len(greatest) > CHARACTERS
