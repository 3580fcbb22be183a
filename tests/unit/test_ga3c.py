"""GA3C: the epsilon in its logarithms by hand, saved and restored bit by bit, a small environment solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from actor_critics import Table, check_resume, rollout
from central_loops import train_central
from learning_envs import Corridor

from parl_lite.agent import Agent
from parl_lite.agents.ga3c import GA3C, GA3CSettings


def test_one_update_by_hand():
    # epsilon = 1/2 makes log(pi + epsilon) = log 1 = 0 for pi = (1/2, 1/2), and its slope pi (1 - pi) / (pi + epsilon) = 1/4
    settings = GA3CSettings(log_epsilon=0.5, entropy_cost=0.0, learning_rate=0.1)
    agent = Agent(GA3C(Table(), settings))
    metrics = agent.learn(rollout(1, 1, reward=[[2]], terminated=[[True]]))
    gradient = 2 * 0.25, 2.0  # of the logits and of V: half the squared error, value_cost = 1
    norm = math.hypot(gradient[0], gradient[0], gradient[1])
    assert metrics == pytest.approx({"policy_loss": 0.0, "value_loss": 2.0, "entropy": 0.0, "grad_norm": norm}, abs=1e-6)
    steps = [0.1 * each / math.sqrt(0.99 + 0.01 * each**2 + 0.1) for each in gradient]
    assert agent.alg.model.logits.tolist() == pytest.approx([steps[0], -steps[0]])
    assert agent.alg.model.level.item() == pytest.approx(steps[1])
    assert (agent.alg.env_steps, agent.alg.n_updates) == (1, 1)


def test_an_action_that_has_become_impossible_costs_no_more_than_the_epsilon_allows():
    agent = Agent(GA3C(Table((-300.0, 0.0)), GA3CSettings()))
    metrics = agent.learn(rollout(1, 1, reward=[[2]], terminated=[[True]]))
    assert metrics["policy_loss"] == pytest.approx(-2 * math.log(1e-6), rel=1e-5)
    assert metrics["entropy"] == pytest.approx(0.0, abs=1e-5)
    assert np.isfinite(agent.alg.model.logits.tolist()).all()


def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path):
    check_resume(partial(GA3C, settings=GA3CSettings(total_steps=3000)), tmp_path)


SMALL = {"envs_per_actor": 8, "unroll_length": 10, "hidden_size": 16, "learning_rate": 1e-2, "rmsprop_epsilon": 1e-3}


def test_a_corridor_is_solved_although_the_policy_changes_within_rollouts():
    agent, mean_return = train_central(GA3C, GA3CSettings(total_steps=10000, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8
