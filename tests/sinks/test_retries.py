"""How long is waited between tries."""

from __future__ import annotations

from itertools import pairwise

from sinks.delta.retries import doubled_s


def test_waits_double_up_to_the_most_however_long_a_master_is_away() -> None:
    waits = [doubled_s(1.0, tries, 30.0) for tries in range(5000)]
    assert waits[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert set(waits[6:]) == {30.0}
    assert all(later == 2 * wait for wait, later in pairwise(doubled_s(0.5, tries, 1e6) for tries in range(20)))
