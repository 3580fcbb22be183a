"""What PPO, A2C, VPG and TRPO have in common: observations and actions of any kind, tuned settings."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from actor_critics import train
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

from parl_lite.agents.a2c import A2C, A2CSettings
from parl_lite.agents.ppo import PPO, PPOSettings
from parl_lite.agents.registry import load
from parl_lite.agents.trpo import TRPO, TRPOSettings
from parl_lite.agents.vpg import VPG, VPGSettings

ALGORITHMS = [(PPO, PPOSettings), (A2C, A2CSettings), (VPG, VPGSettings), (TRPO, TRPOSettings)]
COMMON = {"envs_per_actor": 8, "unroll_length": 16, "hidden_size": 16}
LEARNING: dict[Any, dict[str, Any]] = {
    PPO: {"total_steps": 2000, "learning_rate": 3e-2, "entropy_cost": 0.0},
    A2C: {"total_steps": 6000, "learning_rate": 2e-2, "optimizer": "adam", "normalize_advantage": True, "entropy_cost": 0.0},
    VPG: {"total_steps": 6000, "learning_rate": 3e-2, "value_epochs": 2},
    TRPO: {"total_steps": 4000, "max_kl": 0.05, "value_epochs": 2},
}


class Copy(gymnasium.Env):
    """Episodes of one step: the observation says which two switches are to be on; a point for each that is right."""

    observation_space = Dict({"left": Discrete(2), "right": Box(0, 1, (1,), np.float64)})
    action_space: Space[Any] = MultiBinary(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted = self.np_random.integers(2, size=2)
        return self._obs(), {}

    def step(self, action):
        return self._obs(), float((action == self.wanted).sum()), True, False, {}

    def _obs(self):
        return {"left": self.wanted[0], "right": self.wanted[1:].astype(np.float64)}


class CopyDigits(Copy):
    """The same with digits in place of switches."""

    action_space = MultiDiscrete([2, 3])


@pytest.mark.parametrize(("make", "settings"), ALGORITHMS)
def test_dicts_are_seen_and_several_choices_are_made_at_a_time(make, settings):
    env = Copy if make in (PPO, TRPO) else CopyDigits
    assert train(make, settings(**COMMON, **LEARNING[make]), env)[1] > 1.8  # 2 is the best, chance gives 1 or less


@pytest.mark.parametrize("name", ["ppo", "a2c", "vpg", "trpo", "impala", "appo", "a3c", "ga3c", "seed_rl"])
def test_tuned_settings_are_possible_ones(name):
    entry = load(name)
    for env in ["CartPole-v1", "ALE/Pong-v5", "HalfCheetah-v5", *entry.tuned]:
        settings = entry.settings_from({"env": env})
        assert settings.env == env
        if "n_minibatches" in vars(settings):
            n_steps = settings.n_actors * settings.envs_per_actor * settings.unroll_length
            assert n_steps % settings.n_minibatches == 0
