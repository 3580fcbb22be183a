"""A3C: gradients and their application by hand, saved and restored bit by bit, a small environment solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from actor_critics import Table, check_resume, rollout, train
from learning_envs import Corridor

from parl_lite.agent import to_tensors
from parl_lite.agents.a3c import A3C, A3CSettings
from parl_lite.errors import ParlError

TWO_EPISODES = {
    "action": [[0, 1], [0, 1]],
    "reward": [[1, 2], [1, 999]],
    "terminated": [[False, True], [True, False]],
    "valid": [[True, True], [True, False]],
}
"""Column 0 has an episode of two steps, column 1 one of one step and a pseudo-row."""


def test_gradients_are_of_the_sum_over_steps_and_the_mean_over_environments():
    # gamma = 1/2, V = 0: returns, and advantages, 1.5 and 1 for action 0, 2 for action 1. pi = (1/2, 1/2), two environments
    # d(policy loss)/d(logits) = -(1.5 + 1 - 2) (1/2, -1/2) / 2; d(value loss)/dV = -4.5 / 2, times value_cost = 1/2
    alg = A3C(Table(), A3CSettings(gamma=0.5))
    update, metrics = alg.compute_gradients(to_tensors(rollout(2, 2, **TWO_EPISODES)))
    logits, level = update["gradients"]
    assert logits.tolist() == pytest.approx([-0.125, 0.125])
    assert level.tolist() == pytest.approx([-1.125])
    assert update["n_steps"] == 3
    losses = {"policy_loss": 1.5 * math.log(2), "value_loss": (1.5**2 + 1 + 4) / 6, "entropy": math.log(2)}
    assert metrics == pytest.approx(losses)  # of each step


def test_gradients_of_actors_are_applied_one_after_the_other_with_one_mean_square():
    alg = A3C(Table(), A3CSettings(learning_rate=0.1, total_steps=10, max_grad_norm=5.0))
    square, level = 1.0, 0.0
    for gradient, rate in ((-3.0, 0.1), (4.0, 0.06)):  # four of ten steps are over by the second
        metrics = alg.apply_gradients({"gradients": [torch.zeros(2), torch.tensor([2 * gradient])], "n_steps": 4})
        clipped = math.copysign(min(abs(2 * gradient), 5.0), gradient)
        square = 0.99 * square + 0.01 * clipped**2
        level -= rate * clipped / math.sqrt(square + 0.1)
        assert metrics["grad_norm"] == abs(2 * gradient)
        assert alg.model.level.item() == pytest.approx(level)
    assert (alg.env_steps, alg.n_updates) == (8, 2)


def test_an_actor_changes_nothing_when_it_computes_gradients():
    alg = A3C(Table(), A3CSettings())
    alg.compute_gradients(to_tensors(rollout(2, 2, **TWO_EPISODES)))
    assert alg.model.logits.tolist() == [0.0, 0.0]
    assert (alg.env_steps, alg.n_updates) == (0, 0)


def test_observations_cannot_be_normalised():
    with pytest.raises(ParlError, match="leave out normalize_obs"):
        A3C(Table(), A3CSettings(normalize_obs=True))


def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path):
    check_resume(partial(A3C, settings=A3CSettings(total_steps=3000)), tmp_path, shared=True)


SMALL = {"envs_per_actor": 8, "hidden_size": 16, "learning_rate": 1e-2, "rmsprop_epsilon": 1e-3}


def test_a_corridor_is_solved():
    agent, mean_return = train(A3C, A3CSettings(total_steps=10000, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8
