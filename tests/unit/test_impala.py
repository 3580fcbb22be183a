"""IMPALA: one update by hand, saved and restored bit by bit, a small environment solved."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from learning_envs import Aim, Corridor, Recall
from torch import nn

from parl_lite.agent import Agent
from parl_lite.agents.collector import concatenate
from parl_lite.agents.distributions import Categorical
from parl_lite.agents.envs import make_envs
from parl_lite.agents.impala import ENTRY, IMPALA, ImpalaSettings
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.spaces import DiscreteActions, ObsSpec, Spaces
from parl_lite.model import Model

torch.set_num_threads(1)  # as in a run: layers this small only wait for a second thread
SPACES = Spaces(ObsSpec((1,), np.dtype(np.float32)), DiscreteActions(2))


class Table(Model):
    """The same logits and the same value everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2))
        self.level = nn.Parameter(torch.zeros(1))

    def policy(self, obs):
        return self.logits.expand(*obs.shape[:-1], 2)

    def value(self, obs):
        return self.level.expand(obs.shape[:-1])

    def get_actor_params(self):
        return [self.logits]

    def get_critic_params(self):
        return [self.level]


def rollout(steps: int, n_envs: int, **columns) -> dict[str, np.ndarray]:
    shape = (steps, n_envs)
    return {
        "obs": np.zeros((steps + 1, n_envs, 1), dtype=np.float32),
        "action": np.zeros(shape, dtype=np.int64),
        "reward": np.zeros(shape, dtype=np.float32),
        "terminated": np.zeros(shape, dtype=bool),
        "truncated": np.zeros(shape, dtype=bool),
        "valid": np.ones(shape, dtype=bool),
        "first": np.zeros((steps + 1, n_envs), dtype=bool),
        "behaviour_logits": np.zeros((*shape, 2), dtype=np.float32),
        "behaviour_log_prob": np.full(shape, math.log(0.5), dtype=np.float32),
        **columns,
    }


def test_one_update_by_hand():
    # Two episodes of one step; third column a pseudo-row that must not count. pi = mu = (1/2, 1/2), V = 0.
    # targets = rewards = 1, 3; advantages normalised: -1, 1; d(policy loss)/d(logits) = (1/2, -1/2), norm 0.707
    # d(value loss)/dV = -(1 + 3)/2; Adam's first step has the size of the learning rate, against the gradient's sign
    batch = rollout(
        1,
        3,
        action=np.array([[0, 1, 0]]),
        reward=np.array([[1, 3, 999]], dtype=np.float32),
        terminated=np.array([[True, True, False]]),
        valid=np.array([[True, True, False]]),
    )
    agent = Agent(IMPALA(Table(), ImpalaSettings(learning_rate=0.25, value_learning_rate=0.5)))
    metrics = agent.learn(batch)
    assert metrics == pytest.approx(
        {"policy_loss": 0.0, "value_loss": 2.5, "entropy": math.log(2), "kl": 0.0, "grad_norm": math.sqrt(0.5)}
    )
    assert agent.alg.model.logits.tolist() == pytest.approx([-0.25, 0.25], rel=1e-4)
    assert agent.alg.model.level.tolist() == pytest.approx([0.5], rel=1e-4)
    assert (agent.alg.env_steps, agent.alg.n_updates) == (2, 1)


def test_the_direction_of_one_update_leaves_nothing_behind_for_the_next():
    # the second batch has the opposite gradient of V, so that V goes back to where it was: Adam without momentum
    agent = Agent(IMPALA(Table(), ImpalaSettings(value_learning_rate=0.5)))
    levels = []
    for reward in (2.0, -1.5):
        ended = np.ones((1, 2), dtype=bool)
        agent.learn(rollout(1, 2, reward=np.full((1, 2), reward, dtype=np.float32), terminated=ended))
        levels.append(agent.alg.model.level.item())
    assert levels == pytest.approx([0.5, 0.0], abs=1e-4)


def test_the_entropy_bonus_falls_to_zero_at_total_steps():
    agent = Agent(IMPALA(Table(), ImpalaSettings(total_steps=40, learning_rate=0.0)))
    with torch.no_grad():
        agent.alg.model.logits.copy_(torch.tensor([0.0, 1.0]))
    norms = [agent.learn(rollout(5, 2))["grad_norm"] for _ in range(5)]  # no advantage: the bonus is all there is
    assert norms[0] > 1e-4
    assert [norm / norms[0] for norm in norms] == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])


def test_the_learning_rates_fall_to_zero_at_total_steps():
    alg = IMPALA(Table(), ImpalaSettings(total_steps=40, learning_rate=1.0, value_learning_rate=2.0))
    rates = []
    for _ in range(5):
        Agent(alg).learn(rollout(5, 2))
        rates.append([group["lr"] for group in alg.optimizer.param_groups])
    assert rates == [[1.0, 2.0], [0.75, 1.5], [0.5, 1.0], [0.25, 0.5], [0.0, 0.0]]


def test_final_observations_are_what_a_truncated_step_bootstraps_from():
    class Identity(Table):
        def value(self, obs):
            return obs.squeeze(-1) + 0 * self.level

    batch = rollout(
        2,
        1,
        obs=np.array([[[1]], [[100]], [[3]]], dtype=np.float32),
        truncated=np.array([[True], [False]]),
        final_obs=np.array([[7]], dtype=np.float32),
        final_row=np.array([0]),
    )
    settings = ImpalaSettings(gamma=0.5)
    metrics = Agent(IMPALA(Identity(), settings)).learn(batch)
    # targets 0.5 * 7 and 0.5 * 3 for values 1 and 100
    assert metrics["value_loss"] == pytest.approx((2.5**2 + 98.5**2) / 4)


def test_a_model_whose_policy_and_value_share_layers_learns_at_one_rate():
    class Shared(Table):
        get_actor_params = property()
        get_critic_params = property()

    alg = IMPALA(Shared(), ImpalaSettings())
    assert [len(group["params"]) for group in alg.optimizer.param_groups] == [2]


def test_predict_gives_the_likeliest_action_and_sample_draws():
    agent = Agent(IMPALA(Table(), ImpalaSettings()))
    with torch.no_grad():
        agent.alg.model.logits.copy_(torch.tensor([0.0, math.log(3)]))
    obs = np.zeros((4000, 1), dtype=np.float32)
    assert agent.predict(obs).all()
    torch.manual_seed(0)
    assert agent.sample(obs).mean() == pytest.approx(0.75, abs=0.03)


def test_twenty_updates_saved_and_restored_and_twenty_more_equal_forty(tmp_path):
    def new_agent(seed: int) -> Agent:
        torch.manual_seed(seed)
        return Agent(IMPALA(actor_critic(NetworkSettings(hidden_size=8), SPACES), ImpalaSettings(total_steps=3000)))

    def batches():
        stream = np.random.default_rng(0)
        for _ in range(40):
            obs = stream.standard_normal((9, 4, 1)).astype(np.float32)
            action, end = stream.integers(2, size=(8, 4)), stream.random((8, 4)) < 0.1
            yield rollout(8, 4, obs=obs, action=action, reward=obs[:-1, :, 0], terminated=end)

    straight, half = new_agent(1), new_agent(1)
    for number, batch in enumerate(batches()):
        straight.learn(batch)
        half.learn(batch)
        if number == 19:
            half.save(tmp_path / "half.ckpt")
            half = new_agent(2)
            half.restore(tmp_path / "half.ckpt")
    assert (half.alg.env_steps, half.alg.n_updates) == (40 * 32, 40)
    assert half.alg.optimizer.param_groups[0]["lr"] == straight.alg.optimizer.param_groups[0]["lr"]
    for name, array in straight.get_weights().items():
        np.testing.assert_array_equal(half.get_weights()[name], array)


def test_the_deep_recurrent_network_learns_from_images():
    settings = ENTRY.settings_from({"env": "ALE/Pong-v5", "frame_size": 24, "network": "impala", "lstm_size": 8})
    agent = Agent(IMPALA(actor_critic(settings, Spaces(ObsSpec((4, 24, 24), np.dtype(np.uint8)), DiscreteActions(2))), settings))
    stream = np.random.default_rng(0)
    images = stream.integers(256, size=(5, 2, 4, 24, 24)).astype(np.uint8)
    before, state = agent.get_weights(), (np.zeros((2, 8), dtype=np.float32),) * 2
    reward = stream.standard_normal((4, 2)).astype(np.float32)
    metrics = agent.learn(rollout(4, 2, obs=images, reward=reward, state=state))
    assert np.isfinite(list(metrics.values())).all()
    assert all((array != before[name]).any() for name, array in agent.get_weights().items())


def train(env, **settings) -> tuple[Agent, float]:
    """Learn in turns with one worker that acts with the weights before the last; return the agent and the last mean return."""
    settings = ImpalaSettings(**{"envs_per_actor": 8, "unroll_length": 16, "hidden_size": 16, **settings})
    worker = RolloutWorker(
        partial(make_envs, env, settings.envs_per_actor),
        partial(actor_critic, settings),
        unroll_length=settings.unroll_length,
        seed=1,
        rank=0,
    )
    agent = Agent(IMPALA(actor_critic(settings, worker.collector.spaces), settings))
    older = weights = agent.get_weights()
    returns: list[float] = []
    while agent.alg.env_steps < settings.total_steps:
        worker.set_weights(agent.alg.n_updates, older)
        batch = concatenate([worker.sample()])
        agent.learn(batch)
        older, weights = weights, agent.get_weights()
        returns += batch["episode_return"][~np.isnan(batch["episode_return"])].tolist()
    return agent, float(np.mean(returns[-100:]))


def test_a_corridor_is_solved_by_rollouts_of_an_older_policy():
    agent, mean_return = train(Corridor, total_steps=6000, learning_rate=5e-3)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    assert mean_return > 0.5  # 0.6 is the best; a random walk gets about -0.8


def test_what_was_seen_four_steps_before_is_remembered_by_a_recurrent_policy():
    _, mean_return = train(Recall, total_steps=16000, learning_rate=1e-2, lstm_size=16, activation="relu")
    assert mean_return > 0.9  # without a memory 0 is the best


@pytest.mark.parametrize("squash", [False, True])
def test_continuous_actions_hit_what_they_aim_at(squash):
    sizes = {"total_steps": 8000, "unroll_length": 8}
    _, mean_return = train(Aim, learning_rate=1e-2, entropy_cost=0.0, log_std=-0.7, squash=squash, **sizes)
    assert mean_return > -0.15  # actions of the first policy get about -0.9


# Categorical, its distribution


def test_categorical_by_hand():
    pi = Categorical(torch.tensor([[0.0, math.log(3)]]) + 5)
    assert pi.log_prob(torch.tensor([1])).exp().tolist() == pytest.approx([0.75])
    assert pi.entropy().tolist() == pytest.approx([-0.25 * math.log(0.25) - 0.75 * math.log(0.75)])
    assert pi.mode().tolist() == [1]
    other = Categorical(torch.zeros(1, 2))
    assert pi.kl(other).tolist() == pytest.approx([0.25 * math.log(0.5) + 0.75 * math.log(1.5)])
    assert pi.kl(pi).tolist() == [0.0]
