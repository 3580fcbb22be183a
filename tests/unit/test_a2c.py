"""A2C: one update by hand with each optimiser, saved and restored bit by bit, small environments solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from actor_critics import Table, check_resume, rollout, train
from learning_envs import Aim, Corridor, Recall

from parl_lite.agent import Agent
from parl_lite.agents.a2c import A2C, A2CSettings
from parl_lite.agents.optimizers import RMSpropTF

TWO_EPISODES = {
    "action": [[0, 1, 0], [0, 1, 0]],
    "reward": [[1, 2, 999], [1, 0, 0]],
    "terminated": [[False, True, False], [True, False, False]],
    "valid": [[True, True, False], [True, False, False]],
}
"""Column 0 has an episode of two steps, column 1 one of one step; the other rows are no steps."""


def test_one_update_by_hand():
    # gamma = 1/2, V = 0: returns, and advantages, 1.5 and 1 for action 0, 2 for action 1. pi = (1/2, 1/2)
    # d(policy loss)/d(logits) = -(1.5 (1, -1) + 1 (1, -1) + 2 (-1, 1)) / 6 = (-1/12, 1/12)
    # d(value loss)/dV = -4.5 / 3 = -1.5, halved by value_cost; RMSProp: m = 0.99 + 0.01 g^2, step lr g / sqrt(m + eps)
    settings = A2CSettings(gamma=0.5, learning_rate=0.1, max_grad_norm=0.0)
    agent = Agent(A2C(Table(), settings))
    norm = math.sqrt(2 / 144 + 0.75**2)
    losses = {"policy_loss": 4.5 * math.log(2) / 3, "value_loss": (1.5**2 + 1 + 4) / 6, "entropy": math.log(2), "grad_norm": norm}
    assert agent.learn(rollout(2, 3, **TWO_EPISODES)) == pytest.approx(losses)
    step = 0.1 / 12 / math.sqrt(0.99 + 0.01 / 144 + 1e-5)
    assert agent.alg.model.logits.tolist() == pytest.approx([step, -step])
    assert agent.alg.model.level.item() == pytest.approx(0.075 / math.sqrt(0.99 + 0.01 * 0.75**2 + 1e-5))
    assert (agent.alg.env_steps, agent.alg.n_updates) == (3, 1)


def test_one_update_with_adam_normalised_advantages_and_a_shorter_trace():
    # lambda = 0: advantages are rewards, as V = 0: 1, 1, 2; normalised -1, -1, 2 over sqrt(2); against action 0
    settings = A2CSettings(gamma=0.5, lambda_=0.0, learning_rate=0.1, optimizer="adam", normalize_advantage=True)
    agent = Agent(A2C(Table(), settings))
    metrics = agent.learn(rollout(2, 3, **TWO_EPISODES))
    assert metrics["policy_loss"] == pytest.approx(0.0, abs=1e-6)  # all actions were equally likely
    assert metrics["value_loss"] == pytest.approx((1 + 1 + 4) / 6)
    assert agent.alg.model.logits.tolist() == pytest.approx([-0.1, 0.1], rel=1e-3)
    assert agent.alg.model.level.tolist() == pytest.approx([0.1], rel=1e-3)


def test_a_truncated_episode_bootstraps_and_a_terminated_one_does_not():
    model = Table()
    with torch.no_grad():
        model.level.fill_(8.0)
    batch = rollout(1, 2, truncated=[[True, False]], terminated=[[False, True]])
    metrics = Agent(A2C(model, A2CSettings(gamma=0.5))).learn(batch)
    assert metrics["value_loss"] == pytest.approx((4.0**2 + 8.0**2) / 4)  # targets 0.5 * 8 and 0


def test_rmsprop_has_epsilon_under_the_root_and_begins_at_one():
    weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    optimizer = RMSpropTF([weight], lr=0.5, decay=0.9, epsilon=0.1)
    square = 1.0
    expected = 1.0
    for gradient in (3.0, -1.0):
        weight.grad = torch.tensor([gradient, 0.0])
        optimizer.step()
        square = 0.9 * square + 0.1 * gradient**2
        expected -= 0.5 * gradient / math.sqrt(square + 0.1)
        assert weight.tolist() == pytest.approx([expected, 1.0])


def test_rmsprop_leaves_parameters_without_gradient_alone_and_calls_a_closure():
    weight, other = torch.nn.Parameter(torch.tensor([1.0])), torch.nn.Parameter(torch.tensor([1.0]))

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    optimizer = RMSpropTF([weight, other], lr=0.1)
    assert optimizer.step(closure).item() == 1.0
    assert weight.item() < other.item() == 1.0
    RMSpropTF([other], lr=0.1).step()
    assert other.item() == 1.0


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path, optimizer):
    check_resume(partial(A2C, settings=A2CSettings(total_steps=3000, optimizer=optimizer)), tmp_path, shared=True)


SMALL = {"envs_per_actor": 8, "hidden_size": 16, "learning_rate": 1e-2}


def test_a_corridor_is_solved():
    agent, mean_return = train(A2C, A2CSettings(total_steps=14000, **{**SMALL, "learning_rate": 2e-2}), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8


def test_what_was_seen_four_steps_before_is_remembered_by_a_recurrent_policy():
    settings = A2CSettings(total_steps=16000, unroll_length=10, lstm_size=16, activation="relu", optimizer="adam", **SMALL)
    assert train(A2C, settings, Recall)[1] > 0.9  # without a memory 0 is the best


def test_continuous_actions_hit_what_they_aim_at():
    sizes = {"total_steps": 8000, "unroll_length": 8}
    settings = A2CSettings(log_std=-0.7, entropy_cost=0.0, optimizer="adam", normalize_advantage=True, **sizes, **SMALL)
    assert train(A2C, settings, Aim)[1] > -0.15  # actions of the first policy get about -0.9
