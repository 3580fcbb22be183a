"""PPO: one update by hand, its options, saved and restored bit by bit, small environments solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from actor_critics import Table, check_resume, rollout, train
from learning_envs import Aim, Corridor, Recall

from parl_lite.agent import Agent
from parl_lite.agents.on_policy import Inputs, Steps, minibatches
from parl_lite.agents.ppo import PPO, PPOSettings

ONCE = {"n_epochs": 1, "n_minibatches": 1}


def test_one_update_by_hand():
    # Two episodes of one step and a pseudo-row. pi = (1/2, 1/2), V = 0; advantages = rewards 1, 3, normalised -1, 1.
    # Ratios 1.5 and 1.25 for clip 0.2: the first counts in full, -1.5, as it makes things worse; the second as 1.2.
    batch = rollout(
        1,
        3,
        action=[[0, 1, 0]],
        reward=[[1, 3, 999]],
        terminated=[[True, True, False]],
        valid=[[True, True, False]],
        behaviour_log_prob=np.log([[1 / 3, 0.4, 1]]),
    )
    agent = Agent(PPO(Table(), PPOSettings(learning_rate=0.25, **ONCE)))
    kl = (0.5 - math.log(1.5) + 0.25 - math.log(1.25)) / 2
    losses = {"policy_loss": 0.15, "value_loss": 2.5, "entropy": math.log(2), "kl": kl, "clip_share": 1.0, "sgd_steps": 1}
    assert agent.learn(batch) == pytest.approx(losses, rel=1e-5)
    # Adam's first step has the size of the learning rate: away from the action that was worse than the mean, and V up
    assert agent.alg.model.logits.tolist() == pytest.approx([-0.25, 0.25], rel=1e-3)
    assert agent.alg.model.level.tolist() == pytest.approx([0.25], rel=1e-3)
    assert (agent.alg.env_steps, agent.alg.n_updates) == (2, 1)


@pytest.mark.parametrize(("old", "reward", "moves"), [(0.4, 1, False), (0.4, -1, True), (0.6, 1, True), (0.7, -1, False)])
def test_nothing_is_gained_by_going_further_from_the_old_policy_than_the_clip(old, reward, moves):
    batch = rollout(1, 1, reward=[[reward]], terminated=[[True]], behaviour_log_prob=np.log([[old]]))
    agent = Agent(PPO(Table(), PPOSettings(normalize_advantage=False, entropy_cost=0.0, **ONCE)))
    agent.learn(batch)
    assert (agent.alg.model.logits[0].item() != 0) == moves


def test_a_clipped_value_counts_its_larger_error():
    steps = Steps(Inputs(torch.zeros(3, 1)), *torch.zeros(5, 3), target=torch.tensor([2.0, 2.0, 0.0]))
    value = torch.tensor([1.0, 0.1, 1.0])
    alg = PPO(Table(), PPOSettings(clip_value=True, clip=0.2))
    # held at 0.2, 0.1, 0.2 while the old value is 0
    assert alg._value_loss(value, steps).item() == pytest.approx((1.8**2 + 1.9**2 + 1.0) / 6)
    assert PPO(Table(), PPOSettings())._value_loss(value, steps).item() == pytest.approx((1.0 + 1.9**2 + 1.0) / 6)


def test_a_batch_is_left_where_the_policies_differ_too_much():
    batch = rollout(2, 2, reward=[[1, 2], [3, 4]], behaviour_log_prob=np.full((2, 2), math.log(0.4)))
    agent = Agent(PPO(Table(), PPOSettings(target_kl=0.01)))
    assert agent.learn(batch)["sgd_steps"] == 1  # and that one did not count:
    assert agent.alg.model.logits.tolist() == [0.0, 0.0]
    assert Agent(PPO(Table(), PPOSettings(target_kl=1.0))).learn(batch)["sgd_steps"] == 16


def test_the_learning_rate_falls_to_zero_at_total_steps_unless_told_otherwise():
    for anneal, expected in ((True, [1.0, 0.75, 0.5, 0.25, 0.0]), (False, [1.0] * 5)):
        alg = PPO(Table(), PPOSettings(total_steps=40, learning_rate=1.0, anneal=anneal))
        rates = []
        for _ in range(5):
            Agent(alg).learn(rollout(5, 2))
            rates.append(alg.optimizer.param_groups[0]["lr"])
        assert rates == expected


def test_statistics_of_observations_change_together_with_the_policy():
    # else the first ratio of a batch would not be one
    settings = PPOSettings(normalize_obs=True, envs_per_actor=2, unroll_length=8, total_steps=64, **ONCE)
    kl: list[float] = []

    class Watched(PPO):
        def learn(self, batch):
            metrics = super().learn(batch)
            kl.append(metrics["kl"])
            return metrics

    agent, _ = train(Watched, settings, Corridor)
    assert kl == pytest.approx([0.0] * len(kl), abs=1e-6)
    (normalizer,) = [part.normalizer for part in agent.alg.model.encoder.parts]
    assert normalizer.n.item() == pytest.approx(agent.alg.env_steps, abs=1e-3)
    agent.predict(np.eye(5, dtype=np.float32))
    assert normalizer.n.item() == pytest.approx(agent.alg.env_steps, abs=1e-3)


def test_minibatches_hold_each_step_once():
    valid = torch.tensor([[True, True, True], [False, True, True]])
    columns = {
        "obs": torch.arange(9.0).view(3, 3, 1),
        "valid": valid,
        **{name: torch.arange(6).view(2, 3) for name in ("action", "behaviour_log_prob", "behaviour_logits", "value")},
        **{name: torch.arange(6).view(2, 3) for name in ("advantage", "target")},
    }
    parts = list(minibatches(columns, 2))
    assert sorted(len(part.action) for part in parts) == [2, 3]
    assert sorted(torch.cat([part.action for part in parts]).tolist()) == [0, 1, 2, 4, 5]
    for part in parts:
        assert part.inputs.obs.flatten().tolist() == part.target.tolist()

    recurrent = {**columns, "first": ~torch.ones(3, 3, dtype=torch.bool), "state": (torch.tensor([10, 11, 12]),)}
    for part in minibatches(recurrent, 3):  # one environment each
        (env,) = part.inputs.obs[0].flatten().long().tolist()
        assert part.action.tolist() == [t * 3 + env for t in range(2) if valid[t, env]]
        assert part.inputs.state[0].tolist() == [10 + env]
        assert part.inputs.valid.tolist() == valid[:, [env]].tolist()
        assert part.inputs.first.shape == (2, 1)


def test_four_updates_saved_and_restored_and_four_more_equal_eight(tmp_path):
    make = partial(PPO, settings=PPOSettings(total_steps=3000, n_epochs=2))
    check_resume(make, tmp_path, normalize_obs=True)


def test_predict_gives_the_likeliest_action_and_sample_draws():
    agent = Agent(PPO(Table((0.0, math.log(3))), PPOSettings()))
    obs = np.zeros((4000, 1), dtype=np.float32)
    assert agent.predict(obs).all()
    torch.manual_seed(0)
    assert agent.sample(obs).mean() == pytest.approx(0.75, abs=0.03)


SMALL = {"envs_per_actor": 8, "hidden_size": 16, "learning_rate": 1e-2}


def test_a_corridor_is_solved():
    agent, mean_return = train(PPO, PPOSettings(total_steps=3000, unroll_length=32, **SMALL), Corridor)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8


def test_what_was_seen_four_steps_before_is_remembered_by_a_recurrent_policy():
    settings = PPOSettings(total_steps=8000, unroll_length=20, n_minibatches=1, lstm_size=16, **SMALL)
    assert train(PPO, settings, Recall)[1] > 0.9  # without a memory 0 is the best


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_actions_hit_what_they_aim_at(squash):
    settings = PPOSettings(total_steps=3000, unroll_length=32, log_std=-0.7, entropy_cost=0.0, squash=squash, **SMALL)
    assert train(PPO, settings, Aim)[1] > -0.15  # actions of the first policy get about -0.9
