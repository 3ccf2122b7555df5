"""Bodies of Avro through a typed table: by a schema file, and by the schemas of a registry."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sinks.typed.definition import Reading
from sources.access.secrets import Secret
from sources.errors import RegistryUnreachable
from tests.pipeline.typed.test_steps import kill
from tests.pipeline.typed.world import World, fields
from tests.sinks.typed.formats.test_avro import encoded, record
from tests.sinks.typed.served_schemas import Served, frame

OLD = record("string", "int")
NEW = record("string", "long", ["null", {"type": "long", "logicalType": "timestamp-millis"}])
MOMENT = datetime(2026, 11, 25, 10, 30, tzinfo=UTC)
LARGE = 1 << 40


def test_what_did_not_fit_is_taken_once_more(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry learns a schema after its messages came; another one still does not fit, with a row for its rest."""
    old, new = encoded(OLD, {"f0": "a", "f1": 1}), encoded(NEW, {"f0": "b", "f1": LARGE, "f2": MOMENT})
    (tmp_path / "key").write_text("k")
    with closing(Served()) as served:
        served.answers["/schemas/ids/1"] = 200, {"schema": OLD}
        served.answers["/schemas/ids/3"] = 200, {"schema": record("string", "string")}
        how: dict[str, Any] = {"reading": Reading(format="avro", registry=served.url)}
        keyed = {"name": "by_key", "key": ("f0",), **how}
        misfit = encoded(record("string", "string"), {"f0": "c", "f1": "text"})
        world.send(frame(1, old), frame(2, new), frame(3, misfit), frame(9, old))
        served.answers["/schemas/ids/2"] = 503, {}
        with pytest.raises(RegistryUnreachable, match="503"):
            world.follow(**how)
        del served.answers["/schemas/ids/2"]
        world.follow(**how)
        world.follow(**keyed)
        unfit = [(row["table"], row["reason"]) for row in world.unfit()]
        assert sorted(unfit) == [(name, reason) for name in ("by_key", "orders")
                                 for reason in ("not_bigint", "unknown_schema", "unknown_schema")]  # fmt: skip

        served.answers["/schemas/ids/2"] = 200, {"schema": NEW}
        # As somebody else, whose tasks have not been told yet that there is no such schema
        key = Secret(f"file:{tmp_path}/key")
        other: dict[str, Any] = {"reading": Reading(format="avro", registry=served.url, username=key, password=key)}
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            kill(patched, "commit")  # between its dead letters, which are gone then, and its commit
            world.follower(**other).retry()
        world.follower(**other).bring_to_end()
        for how_now, taken in ((other, 2), ({**keyed, **other}, 2)):
            follower = world.follower(**how_now)
            assert follower.retry() == taken
            follower.bring_to_end()
    expected = [{"f0": "a", "f1": 1}, {"f0": "b", "f1": LARGE, "f2": MOMENT}, {"f0": "c"}]
    assert fields(world.rows()) == expected
    assert fields(world.rows("by_key")) == expected
    left = [(row["table"], row["reason"]) for row in world.unfit()]
    assert sorted(left) == [(name, reason) for name in ("by_key", "orders")
                            for reason in ("not_bigint", "unknown_schema")]  # fmt: skip
