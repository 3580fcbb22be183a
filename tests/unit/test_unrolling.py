"""Policies and values along rollouts: the learner sees what the actor saw, in each way of starting the next episode."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from learning_envs import Counter
from torch import nn

from parl_lite.agent import to_tensors
from parl_lite.agents.collector import Collector, concatenate, select_envs
from parl_lite.agents.envs import make_envs, spaces_of
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import SamplingPolicy
from parl_lite.agents.unrolling import evaluate, initial_state, unroll
from parl_lite.model import Model

MODES = list(AutoresetMode)


def collect(mode: AutoresetMode, n_rollouts: int = 2, **settings):
    """Return (model, rollouts) of two environments with episodes of 3 and 4 steps that are truncated."""
    lengths = itertools.cycle([3, 4])
    envs = make_envs(lambda: Counter(next(lengths), "truncated"), 2, mode)
    torch.manual_seed(0)
    model = actor_critic(NetworkSettings(hidden_size=8, **settings), spaces_of(envs))
    policy = SamplingPolicy(model, torch.Generator().manual_seed(0), 2)
    collector = Collector(envs, policy, 7)
    return model, [collector.collect() for _ in range(n_rollouts)]


@pytest.mark.parametrize("settings", [{}, {"shared": True}, {"lstm_size": 5}, {"normalize_obs": True}])
@pytest.mark.parametrize("mode", MODES)
def test_the_learner_computes_the_parameters_that_the_actor_acted_with(mode, settings):
    model, rollouts = collect(mode, **settings)
    for rollout in [*rollouts, concatenate(rollouts)]:
        unrolled = evaluate(model, to_tensors(rollout))
        np.testing.assert_allclose(unrolled.params.detach(), rollout["behaviour_logits"], atol=1e-6)
        log_prob = model.distribution(unrolled.params).log_prob(torch.from_numpy(rollout["action"]))
        np.testing.assert_allclose(log_prob.detach(), rollout["behaviour_log_prob"], atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"lstm_size": 5}])
@pytest.mark.parametrize("mode", MODES)
def test_next_values_are_those_of_what_the_steps_led_to(mode, settings):
    model, rollouts = collect(mode, **settings)
    for rollout in rollouts:
        assert rollout["truncated"].any()
        next_value = evaluate(model, to_tensors(rollout)).next_value
        for t, b in np.argwhere(rollout["valid"]):
            count = rollout["obs"][t, b, 0]
            np.testing.assert_allclose(next_value[t, b], value_after(model, count + 1), atol=1e-6)


def value_after(model, count: float) -> float:
    """Return the value of the observation `count` of an episode, all of whose observations were 0, 1, ..., count."""
    obs = torch.arange(count + 1).view(-1, 1, 1)
    first = torch.zeros(len(obs), 1, dtype=torch.bool)
    _, value, _ = unroll(model, obs, first, initial_state(model, 1))
    return value[-1, 0].item()


def test_the_state_in_a_rollout_is_the_one_before_its_first_row():
    model, (first, second) = collect(AutoresetMode.NEXT_STEP, lstm_size=5)
    assert [part.shape for part in first["state"]] == [(2, 5), (2, 5)]
    assert not first["state"][0].any()
    _, _, after = model.unroll(*(torch.from_numpy(first[name][:-1]) for name in ("obs", "first")), model.initial_state(2))
    np.testing.assert_allclose(second["state"][0], after[0].detach(), atol=1e-6)


def test_values_carry_gradients_and_next_values_none():
    model, (rollout, _) = collect(AutoresetMode.SAME_STEP)
    unrolled = evaluate(model, to_tensors(rollout))
    assert unrolled.value.requires_grad
    assert not unrolled.next_value.requires_grad


def test_a_model_with_policy_and_value_alone_is_enough():
    class Plain(Model):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 2)

        def policy(self, obs):
            return self.layer(obs)

        def value(self, obs):
            return self.layer(obs)[..., 0]

    _, (rollout, _) = collect(AutoresetMode.SAME_STEP)
    model = Plain()
    for columns in (rollout, {name: column for name, column in rollout.items() if name != "first"}):
        unrolled = evaluate(model, to_tensors(columns))
        assert unrolled.params.shape == (7, 2, 2)
        assert unrolled.value.shape == unrolled.next_value.shape == (7, 2)
    assert initial_state(model, 3) == ()


@pytest.mark.parametrize("settings", [{}, {"lstm_size": 5}])
def test_some_environments_of_a_rollout_are_a_rollout(settings):
    model, rollouts = collect(AutoresetMode.NEXT_STEP, **settings)
    batch = to_tensors(concatenate(rollouts))
    part = select_envs(batch, torch.tensor([3, 1]))
    whole, some = evaluate(model, batch), evaluate(model, part)
    torch.testing.assert_close(some.params, whole.params[:, [3, 1]])
    torch.testing.assert_close(some.next_value, whole.next_value[:, [3, 1]])
    assert part["action"].shape == (7, 2)
