"""VPG: one update by hand, saved and restored bit by bit, small environments solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from actor_critics import SPACES, Table, check_resume, rollout, train
from learning_envs import Aim, Corridor

from parl_lite.agent import Agent
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.vpg import VPG, VPGSettings
from parl_lite.errors import ParlError


def test_one_update_by_hand():
    # One episode of two steps and a pseudo-row; gamma = 1/2, lambda = 1, V = 0: advantages 1 + 3/2 and 3, normalised -1, 1.
    # pi = (1/2, 1/2); d(policy loss)/d(logits) = -(-1 (1/2, -1/2) + 1 (-1/2, 1/2)) / 2 = (1/2, -1/2)
    batch = rollout(
        3,
        1,
        action=[[0], [1], [0]],
        reward=[[1], [3], [999]],
        terminated=[[False], [True], [False]],
        valid=[[True], [True], [False]],
    )
    settings = VPGSettings(
        gamma=0.5, lambda_=1.0, learning_rate=0.25, value_learning_rate=0.5, value_epochs=2, value_minibatches=1
    )
    agent = Agent(VPG(Table(), settings))
    metrics = agent.learn(batch)
    first, second = (2.5**2 + 3**2) / 4, (2.0**2 + 2.5**2) / 4  # V is 0, then 0.5, for targets 2.5 and 3
    losses = {"policy_loss": 0.0, "value_loss": (first + second) / 2, "entropy": math.log(2), "grad_norm": math.sqrt(0.5)}
    assert metrics == pytest.approx(losses, abs=1e-6)
    assert agent.alg.model.logits.tolist() == pytest.approx([-0.25, 0.25])
    assert agent.alg.model.level.tolist() == pytest.approx([1.0], rel=1e-2)  # two steps of Adam against nearly the same gradient
    assert (agent.alg.env_steps, agent.alg.n_updates) == (2, 1)


def test_the_entropy_bonus_makes_actions_more_alike():
    agent = Agent(VPG(Table((0.0, 1.0)), VPGSettings(entropy_cost=1.0)))
    agent.learn(rollout(1, 2))  # no advantage: the bonus is all there is
    assert agent.alg.model.logits.tolist() == pytest.approx([0.01, 0.99])


def test_a_model_whose_policy_and_value_share_layers_is_refused():
    with pytest.raises(ParlError, match=r"vpg updates policy and value each by itself.*SharedActorCritic.*choose ppo"):
        VPG(actor_critic(NetworkSettings(shared=True), SPACES), VPGSettings())


def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path):
    check_resume(partial(VPG, settings=VPGSettings(total_steps=3000, value_epochs=2)), tmp_path, normalize_obs=True)


SMALL = {"envs_per_actor": 8, "unroll_length": 16, "hidden_size": 16, "learning_rate": 3e-2, "value_epochs": 2}


def test_a_corridor_is_solved():
    agent, mean_return = train(VPG, VPGSettings(total_steps=8000, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8


def test_continuous_actions_hit_what_they_aim_at():
    _, mean_return = train(VPG, VPGSettings(total_steps=10000, log_std=-0.7, **SMALL), Aim)
    assert mean_return > -0.15  # actions of the first policy get about -0.9
