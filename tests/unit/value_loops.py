"""The simplest loops in which the value algorithms can learn: one environment, a list for a buffer. Numbers are seeded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from parl_lite.agent import Agent

torch.set_num_threads(1)  # layers this small only wait for a second thread

Transition = dict[str, np.ndarray]


class Dense(nn.Sequential):
    """An encoder of one ReLU layer over vectors."""

    def __init__(self, n_inputs: int, n_features: int) -> None:
        super().__init__(nn.Linear(n_inputs, n_features), nn.ReLU())
        self.n_features = n_features


class Plain(nn.Identity):
    """An encoder that gives the observation itself."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.n_features = n_features


def transitions(
    env: gymnasium.Env[Any, Any], choose: Callable[[np.ndarray], Any], gamma: float, n_step: int
) -> Iterator[Transition]:
    """Yield n-step transitions for ever; they end where an episode does, and bootstrap there if it was cut off."""
    while True:
        steps: list[tuple[Any, Any, float]] = []
        obs, _ = env.reset()
        ended = False
        while not ended:
            action = choose(obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            steps.append((obs, action, float(reward)))
            obs, ended = next_obs, terminated or truncated
            if len(steps) >= n_step:
                yield _transition(steps[-n_step:], obs, terminated, gamma)
        for start in range(max(1, len(steps) - n_step + 1), len(steps)):
            yield _transition(steps[start:], obs, terminated, gamma)


def train(agent: Agent, env: gymnasium.Env[Any, Any], choose: Callable[[np.ndarray], Any], n_updates: int, **sizes: int) -> None:
    """Make an update a step, after 100 steps, from a uniform buffer that keeps everything."""
    settings = agent.alg.settings
    stream = np.random.default_rng(0)
    env.reset(seed=0)
    buffer: list[Transition] = []
    n_batch = sizes.get("n_batch", 32)
    for transition in transitions(env, choose, settings.gamma, settings.n_step):
        buffer.append(transition)
        if len(buffer) < 100:
            continue
        chosen = [buffer[index] for index in stream.integers(len(buffer), size=n_batch)]
        agent.learn({name: np.stack([each[name] for each in chosen]) for name in transition})
        if agent.alg.n_updates == n_updates:
            return


def assert_resumes_exactly(new_agent: Callable[[], Agent], batches: list[Any], path: Any) -> None:
    """Check that half the batches, save, restore and the other half give what all of them give, bit by bit."""
    half = len(batches) // 2
    torch.manual_seed(1)
    straight = new_agent()
    learned = [straight.learn(batch) for batch in batches]
    torch.manual_seed(1)
    first = new_agent()
    for batch in batches[:half]:
        first.learn(batch)
    first.save(path)
    torch.manual_seed(2)
    second = new_agent()
    second.restore(path)
    resumed = [second.learn(batch) for batch in batches[half:]]
    assert_equal(resumed, learned[half:])
    assert_equal(second.get_weights(), straight.get_weights())
    assert second.alg.n_updates == len(batches)


def assert_equal(one: Any, other: Any) -> None:
    """Check that two trees of arrays and numbers are equal bit by bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    else:
        np.testing.assert_array_equal(one, other)


def _transition(steps: list[tuple[Any, Any, float]], next_obs: np.ndarray, terminated: bool, gamma: float) -> Transition:
    obs, action, _ = steps[0]
    return {
        "obs": np.asarray(obs),
        "action": np.asarray(action),
        "reward": np.asarray(sum(gamma**k * step[2] for k, step in enumerate(steps)), dtype=np.float32),
        "next_obs": np.asarray(next_obs),
        "discount": np.asarray(0.0 if terminated else gamma ** len(steps), dtype=np.float32),
    }
