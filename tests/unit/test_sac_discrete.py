"""SAC for discrete actions: a loss by hand, saved and restored bit by bit, a corridor walked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from learning_envs import Corridor
from torch import nn
from value_loops import Dense, assert_resumes_exactly, train

from parl_lite.agent import Agent
from parl_lite.agents.sac_discrete import DiscreteSAC, DiscreteSACLearning, network
from parl_lite.model import Model


class Table(Model):
    """Logits and the values of two critics for 2 states and 2 actions."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]))
        self.values = nn.Parameter(torch.tensor([[[0.0, 2.0], [4.0, 6.0]], [[1.0, 3.0], [5.0, 2.0]]]))  # (2, S, A)

    def policy(self, obs):
        return self.logits[obs]

    def value(self, obs):
        return self.values[:, obs]

    def get_actor_params(self):
        return [self.logits]

    def get_critic_params(self):
        return [self.values]


def test_a_loss_by_hand():
    # V(1) = (4 + 2) / 2 + 0.1 log 2; target 1 + V / 2; Q(0, 1) = (2, 3)
    batch = {
        "obs": np.array([0]),
        "action": np.array([1]),
        "reward": np.array([1.0], dtype=np.float32),
        "next_obs": np.array([1]),
        "discount": np.array([0.5], dtype=np.float32),
    }
    settings = DiscreteSACLearning(temperature=0.1, critic_learning_rate=1e-12, temperature_learning_rate=0.01)
    agent = Agent(DiscreteSAC(Table(), settings))
    measures = agent.learn(batch)
    target = 1 + (3 + 0.1 * math.log(2)) / 2
    assert measures["critic_loss"] == pytest.approx((target - 2) ** 2 + (target - 3) ** 2, rel=1e-5)
    # the policy of state 0 is (1/4, 3/4), the least values are (0, 2)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert measures["actor_loss"] == pytest.approx(-(0.75 * 2 + 0.1 * entropy), rel=1e-5)
    assert measures["entropy"] == pytest.approx(entropy, rel=1e-5)
    # above half of log 2: the temperature falls
    assert agent.alg.temperature == pytest.approx(0.1 * math.exp(-0.01), rel=1e-5)


def agent_of(**fields) -> Agent:
    rates = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "target_rate": 0.02, "gamma": 0.9}
    settings = DiscreteSACLearning(**{**rates, "temperature": 0.1, "target_entropy_share": 0.2, **fields})
    return Agent(DiscreteSAC(network(settings, lambda: Dense(5, 32), 2), settings))


def test_half_the_updates_saved_and_restored_and_the_other_half_equal_all(tmp_path):
    stream = np.random.default_rng(0)
    batches = [
        {
            "obs": stream.standard_normal((8, 5)).astype(np.float32),
            "action": stream.integers(2, size=8),
            "reward": stream.standard_normal(8).astype(np.float32),
            "next_obs": stream.standard_normal((8, 5)).astype(np.float32),
            "discount": (0.9 * (stream.random(8) < 0.8)).astype(np.float32),
        }
        for _ in range(10)
    ]
    assert_resumes_exactly(agent_of, batches, tmp_path / "half.ckpt")


def test_a_corridor_is_walked():
    torch.manual_seed(0)
    agent = agent_of()
    train(agent, Corridor(), lambda obs: int(agent.sample(obs[None])[0]), 400)
    assert agent.predict(np.eye(5, dtype=np.float32))[:4].tolist() == [1, 1, 1, 1]
