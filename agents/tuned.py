"""Settings of the value algorithms that were found to do well, by environment. Knows no algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tuned = dict[str, dict[str, Any]]

DISCRETE: Tuned = {
    "CartPole-v1": {
        "hidden_size": 128,
        "learning_rate": 5e-4,
        "batch_size": 128,
        "unroll_length": 8,
        "samples_per_insert": 16.0,
        "replay_capacity": 50_000,
        "target_period": 100,
        "epsilon_end": 0.02,
        "exploration_fraction": 0.04,
    },
    "Acrobot-v1": {
        "total_steps": 100_000,
        "hidden_size": 128,
        "learning_rate": 2.5e-4,
        "batch_size": 128,
        "unroll_length": 8,
        "samples_per_insert": 16.0,
        "n_step": 3,
        "double": True,
        "target_period": 1,
        "target_rate": 0.01,
        "epsilon_end": 0.02,
        "exploration_fraction": 0.2,
    },
    "LunarLander-v3": {
        "total_steps": 300_000,
        "hidden_size": 128,
        "learning_rate": 5e-4,
        "batch_size": 128,
        "samples_per_insert": 32.0,
        "n_step": 3,
        "double": True,
        "target_period": 1,
        "target_rate": 0.005,
        "epsilon_end": 0.02,
    },
    "MinAtar/*": {
        "total_steps": 5_000_000,
        "learning_starts": 5_000,
        "target_period": 1_000,
        "epsilon_end": 0.1,
        "exploration_fraction": 0.02,
        "head_size": 0,
    },
    "ALE/*": {
        "total_steps": 10_000_000,
        "learning_rate": 6.25e-5,
        "adam_epsilon": 1.5e-4,
        "replay_capacity": 1_000_000,
        "learning_starts": 20_000,
        "target_period": 2_000,
        "epsilon_end": 0.01,
        "exploration_fraction": 0.025,
        "clip_reward": True,
    },
}
"""Of algorithms of action values."""

SQUARED: Tuned = {name: {"huber_delta": 0.0} for name in ("CartPole-v1", "Acrobot-v1", "LunarLander-v3")}
"""Of DQN's loss: with returns of a hundred, one that is linear beyond 1
learns too slowly how episodes end: values rise without bound."""

CATEGORICAL: Tuned = {
    "CartPole-v1": {
        "learning_rate": 2.5e-4,
        "adam_epsilon": 1e-5,
        "n_atoms": 101,
        "n_step": 3,
        "double": True,
        "target_period": 1,
        "target_rate": 0.01,
    },
}
"""Of C51: with DQN's its return rose and fell again."""

CONTINUOUS: Tuned = {
    "Pendulum-v1": {"total_steps": 20_000, "learning_starts": 1_000, "random_steps": 1_000},
    "Hopper-v5": {"total_steps": 500_000, "learning_starts": 5_000, "random_steps": 5_000},
    **{name: {"total_steps": 1_000_000} for name in ("HalfCheetah-v5", "Walker2d-v5", "Ant-v5")},
}
"""Of algorithms for continuous actions."""


def tuned(base: Tuned, *others: Mapping[str, Mapping[str, Any]]) -> Tuned:
    """Return `base` with the values of others put over it, environment by environment."""
    names = dict.fromkeys(name for part in (base, *others) for name in part)
    return {name: {key: value for part in (base, *others) for key, value in part.get(name, {}).items()} for name in names}
