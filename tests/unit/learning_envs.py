"""Tiny deterministic environments for the tests of the learning half."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Counter(gymnasium.Env):
    """The observation counts the steps of an episode; reward 1 each; the end comes after `length` steps."""

    observation_space = Box(0, np.inf, (1,), np.float32)

    def __init__(self, length: int, ends: str = "terminated", first_action: int = 0) -> None:
        self.length = length
        self.ends = ends
        self.action_space = Discrete(2, start=first_action)
        self.actions: list[int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        self.actions.append(int(action))
        self.count += 1
        ended = self.count == self.length
        return self._obs(), 1.0, ended and self.ends == "terminated", ended and self.ends == "truncated", {}

    def _obs(self):
        return np.array([self.count], dtype=np.float32)


class Alternating:
    """A policy: action 0 after even counts, 1 after odd ones, with the count and its negative as parameters."""

    squashes = False

    def __call__(self, obs, first):
        action = obs[:, 0].astype(np.int64) % 2
        return action, np.stack([obs[:, 0], -obs[:, 0]], axis=1)

    def log_prob(self, params, action):
        return -action.astype(np.float32)

    def state(self):
        return ()


class Corridor(gymnasium.Env):
    """Walk right from 0 to 4 within 20 steps: reward 1 at the end, -0.1 for every step."""

    observation_space = Box(0, 1, (5,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.count = 0, 0
        return self._obs(), {}

    def step(self, action):
        self.count += 1
        self.place = max(0, self.place + (1 if action else -1))
        arrived = self.place == 4
        return self._obs(), float(arrived) - 0.1, arrived, not arrived and self.count == 20, {}

    def _obs(self):
        return np.eye(5, dtype=np.float32)[self.place]


class Recall(gymnasium.Env):
    """A bit is shown in the first of four steps; repeating it in the last earns 1, the other -1. Needs a memory."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.bit = 0, int(self.np_random.integers(2))
        return np.array([2 * self.bit - 1, 0], dtype=np.float32), {}

    def step(self, action):
        self.count += 1
        reward = (1.0 if action == self.bit else -1.0) if self.count == 4 else 0.0
        return np.array([0, self.count / 4], dtype=np.float32), reward, self.count == 4, False, {}


class Lock(gymnasium.Env):
    """A lock of 14 turns, one action right for each; a wrong one goes back to the start. An episode has 14 steps, and only all
    turns pay, 1: chance opens it once in 2^14 episodes."""

    length = 14
    action_space = Discrete(2)
    observation_space = Box(0, 1, (length + 1,), np.float32)
    right = np.arange(length) * 7 % 3 % 2

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.count = 0, 0
        return self._obs(), {}

    def step(self, action):
        self.count += 1
        self.place = self.place + 1 if action == self.right[self.place] else 0
        return self._obs(), float(self.place == self.length), self.count == self.length, False, {}

    def _obs(self):
        return np.eye(self.length + 1, dtype=np.float32)[self.place]


class Aim(gymnasium.Env):
    """Episodes of one step: the nearer two numbers come to the observation and half of it, the better."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.target, {}

    def step(self, action):
        distance = np.square(action - self.target * [1.0, 0.5]).sum()
        return self.target, -float(distance), True, False, {}


class Faulty(Counter):
    """Raises ValueError in the method that it is told."""

    def __init__(self, where: str = "") -> None:
        if where == "constructor":
            raise ValueError("no display")
        self.where = where
        super().__init__(3)

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            raise ValueError("no level")
        return super().reset(seed=seed)

    def step(self, action):
        if self.where == "step":
            raise ValueError("no floor")
        return super().step(action)
