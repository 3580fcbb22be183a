"""Evaluations: the same number of episodes from each environment, the likeliest actions, the same games each time."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from parl_lite.agents import evaluation
from parl_lite.agents.collector import Collector
from parl_lite.agents.env_settings import EnvSettings, make_envs_from
from parl_lite.agents.envs import make_envs, spaces_of
from parl_lite.agents.evaluation import Evaluation, Evaluator, GreedyPolicy, play
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import SamplingPolicy

NETWORK = NetworkSettings(hidden_size=8)


class Fixed(gymnasium.Env):
    """Episodes of a fixed length that return it; one reward a step."""

    observation_space = Box(-1, 1, (1,))
    action_space = Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t >= self.length, False, {}


def collector_of(*lengths: int) -> Collector:
    """Return a collector over environments whose episodes have these lengths."""
    envs = gymnasium.vector.SyncVectorEnv([partial(Fixed, length) for length in lengths])
    model = actor_critic(NETWORK, spaces_of(envs))
    return Collector(envs, SamplingPolicy(model, torch.Generator(), len(lengths)), 16)


def test_each_environment_gives_as_many_episodes_however_short_they_are():
    assert play(collector_of(3, 50), 2).returns.tolist() == [3.0, 3.0, 50.0, 50.0]


def test_an_evaluation_ends_where_episodes_do_not(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_ROWS", 64)
    found = play(collector_of(3, 10**9), 2)
    assert found.returns.tolist() == [3.0, 3.0]


def test_figures_are_means_and_spread():
    found = Evaluation(np.array([1.0, 3.0]), np.array([4, 5])).figures()
    assert found == {"eval_return_mean": 2.0, "eval_return_std": 1.0, "eval_episodes": 2}
    assert Evaluation(np.zeros(0), np.zeros(0)).figures()["eval_return_mean"] is None


def test_the_likeliest_actions_are_chosen():
    envs = make_envs("CartPole-v1", 3)
    model = actor_critic(NETWORK, spaces_of(envs))
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    first = np.ones(3, dtype=bool)
    action, params = GreedyPolicy(model, torch.Generator(), 3)(obs, first)
    assert action.tolist() == params.argmax(-1).tolist()


@pytest.mark.parametrize("policy", [GreedyPolicy, SamplingPolicy])
def test_each_evaluation_plays_the_same_games(policy):
    envs = partial(make_envs_from, EnvSettings(), 4, evaluation=True)
    evaluator = Evaluator(envs, partial(actor_critic, NETWORK), policy, seed=3)
    weights = actor_critic(NETWORK, spaces_of(evaluator.envs)).get_weights()
    first, again = evaluator.evaluate(weights, 7), evaluator.evaluate(weights, 7)
    assert first.returns.tolist() == again.returns.tolist()
    assert len(first.returns) == 8
    evaluator.close()


def test_rewards_are_raw_whatever_is_learned_from():
    settings = EnvSettings(reward_scale=0.1)
    evaluator = Evaluator(
        partial(make_envs_from, settings, 2, evaluation=True), partial(actor_critic, NETWORK), GreedyPolicy, seed=3
    )
    weights = actor_critic(NETWORK, spaces_of(evaluator.envs)).get_weights()
    found = evaluator.evaluate(weights, 2)
    assert found.returns.tolist() == found.lengths.tolist()
    evaluator.close()
