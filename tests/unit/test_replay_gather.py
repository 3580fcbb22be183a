"""Rows of a buffer are copied whole, however many threads share the work."""

from __future__ import annotations

import numpy as np
import pytest

from parl_lite.agents.replay import TransitionReplay, gather


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_each_row_is_where_it_was_asked_for(monkeypatch, n_threads, piece):
    monkeypatch.setattr(gather, "_WORTH_IT", 0)
    monkeypatch.setattr(gather, "_PIECE", piece)
    random = np.random.default_rng(0)
    values = [random.integers(0, 255, (50, 3, 4)).astype(np.uint8), random.random((20, 2)), np.arange(9)]
    wanted = [(array, random.integers(0, len(array), 33)) for array in values] + [(values[0], np.zeros(0, dtype=np.int64))]
    for taken, (array, rows) in zip(gather.take_rows(wanted, n_threads), wanted, strict=True):
        assert taken.dtype == array.dtype
        np.testing.assert_array_equal(taken, array[rows])


def test_a_batch_stays_as_it_was_when_its_rows_are_overwritten(monkeypatch):
    monkeypatch.setattr(gather, "_WORTH_IT", 0)
    buffer = TransitionReplay(40, n_threads=2)
    for number in range(6):
        buffer.add(rollout(number))
        if number == 0:
            batch = buffer.sample(16)
    assert (batch["obs"] == 0).all() and (batch["next_obs"] == 0).all()
    assert (buffer.sample(16)["obs"] > 0).all()


def rollout(number: int) -> dict[str, np.ndarray]:
    none = np.zeros((10, 1), dtype=bool)
    columns = {"obs": np.full((11, 1, 5), number, dtype=np.float32), "action": np.zeros((10, 1), dtype=np.int64)}
    return {**columns, "reward": np.ones((10, 1), np.float32), "terminated": none, "truncated": none}
