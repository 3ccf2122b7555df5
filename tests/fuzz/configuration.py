"""Configuration files: the shipped one and small ones, with other words, numbers and bytes in them."""

import functools
import random
import tempfile
from pathlib import Path

from pipeline.config.configuration import load
from sources.errors import ConfigurationError
from tests.fuzz.mutations import LONG_DIGITS, mutated, text

CONF = Path(__file__).parents[2] / "conf"
SMALL = """
warehouse = "lake"
[[logs]]
id = "rocketmq/broker-a"
path = "/mnt/commitlog"
on_loss = "record"
[[topics]]
cluster = "prod"
topics = ["orders"]
servers = "broker-1:9092"
group = "logtwin"
[metrics]
port = 9100
"""
VALUES = ("1", "-1", "0.0", "nan", "inf", "true", '""', '"x"', "[]", "[[]]", "{}", "{a = 1}", "1979-05-27",
          '"env:NONE"',           '"file:/nowhere"', "0x10", "[" * 2000, "{a = " * 500, *LONG_DIGITS)  # fmt: skip


@functools.cache
def shipped() -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted(CONF.glob("*.toml")))


def check(rng: random.Random) -> None:
    """A configuration, or an error that names the file."""
    lines = rng.choice((*shipped(), SMALL, SMALL)).splitlines()
    for _ in range(rng.randint(0, 3)):
        _change(lines, rng)
    data = mutated("\n".join(lines).encode("utf-8", "replace"), rng, rng.choice((0, 0, 3)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_bytes(data)
        try:
            load(path)
        except ConfigurationError as error:
            assert str(path) in str(error)


def _change(lines: list[str], rng: random.Random) -> None:
    at = rng.randrange(len(lines)) if lines else 0
    name = lines[at].lstrip("# ").partition("=")[0].strip() if lines else ""
    match rng.randrange(4):
        case 0:
            lines.insert(at, f"{name or 'x'} = {rng.choice(VALUES)}")
        case 1 if lines:
            lines[at] = f"{name or 'x'} = {rng.choice(VALUES)}"
        case 2 if lines:
            lines[at] = lines[at].lstrip("# ")
        case _:
            lines.insert(
                at, rng.choice((f"[{name}]", "[[logs]]", f'"{text(rng)}" = 1', "[logs.x]", f"{text(rng)} = 1"))
            )
