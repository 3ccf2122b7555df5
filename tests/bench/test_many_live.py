"""The processor time of processes that come and go."""

from __future__ import annotations

from bench.many_live import ProcessorTime


def test_processor_time_counts_from_the_first_look_and_outlives_its_process() -> None:
    spent = ProcessorTime()
    assert spent.spent_s() == {}
    spent.look({1: ("jvm", 100.0), 2: ("workers", 50.0)})
    assert spent.spent_s() == {"jvm": 0.0, "workers": 0.0}
    spent.look({1: ("jvm", 101.0), 2: ("workers", 52.0), 3: ("workers", 0.5)})
    spent.look({1: ("jvm", 104.0), 3: ("workers", 0.75)})  # 2 has ended
    spent.look({1: ("jvm", 104.0)})
    assert spent.spent_s() == {"jvm": 4.0, "workers": 2.75}
