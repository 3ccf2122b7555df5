"""What a run knows of a table without asking: as long as only itself commits."""

from collections.abc import Sequence

from sinks.delta.commits import OwnChain


class Asked:
    def __init__(self) -> None:
        self.chain: OwnChain[str, int] = OwnChain()
        self.asked: list[list[str]] = []

    def values(self, version: int, *names: str) -> dict[str, int]:
        def ask(unknown: Sequence[str]) -> dict[str, int]:
            self.asked.append(list(unknown))
            return dict.fromkeys(unknown, version)

        return self.chain.values(version, names, ask)


def test_what_is_known_is_not_asked_again_and_the_rest_at_once() -> None:
    one = Asked()
    assert one.values(1, "a", "b") == {"a": 1, "b": 1}
    assert one.values(1, "b", "c", "d") == {"b": 1, "c": 1, "d": 1}
    assert one.asked == [["a", "b"], ["c", "d"]]


def test_a_commit_of_its_own_leads_on_and_what_others_have_committed_is_asked_for() -> None:
    one = Asked()
    one.values(1, "a", "b")
    one.chain.committed(1, 2, {"a": 70})
    assert one.values(2, "a", "b") == {"a": 70, "b": 1}
    assert len(one.asked) == 1
    one.chain.committed(2, 4, {"a": 70})  # version 3 is another's
    assert one.values(4, "a") == {"a": 4}
    assert one.values(5, "a") == {"a": 5}
    one.chain.committed(4, 6, {"a": 70})  # built on what it did not look at last
    assert one.values(6, "a") == {"a": 6}
    one.chain.claimed(7, {"a": 70})  # whatever was before
    assert one.values(7, "a", "b") == {"a": 70, "b": 7}
    assert one.asked[-1] == ["b"]
