"""What the collector writes, in a buffer: steps as they happened in each autoreset mode, no pseudo-step among them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parl_lite.agents.collector import Collector
from parl_lite.agents.replay import SequenceReplay, TransitionReplay


class Counter(gymnasium.Env):
    """Observations count the steps of an episode of `length` steps; one of them tells environments apart."""

    def __init__(self, length: int, terminates: bool) -> None:
        self.length, self.terminates = length, terminates
        self.observation_space, self.action_space = Box(0, 100, (2,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        self.t += 1
        ends = self.t == self.length
        return self.look(), 1.0, ends and self.terminates, ends and not self.terminates, {}

    def look(self):
        return np.array([self.t, self.length], np.float32)


class Left:
    """Always the first action."""

    squashes = False

    def __call__(self, obs, first):
        return np.zeros(len(first), np.int64), np.zeros((len(first), 2), np.float32)

    def log_prob(self, params, action):
        return np.zeros(len(action), np.float32)

    def state(self):
        return ()


def collector(mode: AutoresetMode, unroll_length: int) -> Collector:
    envs = SyncVectorEnv([partial(Counter, 3, True), partial(Counter, 4, False)], autoreset_mode=mode)
    return Collector(envs, Left(), unroll_length, [1, 2])


@pytest.mark.parametrize("unroll_length", [1, 4])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_transitions_are_the_steps_that_were_made(mode, unroll_length):
    collecting, buffer = collector(mode, unroll_length), TransitionReplay(1000, gamma=0.5)
    for _ in range(12 // unroll_length):
        buffer.add(collecting.collect())
    batch = buffer._read(np.flatnonzero(buffer.sampler.present))
    t, length = batch["obs"].T
    counts = {3: 9, 4: 10} if mode == AutoresetMode.NEXT_STEP else {3: 12, 4: 12}
    assert {n: int((length == n).sum()) for n in (3, 4)} == counts
    np.testing.assert_array_equal(batch["next_obs"], np.stack([t + 1, length], axis=-1))
    np.testing.assert_array_equal(batch["discount"], np.where((length == 3) & (t == 2), 0.0, 0.5))
    assert (batch["reward"] == 1).all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_sequences_have_the_final_observations_as_rows_that_are_no_step(mode):
    collecting, buffer = collector(mode, 4), SequenceReplay(1000, length=8)
    for _ in range(4):
        buffer.add(collecting.collect())
    batch = buffer._read(np.flatnonzero(buffer.sampler.present)[:1])
    assert batch["obs"][:, 0].tolist() == [[t, 3] for t in (0, 1, 2, 3, 0, 1, 2, 3)]
    assert batch["valid"][:, 0].tolist() == [True, True, True, False] * 2
    assert batch["first"][:, 0].tolist() == [True, False, False, False] * 2
