"""DQN, Ape-X, C51, QR-DQN, IQN, Rainbow: a loss by hand, saved and restored bit by bit, a corridor walked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from learning_envs import Corridor
from torch import nn
from value_loops import Dense, assert_resumes_exactly, train

from parl_lite.agent import Agent
from parl_lite.agents import apex, c51, dqn, iqn, qrdqn, rainbow
from parl_lite.agents.apex import ApexDQN, ApexLearning
from parl_lite.agents.c51 import C51, C51Learning
from parl_lite.agents.dqn import DQN, DQNLearning
from parl_lite.agents.iqn import IQN, IQNLearning
from parl_lite.agents.qrdqn import QRDQN, QRDQNLearning
from parl_lite.agents.rainbow import Rainbow, RainbowLearning
from parl_lite.model import Model

ALGORITHMS = {
    "DQN": (DQN, DQNLearning, dqn.network, {}),
    "Double": (DQN, DQNLearning, dqn.network, {"double": True}),
    "Dueling": (DQN, DQNLearning, dqn.network, {"dueling": True}),
    "Noisy": (DQN, DQNLearning, dqn.network, {"noisy": True}),
    "3-step": (DQN, DQNLearning, dqn.network, {"n_step": 3}),
    "Ape-X": (ApexDQN, ApexLearning, apex.network, {"head_size": 32, "adam_epsilon": 1e-5}),
    "C51": (C51, C51Learning, c51.network, {"n_atoms": 21, "value_low": -2.0, "value_high": 1.0, "adam_epsilon": 1e-5}),
    "QR-DQN": (QRDQN, QRDQNLearning, qrdqn.network, {"n_quantiles": 20, "adam_epsilon": 1e-5}),
    "IQN": (IQN, IQNLearning, iqn.network, {"n_fractions": 8, "n_target_fractions": 8, "n_cosines": 16, "adam_epsilon": 1e-5}),
    "Rainbow": (
        Rainbow,
        RainbowLearning,
        rainbow.network,
        {"n_atoms": 21, "value_low": -2.0, "value_high": 1.0, "head_size": 32, "adam_epsilon": 1e-5},
    ),
}


def agent_of(name: str, **overrides) -> Agent:
    algorithm, settings, network, fields = ALGORITHMS[name]
    chosen = settings(**{"learning_rate": 3e-3, "target_period": 50, "gamma": 0.9, **fields, **overrides})
    return Agent(algorithm(network(chosen, Dense(5, 32), 2), chosen))


class Table(Model):
    """Numbers for 2 states and 2 actions, found by the observation; each algorithm reads them in its way."""

    def __init__(self, numbers) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor(numbers, dtype=torch.float32))  # (2, 2) or (2, 2, K)
        self.register_buffer("support", torch.tensor([-1.0, 0.0, 1.0]))
        self.register_buffer("fractions", torch.tensor([0.25, 0.75]))

    def quantiles(self, obs, fractions=None):
        return self.numbers[obs]

    def log_probs(self, obs):
        return self.numbers[obs]

    def forward(self, obs):
        numbers = self.numbers[obs]
        if numbers.ndim == obs.ndim + 1:
            return numbers
        return numbers.exp() @ self.support if numbers.shape[-1] == 3 else numbers.mean(dim=-1)


def batch(**columns) -> dict[str, np.ndarray]:
    """Two transitions: from state 0 by action 1 to state 1, which terminates the second time."""
    return {
        "obs": np.array([0, 0]),
        "action": np.array([1, 1]),
        "reward": np.array([1.0, 5.0], dtype=np.float32),
        "next_obs": np.array([1, 1]),
        "discount": np.array([0.5, 0.0], dtype=np.float32),
        **columns,
    }


# DQN


def test_a_loss_of_dqn_by_hand():
    # targets 1 + 0.5 max(3, 4) = 3 and 5, Q(0, 1) = 2.5: errors 0.5 and 2.5, losses 1/8 and 2
    # gradient of Q(0, 1): -(0.5 + 1) / 2; Adam's first step has the size of the learning rate
    agent = Agent(DQN(Table([[0.0, 2.5], [3.0, 4.0]]), DQNLearning(learning_rate=0.25)))
    measures = agent.learn(batch())
    assert measures == pytest.approx({"loss": (0.125 + 2.0) / 2, "grad_norm": 0.75})
    np.testing.assert_allclose(agent.alg.model.numbers.detach(), [[0.0, 2.75], [3.0, 4.0]], rtol=1e-5)


def test_the_learning_network_chooses_and_the_target_network_says_what_it_is_worth():
    agent = Agent(DQN(Table([[0.0, 0.0], [3.0, 4.0]]), DQNLearning(double=True, huber_delta=0.0)))
    with torch.no_grad():
        agent.alg.target.numbers.copy_(torch.tensor([[0.0, 0.0], [7.0, 2.0]]))
    plain = Agent(DQN(Table([[0.0, 0.0], [3.0, 4.0]]), DQNLearning(huber_delta=0.0)))
    plain.alg.target.load_state_dict(agent.alg.target.state_dict())
    assert agent.alg.priority({name: torch.as_tensor(column) for name, column in batch().items()}).tolist() == [2.0, 5.0]
    assert plain.alg.priority({name: torch.as_tensor(column) for name, column in batch().items()}).tolist() == [4.5, 5.0]


def test_weights_multiply_the_loss_and_bring_priorities():
    agent = Agent(DQN(Table([[0.0, 2.5], [3.0, 4.0]]), DQNLearning()))
    measures = agent.learn(batch(weight=np.array([1.0, 0.1], dtype=np.float32)))
    assert measures["grad_norm"] == pytest.approx((1.0 * 0.5 + 0.1 * 1.0) / 2)
    np.testing.assert_allclose(measures["priority"], [0.5, 2.5])


def test_the_target_network_moves_once_a_period_and_by_its_rate():
    agent = Agent(DQN(Table([[0.0, 0.0], [0.0, 0.0]]), DQNLearning(target_period=2, target_rate=0.25, learning_rate=1.0)))
    agent.learn(batch())
    assert agent.alg.target.numbers.abs().max() == 0
    agent.learn(batch())
    np.testing.assert_allclose(agent.alg.target.numbers, 0.25 * agent.alg.model.numbers.detach(), rtol=1e-6)
    assert not agent.alg.target.numbers.requires_grad


def test_sample_explores_by_the_attribute_or_the_argument_and_predict_never():
    agent = Agent(DQN(Table([[0.0, 1.0], [0.0, 0.0]]), DQNLearning()))
    obs = np.zeros(4000, dtype=np.int64)
    torch.manual_seed(0)
    assert agent.sample(obs).mean() == pytest.approx(0.5, abs=0.03)  # epsilon_start
    agent.alg.epsilon = 0.2
    assert agent.sample(obs).mean() == pytest.approx(0.9, abs=0.03)
    assert agent.sample(obs, epsilon=0.0).all()
    assert agent.predict(obs).all()


def test_noisy_networks_explore_by_their_noise_and_predict_without():
    torch.manual_seed(0)
    agent = agent_of("Noisy")
    obs = np.eye(5, dtype=np.float32)
    assert agent.alg.epsilon == 0.0
    assert len({tuple(agent.sample(obs)) for _ in range(50)}) > 1
    assert len({tuple(agent.predict(obs)) for _ in range(50)}) == 1
    assert agent.alg.model.training


# Distributions


def log(*probs: float) -> list[float]:
    return [math.log(p) if p else -50.0 for p in probs]


def test_a_loss_of_c51_by_hand():
    # state 1: action 0 is worth 0.5, action 1 less. Target of the first: 0.5 + 0.5 z for z = -1, 0, 1, that is 0, 0.5, 1 with
    # probabilities 0.1, 0.3, 0.6: atoms 0 and 1 get 0.1 + 0.15 and 0.6 + 0.15. Target of the second: 5, beyond: all at atom 1
    table = [[log(1, 0, 0), log(0.2, 0.3, 0.5)], [log(0.1, 0.3, 0.6), log(0.4, 0.3, 0.3)]]
    agent = Agent(C51(Table(table), C51Learning()))
    measures = agent.learn(batch(reward=np.array([0.5, 5.0], dtype=np.float32), weight=np.array([1, 1], dtype=np.float32)))
    losses = [-0.25 * math.log(0.3) - 0.75 * math.log(0.5), -math.log(0.5)]
    assert measures["loss"] == pytest.approx(sum(losses) / 2)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert measures["priority"].tolist() == pytest.approx([losses[0] - entropy, losses[1]], abs=1e-6)


def test_a_loss_of_qr_dqn_by_hand():
    # state 1: action 1 has the larger mean. Targets 1 + 0.5 (2, 6) = 2, 4 and 5, 5; quantiles 1 and 3 at 1/4 and 3/4
    # first: at 1: u = 1, 3: 1/4 (1/2 + 5/2) / 2; at 3: u = -1, 1: (1/4 1/2 + 3/4 1/2) / 2
    # second: at 1: u = 4: 1/4 7/2; at 3: u = 2: 3/4 3/2
    agent = Agent(QRDQN(Table([[[0, 0], [1, 3]], [[4, 3], [2, 6]]]), QRDQNLearning()))
    measures = agent.learn(batch(weight=np.array([1, 1], dtype=np.float32)))
    assert measures["priority"].tolist() == pytest.approx([0.375 + 0.25, 0.875 + 1.125])
    assert measures["loss"] == pytest.approx((0.625 + 2.0) / 2)


def test_a_loss_of_iqn_is_that_of_the_fractions_it_draws(monkeypatch):
    # the same as QR-DQN above where the fractions are 1/4 and 3/4
    monkeypatch.setattr(torch, "rand", lambda n, m, device: torch.tensor([0.25, 0.75]).expand(n, m))
    settings = IQNLearning(n_fractions=2, n_target_fractions=2)
    agent = Agent(IQN(Table([[[0, 0], [1, 3]], [[4, 3], [2, 6]]]), settings))
    assert agent.learn(batch())["loss"] == pytest.approx((0.625 + 2.0) / 2)


def test_iqn_finds_the_quantiles_of_a_coin():
    # rewards 0 and 1 with equal chance, no successor: the return is 0 below the fraction 1/2 and 1 above
    torch.manual_seed(0)
    settings = IQNLearning(learning_rate=1e-2, n_cosines=16, adam_epsilon=1e-5)
    agent = Agent(IQN(iqn.network(settings, Dense(1, 32), 1), settings))
    zeros, ones = np.zeros((64, 1), dtype=np.float32), np.ones((64, 1), dtype=np.float32)
    coin = np.arange(64, dtype=np.float32) % 2
    for _ in range(200):
        agent.learn({"obs": ones, "action": zeros[:, 0].astype(int), "reward": coin, "next_obs": ones, "discount": zeros[:, 0]})
    low, high = agent.alg.model.quantiles(torch.ones(1, 1), torch.tensor([[0.2, 0.8]]))[0, 0].tolist()
    assert low < 0.25 and high > 0.75


def test_rainbow_is_all_of_it():
    settings = RainbowLearning()
    assert (settings.double, settings.dueling, settings.noisy, settings.n_step) == (True, True, True, 3)
    assert settings.priority_exponent == 0.5
    network = rainbow.network(settings, Dense(5, 8), 3)
    names = {name for name, _ in network.named_parameters()}
    assert {"head.value.2.weight_sigma", "head.advantage.0.weight_sigma"} <= names
    assert network.log_probs(torch.zeros(2, 5)).shape == (2, 3, 51)


def test_apex_is_double_dueling_prioritized_with_three_steps():
    settings = ApexLearning()
    assert (settings.double, settings.dueling, settings.n_step, settings.priority_exponent) == (True, True, 3, 0.6)
    # an actor gives its transitions priorities before they are learned from: |1 + 0.5 4 - 2.5| and |5 - 2.5|
    actor = ApexDQN(Table([[0.0, 2.5], [3.0, 4.0]]), settings)
    assert actor.priority({name: torch.as_tensor(column) for name, column in batch().items()}).tolist() == [0.5, 2.5]


# All of them


@pytest.mark.parametrize("name", ALGORITHMS)
def test_half_the_updates_saved_and_restored_and_the_other_half_equal_all(name, tmp_path):
    stream = np.random.default_rng(0)
    batches = [
        {
            "obs": stream.standard_normal((8, 5)).astype(np.float32),
            "action": stream.integers(2, size=8),
            "reward": stream.standard_normal(8).astype(np.float32),
            "next_obs": stream.standard_normal((8, 5)).astype(np.float32),
            "discount": (0.9 * (stream.random(8) < 0.8)).astype(np.float32),
            "weight": stream.random(8).astype(np.float32),
        }
        for _ in range(20)
    ]
    assert_resumes_exactly(lambda: agent_of(name, target_period=7), batches, tmp_path / "half.ckpt")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_corridor_is_walked(name):
    torch.manual_seed(0)
    agent = agent_of(name)
    agent.alg.epsilon = 0.0 if agent.alg.settings.noisy else 0.3
    train(agent, Corridor(), lambda obs: int(agent.sample(obs[None])[0]), 250)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
    # from the last cell the end is one step away: 1 - 0.1; from the one before 0.9 of it, less 0.1
    values = agent.alg.model(torch.eye(5)).detach().amax(dim=-1)
    assert values[2:4].tolist() == pytest.approx([0.71, 0.9], abs=0.15)
