"""APPO: updates by hand, its target network, what it has in common with IMPALA, saved and restored, environments solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from actor_critics import Table, check_resume, random_rollouts, rollout, train
from learning_envs import Aim, Corridor, Recall

from parl_lite.agent import Agent
from parl_lite.agents.appo import APPO, APPOSettings
from parl_lite.agents.impala import IMPALA, ImpalaSettings

ONCE = {"n_epochs": 1, "n_minibatches": 1}
TWO_STEPS = {
    "action": [[0, 1, 0]],
    "reward": [[1, 3, 999]],
    "terminated": [[True, True, False]],
    "valid": [[True, True, False]],
    "behaviour_log_prob": np.log([[0.25, 1.0, 1.0]]),
}
"""Two episodes of one step and a pseudo-row. The learner's probabilities, 1/2, are 2 and 1/2 times those of the actor."""


def test_one_update_by_hand():
    # V = 0, rho = 1 and 1/2: targets and advantages 1 and 1.5; normalised -1, 1. Within the update all ratios are 1.
    agent = Agent(APPO(Table(), APPOSettings(learning_rate=0.25, **ONCE)))
    losses = {"policy_loss": 0.0, "value_loss": (1 + 1.5**2) / 4, "entropy": math.log(2), "kl": 0.0, "clip_share": 0.0}
    assert agent.learn(rollout(1, 3, **TWO_STEPS)) == pytest.approx({**losses, "sgd_steps": 1}, abs=1e-6)
    # Adam's first step has the size of the learning rate: away from the action that was worse than the mean, and V up
    assert agent.alg.model.logits.tolist() == pytest.approx([-0.25, 0.25], rel=1e-3)
    assert agent.alg.model.level.tolist() == pytest.approx([0.25], rel=1e-3)
    assert (agent.alg.env_steps, agent.alg.n_updates) == (2, 1)


def test_a_second_pass_is_held_by_the_clip_to_the_policy_before_the_update():
    # After the step above pi = (0.378, 0.622): ratios 0.755 and 1.245, clipped to 0.8 and 1.2
    agent = Agent(APPO(Table(), APPOSettings(learning_rate=0.25, n_epochs=2, n_minibatches=1)))
    metrics = agent.learn(rollout(1, 3, **TWO_STEPS))
    pi = np.exp([-0.25, 0.25]) / np.exp([-0.25, 0.25]).sum()
    assert metrics["policy_loss"] == pytest.approx((0 + (0.8 - 1.2) / 2) / 2, rel=1e-3)
    assert metrics["kl"] == pytest.approx((0 + 0.5 * np.log(0.5 / pi).sum()) / 2, rel=1e-3)
    assert (metrics["clip_share"], metrics["sgd_steps"]) == (0.5, 2)


def test_a_target_network_gives_the_values_for_some_updates():
    # gamma = 1/2, V = 8 and the truncated step bootstraps from it: its target is 4, also when V has moved by 0.25
    model = Table()
    with torch.no_grad():
        model.level.fill_(8.0)
    agent = Agent(APPO(model, APPOSettings(gamma=0.5, learning_rate=0.25, anneal=False, target_interval=2, **ONCE)))
    losses = [agent.learn(rollout(1, 1, truncated=[[True]]))["value_loss"] for _ in range(3)]
    assert losses == pytest.approx([(8 - 4) ** 2 / 2, (7.75 - 4) ** 2 / 2, (7.5 - 3.75) ** 2 / 2], rel=1e-3)


def test_a_target_network_is_what_ratios_are_taken_to():
    # The first update moved the policy to (0.378, 0.622), the target network has stayed: the same ratios as above
    agent = Agent(APPO(Table(), APPOSettings(learning_rate=0.25, target_interval=9, **ONCE)))
    first, second = (agent.learn(rollout(1, 3, **TWO_STEPS)) for _ in range(2))
    assert (first["clip_share"], second["clip_share"]) == (0.0, 1.0)
    assert second["policy_loss"] == pytest.approx(-0.2, rel=1e-3)


def test_the_divergence_from_the_proximal_policy_costs():
    pi = 1 / (1 + math.exp(-1.0))
    proximal = {"behaviour_log_prob": [[math.log(0.5)]]}
    gradients = []
    for cost in (0.0, 2.0):
        alg = APPO(Table(), APPOSettings(kl_cost=cost, entropy_cost=0.0, target_interval=9, max_grad_norm=0.0, **ONCE))
        with torch.no_grad():
            alg.model.logits.copy_(torch.tensor([0.0, 1.0]))
        Agent(alg).learn(rollout(1, 1, terminated=[[True]], **proximal))  # without an advantage
        gradients.append(alg.model.logits.grad.tolist())
    # d KL(1/2 || pi) / d logits = pi - 1/2
    assert gradients == [[0.0, 0.0], pytest.approx([-2 * (pi - 0.5), 2 * (pi - 0.5)], rel=1e-5)]


def test_one_pass_over_one_minibatch_is_impala():
    batch = next(random_rollouts(1))
    batch["behaviour_log_prob"] = np.linspace(-1.0, -0.3, 32, dtype=np.float32).reshape(8, 4)
    free = {"max_grad_norm": 0.0, "entropy_cost": 0.02, "rho_bar": 0.9, "c_bar": 0.8, "lambda_": 0.9}
    algorithms = APPO(Table(), APPOSettings(**ONCE, **free)), IMPALA(Table(), ImpalaSettings(**free))
    for alg in algorithms:
        Agent(alg).learn(batch)
    ours, theirs = ([parameter.grad for parameter in alg.model.parameters()] for alg in algorithms)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("settings", "network"), [({}, {}), ({"target_interval": 3}, {}), ({"clip": 0.1}, {"lstm_size": 4})])
def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path, monkeypatch, settings, network):
    if network:
        monkeypatch.setattr("actor_critics.rollout", with_state)
    check_resume(partial(APPO, settings=APPOSettings(total_steps=3000, **settings)), tmp_path, **network)


def with_state(steps, n_envs, **columns):
    return {**rollout(steps, n_envs, **columns), "state": (np.zeros((n_envs, 4), np.float32),) * 2}


SMALL = {"envs_per_actor": 8, "unroll_length": 16, "hidden_size": 16, "learning_rate": 5e-3}


def test_a_corridor_is_solved():
    agent, mean_return = train(APPO, APPOSettings(total_steps=6000, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8


def test_what_was_seen_four_steps_before_is_remembered_by_a_recurrent_policy():
    settings = APPOSettings(total_steps=10000, lstm_size=16, activation="relu", **SMALL)
    assert train(APPO, settings, Recall)[1] > 0.9  # without a memory 0 is the best


def test_continuous_actions_hit_what_they_aim_at():
    settings = APPOSettings(total_steps=6000, log_std=-0.7, entropy_cost=0.0, **SMALL)
    assert train(APPO, settings, Aim)[1] > -0.15  # actions of the first policy get about -0.9
