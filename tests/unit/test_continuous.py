"""DDPG, TD3, SAC, D4PG: a loss by hand, saved and restored bit by bit, a point brought to rest."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn
from value_loops import Plain, assert_resumes_exactly, train

from parl_lite.agent import Agent
from parl_lite.agents import d4pg, ddpg, sac, td3
from parl_lite.agents.d4pg import D4PG, D4PGLearning
from parl_lite.agents.ddpg import DDPG, DDPGLearning
from parl_lite.agents.sac import SAC, SACLearning
from parl_lite.agents.td3 import TD3, TD3Learning
from parl_lite.model import Model

ALGORITHMS = {
    "DDPG": (DDPG, DDPGLearning, ddpg.network, {}),
    "TD3": (TD3, TD3Learning, td3.network, {}),
    "SAC": (SAC, SACLearning, sac.network, {"temperature_learning_rate": 3e-2}),
    "D4PG": (D4PG, D4PGLearning, d4pg.network, {"n_step": 2, "value_low": -8.0, "value_high": 0.0, "target_period": 20}),
}


class Lines(Model):
    """Everything is linear: mu(s) = actor s, Q_i(s, a) = slope_i a + level_i s, for numbers s and a."""

    def __init__(self, actor: float, slopes: list[float], levels: list[float]) -> None:
        super().__init__()
        self.actor = nn.Parameter(torch.tensor([actor]))
        self.slopes = nn.Parameter(torch.tensor(slopes))
        self.levels = nn.Parameter(torch.tensor(levels))

    def policy(self, obs):
        return obs * self.actor

    def value(self, obs, action):
        return self.slopes.unsqueeze(1) * action.squeeze(1) + self.levels.unsqueeze(1) * obs.squeeze(1)

    def get_actor_params(self):
        return [self.actor]

    def get_critic_params(self):
        return [self.slopes, self.levels]


def batch(**columns) -> dict[str, np.ndarray]:
    """Two transitions from s = 1 by a = 0.5 to s' = 2; the second terminates."""
    return {
        "obs": np.ones((2, 1), dtype=np.float32),
        "action": np.full((2, 1), 0.5, dtype=np.float32),
        "reward": np.array([1.0, 3.0], dtype=np.float32),
        "next_obs": np.full((2, 1), 2.0, dtype=np.float32),
        "discount": np.array([0.5, 0.0], dtype=np.float32),
        **columns,
    }


def test_a_loss_of_ddpg_by_hand():
    # Q(1, 0.5) = 4 0.5 + 1 = 3; mu(2) = 0.5, Q(2, 0.5) = 4; targets 1 + 0.5 4 = 3 and 3
    agent = Agent(DDPG(Lines(0.25, [4.0], [1.0]), DDPGLearning(actor_learning_rate=0.01, critic_learning_rate=0.01)))
    measures = agent.learn(batch(reward=np.array([1.0, 5.0], dtype=np.float32), weight=np.array([1.0, 0.5], dtype=np.float32)))
    assert measures["critic_loss"] == pytest.approx((0 + 4) / 2)
    assert measures["priority"].tolist() == pytest.approx([0.0, 2.0])
    # then the critic has moved up by its learning rate, and the actor climbs: Q(1, mu(1)) = 4.01 0.25 + 1.01
    assert measures["actor_loss"] == pytest.approx(-(4.01 * 0.25 + 1.01), rel=1e-5)
    assert agent.alg.model.actor.item() == pytest.approx(0.26, rel=1e-4)
    # the target networks follow by 0.005
    assert agent.alg.target.actor.item() == pytest.approx(0.25 + 0.005 * 0.01, rel=1e-6)


def test_the_actors_step_leaves_the_critic_alone():
    agent = Agent(DDPG(Lines(0.25, [4.0], [1.0]), DDPGLearning(critic_learning_rate=1e-12)))
    agent.learn(batch())
    assert agent.alg.model.slopes.tolist() == [4.0]
    assert agent.alg.model.actor.item() != 0.25


def test_a_loss_of_td3_by_hand(monkeypatch):
    # mu(2) = 1; noise of 0.2 (-1) and 0.2 (-9), clipped to -0.5: actions 0.8 and 0.5; the least of the critics:
    # min(4 0.8 + 2, 3.2 2) = 5.2; targets 1 + 2.6 and 3. Q(1, 0.5) = (3, 2): errors 0.6, 1.6 and 0, 1
    monkeypatch.setattr(torch, "randn_like", lambda action: torch.tensor([[-1.0], [-9.0]]))
    agent = Agent(TD3(Lines(0.5, [4.0, 0.0], [1.0, 2.0]), TD3Learning()))
    with torch.no_grad():
        agent.alg.target.slopes.copy_(torch.tensor([4.0, 0.0]))
        agent.alg.target.levels.copy_(torch.tensor([1.0, 3.2]))
    measures = agent.learn(batch(weight=np.ones(2, dtype=np.float32)))
    assert measures["critic_loss"] == pytest.approx((0.36 + 2.56 + 0 + 1) / 2, rel=1e-5)
    assert measures["priority"].tolist() == pytest.approx([1.1, 0.5], rel=1e-5)


def test_the_actor_and_the_targets_of_td3_wait():
    agent = Agent(TD3(Lines(0.5, [4.0, 0.0], [1.0, 2.0]), TD3Learning(critic_learning_rate=0.1)))
    assert "actor_loss" not in agent.learn(batch())
    assert (agent.alg.model.actor.item(), agent.alg.target.levels.tolist()) == (0.5, [1.0, 2.0])
    assert agent.alg.model.levels.tolist() != [1.0, 2.0]
    assert "actor_loss" in agent.learn(batch())
    assert agent.alg.model.actor.item() != 0.5
    assert agent.alg.target.levels.tolist() != [1.0, 2.0]


class Gaussian(Lines):
    """The same with a policy of mean mu(s) and deviation 1/2."""

    def policy(self, obs):
        mean = obs * self.actor
        return mean, torch.full_like(mean, math.log(0.5))


def test_a_loss_of_sac_by_hand(monkeypatch):
    # u' = 2 0.5 + 0.5 1 = 1.5, a' = tanh(1.5); log pi = -1/2 - log(0.5) - log(2 pi)/2 - log(1 - a'^2)
    # target = 1 + 0.5 (min(4 a' + 2, 4) - 0.1 log pi), and 3; Q(1, 0.5) = (3, 2)
    monkeypatch.setattr(torch, "randn_like", torch.ones_like)
    settings = SACLearning(temperature=0.1, temperature_learning_rate=0.01, critic_learning_rate=1e-12)
    agent = Agent(SAC(Gaussian(0.5, [4.0, 0.0], [1.0, 2.0]), settings))
    action = math.tanh(1.5)
    log_prob = -0.5 - math.log(0.5) - 0.5 * math.log(2 * math.pi) - math.log(1 - action**2)
    target = 1 + 0.5 * (min(4 * action + 2, 4.0) - 0.1 * log_prob)
    measures = agent.learn(batch())
    assert measures["critic_loss"] == pytest.approx(((target - 3) ** 2 + (target - 2) ** 2 + 0 + 1) / 2, rel=1e-5)
    # the actor's own actions: u = 0.5 + 0.5, a = tanh(1); alpha log pi - min(4 a + 1, 2)
    action = math.tanh(1.0)
    log_prob = -0.5 - math.log(0.5) - 0.5 * math.log(2 * math.pi) - math.log(1 - action**2)
    assert measures["actor_loss"] == pytest.approx(0.1 * log_prob - 2.0, rel=1e-5)
    assert measures["entropy"] == pytest.approx(-log_prob, rel=1e-5)
    # the entropy is above its target of -1, so that log alpha falls by its learning rate
    assert -log_prob > -1
    assert agent.alg.temperature == pytest.approx(0.1 * math.exp(-0.01), rel=1e-5)


def test_a_fixed_temperature_stays():
    agent = Agent(SAC(Gaussian(0.5, [4.0, 0.0], [1.0, 2.0]), SACLearning(temperature=0.2, automatic_temperature=False)))
    agent.learn(batch())
    assert agent.alg.temperature == pytest.approx(0.2)


def test_the_density_of_squashed_actions_sums_to_one():
    # the mean of 1 / pi(a) over actions drawn from pi is the length of the interval they lie in, 2
    model = Gaussian(0.5, [0.0, 0.0], [0.0, 0.0])
    algorithm = SAC(model, SACLearning())
    torch.manual_seed(0)
    action, log_prob = algorithm._draw(torch.full((200_000, 1), 0.6))
    assert action.abs().max() < 1
    assert (-log_prob).exp().mean().item() == pytest.approx(2.0, rel=0.05)


def test_predict_is_the_middle_and_sample_draws():
    agent = Agent(SAC(Gaussian(0.5, [0.0, 0.0], [0.0, 0.0]), SACLearning()))
    obs = np.ones((5000, 1), dtype=np.float32)
    torch.manual_seed(0)
    assert agent.predict(obs)[0, 0] == pytest.approx(math.tanh(0.5))
    assert np.median(agent.sample(obs)) == pytest.approx(math.tanh(0.5), abs=0.03)
    noisy = Agent(DDPG(Lines(0.5, [0.0], [0.0]), DDPGLearning(exploration_noise=0.2)))
    assert noisy.predict(obs)[0, 0] == 0.5
    assert noisy.sample(obs).std() == pytest.approx(0.2, rel=0.1)


class Atoms(Lines):
    """A distribution on 0, 1, 2 by action: p(2) = a, p(0) = 1 - a."""

    def __init__(self) -> None:
        super().__init__(0.25, [1.0], [0.0])
        self.register_buffer("support", torch.tensor([0.0, 1.0, 2.0]))

    def log_probs(self, obs, action):
        share = self.slopes * action
        return torch.cat([1 - share, torch.full_like(share, 1e-9), share], dim=1).log()

    def value(self, obs, action):
        return (self.log_probs(obs, action).exp() @ self.support).unsqueeze(0)


def test_a_loss_of_d4pg_by_hand():
    # mu(2) = 0.5: returns 0 and 2 with chance 1/2 each; targets 1 + 0.5 (0, 2) = 1 and 2, and 3, beyond: 2
    # Z(1, 0.5) is on 0 and 2 alike: cross entropies (log 2 - log 1e-9) / 2 and log 2
    agent = Agent(D4PG(Atoms(), D4PGLearning()))
    measures = agent.learn(batch(weight=np.ones(2, dtype=np.float32)))
    first = 0.5 * (math.log(2) - math.log(1e-9))
    assert measures["critic_loss"] == pytest.approx((first + math.log(2)) / 2, rel=1e-4)
    assert measures["priority"].tolist() == pytest.approx([first - math.log(2), math.log(2)], rel=1e-4)


# All of them


def agent_of(name: str, **overrides) -> Agent:
    algorithm, settings, network, fields = ALGORITHMS[name]
    rates = {"actor_learning_rate": 1e-3, "critic_learning_rate": 3e-3, "target_rate": 0.02 if name != "D4PG" else 1.0}
    chosen = settings(**{**rates, "gamma": 0.8, **fields, **overrides})
    return Agent(algorithm(network(chosen, Plain(1), 1, (32, 32)), chosen))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_half_the_updates_saved_and_restored_and_the_other_half_equal_all(name, tmp_path):
    stream = np.random.default_rng(0)
    batches = [
        {
            "obs": stream.standard_normal((8, 1)).astype(np.float32),
            "action": stream.uniform(-1, 1, (8, 1)).astype(np.float32),
            "reward": -stream.random(8).astype(np.float32),
            "next_obs": stream.standard_normal((8, 1)).astype(np.float32),
            "discount": (0.9 * (stream.random(8) < 0.8)).astype(np.float32),
            "weight": stream.random(8).astype(np.float32),
        }
        for _ in range(18)
    ]
    assert_resumes_exactly(lambda: agent_of(name), batches, tmp_path / "half.ckpt")


class Point(gymnasium.Env):
    """Bring a point on a line to rest at 0: x += a / 2, reward -x^2; a time limit of 5 steps is the only end."""

    observation_space = Box(-2, 2, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.count = self.np_random.uniform(-1, 1), 0
        return self._obs(), {}

    def step(self, action):
        self.count += 1
        self.place += 0.5 * float(action[0])
        return self._obs(), -(self.place**2), False, self.count == 5, {}

    def _obs(self):
        return np.array([self.place], dtype=np.float32)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_point_is_brought_to_rest(name):
    torch.manual_seed(0)
    agent = agent_of(name)
    agent.alg.exploration = 0.4
    train(agent, Point(), lambda obs: agent.sample(obs[None])[0], 400)
    places = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    best = np.clip(-2 * places, -1, 1)
    assert np.abs(agent.predict(places) - best).mean() < 0.2
