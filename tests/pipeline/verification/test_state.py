"""What an interrupted verification leaves, and what counts of it later."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.verify.plan import At, ClaimSection
from pipeline.verify.state import Asked, VerifyFile, VerifyState, key_of
from sinks.proof.verdicts import Claim
from sources.offsets import Offset, OffsetRange

ASKED = Asked(place="/log", epoch=0, share=0.1, seed=7)
STATE = VerifyState(asked=ASKED, begun_at="2026-11-21T10:00:00+00:00")


def section(*edges: int, checksum: str = "sha256:00") -> ClaimSection:
    ranges = (OffsetRange(Offset(start), Offset(end)) for start, end in pairwise(edges))
    return ClaimSection(tuple(Claim(one, checksum, 1) for one in ranges), At.MASTER)


def test_it_comes_back(tmp_path: Path) -> None:
    file = VerifyFile(str(tmp_path / "ä b"), "rocketmq/broker-a")
    assert file.read() is None
    state = STATE.with_proven([section(0, 10, 20)])
    file.write(STATE)
    file.write(state)
    assert file.read() == state
    assert [path.name for path in tmp_path.rglob("*.json*")] == ["broker-a.json"]
    file.remove()
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"asked": {"speed": 1}, "begun_at": "", "proven": []}'])
def test_what_cannot_be_read_is_no_run(tmp_path: Path, text: str) -> None:
    file = VerifyFile(str(tmp_path), "rocketmq/broker-a")
    file.write(STATE)
    (tmp_path / "_verify/rocketmq/broker-a.json").write_text(text)
    assert file.read() is None


def test_a_section_is_known_by_what_the_ledger_says() -> None:
    state = STATE.with_proven([section(0, 10, 20), section(20, 30)])
    assert state.holds(section(0, 10, 20))
    assert state.holds(replace(section(20, 30), at=At.GONE))
    assert not state.holds(section(0, 20))
    assert not state.holds(section(0, 10, 20, 30))
    assert not state.holds(section(20, 30, checksum="sha256:01"))
    assert len({key_of(section(0, 10)), key_of(section(0, 1)), key_of(section(1, 10))}) == 3
