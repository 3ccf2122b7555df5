"""bench.quick: a ratio may fall by a quarter of the recorded one, and by no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import quick

RECORDED = {"catch-up": 4.0, "Kafka": 2.0, "decode": 6.0}


def test_ratios_as_recorded_or_better_pass() -> None:
    assert quick.too_low(RECORDED, RECORDED) == []
    assert quick.too_low({name: ratio * 3 for name, ratio in RECORDED.items()}, RECORDED) == []


def test_a_quarter_less_passes_and_a_little_more_than_that_does_not() -> None:
    assert quick.too_low({"catch-up": 3.0, "Kafka": 1.5, "decode": 4.5}, RECORDED) == []
    assert quick.too_low({"catch-up": 2.99, "Kafka": 1.5, "decode": 4.49}, RECORDED) == ["catch-up", "decode"]


def test_a_ratio_that_is_not_recorded_does_not_pass() -> None:
    assert quick.too_low({"catch-up": 4.0, "new": 9.0}, RECORDED) == ["new"]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """What is measured, by itself as recorded, and the record in a folder of its own."""
    ratios = dict(RECORDED)
    monkeypatch.setattr(quick, "measured", lambda: ratios)
    monkeypatch.setattr(quick, "RECORDED", tmp_path / "results" / "quick.json")
    return ratios


def test_what_is_recorded_is_what_counts_from_then_on(
    measured: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    quick.main(record=True)
    quick.main()
    assert "catch-up: 4.00 (recorded: 4.00)" in capsys.readouterr().out
    measured["Kafka"] = 1.4
    with pytest.raises(SystemExit, match=r"below 75% of the recorded ratio: Kafka$"):
        quick.main()


def test_without_a_record_of_these_sizes_it_fails_before_it_measures(
    measured: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "measured", lambda: pytest.fail("it measured"))
    with pytest.raises(SystemExit, match="has no ratios at these sizes"):
        quick.main()
    quick.RECORDED.parent.mkdir()
    quick.RECORDED.write_text(json.dumps({"sizes": quick.SIZES | {"records": 1}, "ratios": measured}))
    with pytest.raises(SystemExit, match="has no ratios at these sizes"):
        quick.main()
