"""bench.quick: what is measured is compared with what is recorded at the same sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import quick


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """What is measured, and the record in a folder of its own."""
    ratios = {"catch-up": 4.0, "Kafka": 2.0, "decode": 6.0}
    monkeypatch.setattr(quick.Looks, "__call__", lambda _, names: {name: ratios[name] for name in names})
    monkeypatch.setattr(quick, "RECORDED", tmp_path / "results" / "quick.json")
    return ratios


def test_what_is_recorded_is_what_counts_from_then_on(
    measured: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    quick.main(record=True)
    quick.main()
    assert "catch-up: 4.00 (recorded: 4.00)" in capsys.readouterr().out
    measured["Kafka"] = 1.4
    with pytest.raises(SystemExit, match=r"^twice below 75% of the recorded ratio: Kafka$"):
        quick.main()


def test_without_a_record_of_these_sizes_it_fails_before_it_measures(
    measured: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick.Looks, "__call__", lambda *_: pytest.fail("it measured"))
    with pytest.raises(SystemExit, match="has no ratios at these sizes"):
        quick.main()
    quick.RECORDED.parent.mkdir()
    quick.RECORDED.write_text(json.dumps({"sizes": quick.SIZES | {"records": 1}, "ratios": measured}))
    with pytest.raises(SystemExit, match="has no ratios at these sizes"):
        quick.main()
