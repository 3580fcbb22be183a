"""TRPO: the natural gradient of a tiny problem, the bound it keeps, saved and restored bit by bit, small environments solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from actor_critics import SPACES, Table, check_resume, rollout, train
from learning_envs import Aim, Corridor

from parl_lite.agent import Agent
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.trpo import TRPO, TRPOSettings, conjugate_gradient
from parl_lite.errors import ParlError

BATCH = rollout(1, 2, action=[[0, 1]], reward=[[1, 3]], terminated=[[True, True]])
"""Advantages, with V = 0, 1 for action 0 and 3 for action 1; normalised -1, 1."""


def test_the_natural_gradient_step_of_two_logits_by_hand():
    # pi = (1/2, 1/2): g = (-1 (1/2, -1/2) + 1 (-1/2, 1/2)) / 2 = (-1/2, 1/2); F = diag(pi) - pi pi' = (1, -1; -1, 1) / 4
    # (F + 0.1) x = g has x = (-1, 1) / (2 (1/2 + 0.1)); x (F + 0.1) x = x g = 1 / (2 * 0.6); step sqrt(2 max_kl / x g) x
    agent = Agent(TRPO(Table(), TRPOSettings(max_kl=1e-4, backtracks=1)))
    metrics = agent.learn(BATCH)
    step = math.sqrt(2e-4 * 1.2) / 1.2
    assert agent.alg.model.logits.tolist() == pytest.approx([-step, step], rel=1e-3)
    assert metrics["step_length"] == 1.0
    probability = 1 / (1 + math.exp(-2 * step))
    assert metrics["kl"] == pytest.approx(-0.5 * math.log(4 * probability * (1 - probability)), rel=1e-2)
    assert metrics["surrogate_gain"] == pytest.approx(
        2 * probability - 1, rel=1e-3
    )  # mean of ratio * advantage: (q - p) / (1/2) / 2
    assert metrics["entropy"] == pytest.approx(math.log(2))
    assert (agent.alg.env_steps, agent.alg.n_updates) == (2, 1)


def test_the_step_is_shortened_until_the_bound_holds():
    # without damping a step is as long as the bound allows to second order; towards the less likely action that is too long
    agent = Agent(TRPO(Table((1.0, 0.0)), TRPOSettings(max_kl=0.5, damping=0.0)))
    batch = {**BATCH, "behaviour_logits": np.array([[[1, 0], [1, 0]]], np.float32)}
    batch["behaviour_log_prob"] = torch.log_softmax(torch.tensor([1.0, 0.0]), 0).numpy()[None]
    metrics = agent.learn(batch)
    assert metrics["step_length"] in [pytest.approx(0.8**n) for n in range(1, 10)]
    assert 0.25 < metrics["kl"] <= 0.5


def test_no_step_is_made_where_none_gains_anything():
    agent = Agent(TRPO(Table(), TRPOSettings()))
    metrics = agent.learn(rollout(1, 2))  # no advantage
    assert agent.alg.model.logits.tolist() == [0.0, 0.0]
    assert (metrics["step_length"], metrics["kl"], metrics["surrogate_gain"]) == (0.0, 0.0, 0.0)


def test_the_value_is_fitted_to_the_returns():
    agent = Agent(TRPO(Table(), TRPOSettings(value_learning_rate=0.1, value_epochs=60, value_minibatches=1)))
    agent.learn(BATCH)
    assert agent.alg.model.level.item() == pytest.approx(2.0, abs=0.1)


def test_conjugate_gradient_solves_n_equations_in_n_steps():
    stream = torch.Generator().manual_seed(0)
    root = torch.randn(6, 6, generator=stream, dtype=torch.float64)
    matrix, b = root @ root.T + torch.eye(6), torch.randn(6, generator=stream, dtype=torch.float64)
    x = conjugate_gradient(lambda vector: matrix @ vector, b, 6)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b))
    assert conjugate_gradient(lambda vector: matrix @ vector, torch.zeros(6), 6).tolist() == [0.0] * 6


def test_the_fisher_matrix_is_the_one_of_the_scores():
    # F is also the mean of score score', here over both actions exactly, as they are equally likely
    torch.manual_seed(0)
    model = actor_critic(NetworkSettings(hidden_size=3, hidden_layers=1), SPACES)
    alg = TRPO(model, TRPOSettings(damping=0.0))
    obs = torch.tensor([[0.5], [-1.0]])
    scores = []
    for one in obs:
        for action in range(2):
            log_prob = torch.log_softmax(model.policy(one), 0)[action]
            score = torch.cat([part.flatten() for part in torch.autograd.grad(log_prob, alg.actor)])
            scores.append((log_prob.detach().exp() / 2, score))
    expected = sum(weight * torch.outer(score, score) for weight, score in scores)
    product = alg._fisher(obs)
    actual = torch.stack([product(column) for column in torch.eye(len(expected))])
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_a_model_whose_layers_are_shared_and_several_learners_are_refused():
    with pytest.raises(ParlError, match="trpo updates policy and value each by itself"):
        TRPO(actor_critic(NetworkSettings(lstm_size=4), SPACES), TRPOSettings())
    with pytest.raises(ValueError, match="n_learners is 2: trpo"):
        TRPOSettings(n_learners=2)


def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path):
    check_resume(partial(TRPO, settings=TRPOSettings(total_steps=3000, value_epochs=2)), tmp_path, normalize_obs=True)


SMALL = {"envs_per_actor": 8, "unroll_length": 32, "hidden_size": 16, "value_epochs": 2, "value_learning_rate": 1e-2}


def test_a_corridor_is_solved():
    agent, mean_return = train(TRPO, TRPOSettings(total_steps=8000, max_kl=0.05, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8


def test_continuous_actions_hit_what_they_aim_at():
    _, mean_return = train(TRPO, TRPOSettings(total_steps=8000, max_kl=0.05, log_std=-0.7, **SMALL), Aim)
    assert mean_return > -0.15  # actions of the first policy get about -0.9
