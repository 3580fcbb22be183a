"""An embedded cluster, one actor, all kinds of access."""

from __future__ import annotations

import pytest

import parl_lite


@parl_lite.remote_class
class Counter:
    """Counts."""

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def add(self, k: int = 1) -> int:
        self.n += k
        return self.n

    def fail(self) -> None:
        raise KeyError("lost")


def test_an_actor_counts_in_another_process(cluster):
    counter = Counter(3)
    assert counter.add(2) == 5
    assert counter.n == 5
    counter.n = 7
    assert [future.result() for future in [counter.futures.add() for _ in range(5)]] == [8, 9, 10, 11, 12]


def test_an_actor_survives_its_own_exception(cluster):
    counter = Counter()
    with pytest.raises(KeyError, match="lost"):
        counter.fail()
    assert counter.add() == 1


def test_creating_before_connecting_says_what_to_do():
    parl_lite.disconnect()
    with pytest.raises(parl_lite.NotConnectedError, match=r"parl_lite\.connect\(\)"):
        Counter()
