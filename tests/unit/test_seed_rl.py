"""SEED RL: one update by hand where two policies acted, saved and restored bit by bit, a small environment solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from actor_critics import Table, check_resume, rollout
from central_loops import train_central
from learning_envs import Corridor

from parl_lite.agent import Agent
from parl_lite.agents.seed_rl import SeedRL, SeedRLSettings


def test_one_update_by_hand_from_a_rollout_in_which_the_policy_changed():
    # The first step's actor chose with probability 1, the second's with 1/4, the learner's is 1/2: rho = 1/2 and 1.
    # gamma = 1/2, V = 0, rewards 1 and 3: target of the second 3, of the first 1/2 (1 + 1/2 3) = 1.25, as are advantages
    settings = SeedRLSettings(gamma=0.5, lambda_=1.0, normalize_advantage=False, learning_rate=0.25, value_learning_rate=0.5)
    agent = Agent(SeedRL(Table(), settings))
    old_and_new = {"behaviour_log_prob": np.log([[1.0], [0.25]]), "reward": [[1], [3]], "terminated": [[False], [True]]}
    metrics = agent.learn(rollout(2, 1, **old_and_new))
    assert metrics["policy_loss"] == pytest.approx((1.25 + 3) / 2 * math.log(2))
    assert metrics["value_loss"] == pytest.approx((1.25**2 + 3**2) / 4)
    assert metrics["grad_norm"] == pytest.approx(4.25 / 4 * math.sqrt(2))
    # Adam with beta1 = 0: a step of the learning rate, against the gradient's sign
    assert agent.alg.model.logits.tolist() == pytest.approx([0.25, -0.25], rel=1e-4)
    assert agent.alg.model.level.tolist() == pytest.approx([0.5], rel=1e-4)
    assert (agent.alg.env_steps, agent.alg.n_updates) == (2, 1)


def test_the_optimiser_is_that_of_the_paper():
    (group, _) = SeedRL(Table(), SeedRLSettings()).optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.0, 0.999), 3.125e-7)


def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path):
    check_resume(partial(SeedRL, settings=SeedRLSettings(total_steps=3000)), tmp_path)


SMALL = {"envs_per_actor": 8, "unroll_length": 16, "hidden_size": 16, "learning_rate": 5e-3}


def test_a_corridor_is_solved_although_the_policy_changes_within_rollouts():
    agent, mean_return = train_central(SeedRL, SeedRLSettings(total_steps=6000, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8
