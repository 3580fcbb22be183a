"""Agent57 and its parts: novelty, the family of policies and its bandit by hand; a treasure that chance does not find."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from value_loops import Dense, assert_equal, assert_resumes_exactly

from parl_lite.agent import Agent
from parl_lite.agents.agent57 import Agent57, Agent57Learning, Values, family, network
from parl_lite.agents.novelty import EpisodicMemory, Novelty, NoveltyModel, NoveltySettings
from parl_lite.agents.player import row_priorities
from parl_lite.agents.policy_family import SlidingWindowUCB, agent57_discounts, discounts, intrinsic_weights
from parl_lite.model import Model

# Episodic novelty


def memory(**fields) -> EpisodicMemory:
    chosen = {"embedding_size": 1, "n_neighbours": 2, "kernel_epsilon": 0.1, "cluster_distance": 0.5, "kernel_constant": 0.01}
    return EpisodicMemory(NoveltySettings(**{**chosen, **fields}))


def embedding(number: float) -> np.ndarray:
    return np.array([number], dtype=np.float32)


def test_episodic_novelty_by_hand():
    episode = memory()
    assert episode.add(embedding(0.0)) == 0.0  # nothing to compare with
    # distance 4, running mean 4: 4/4 - 0.5 = 0.5, kernel 0.1 / 0.6
    assert episode.add(embedding(2.0)) == pytest.approx(1 / (math.sqrt(1 / 6) + 0.01))
    # distances 9 and 1, running mean 14/3: relative 9 3/14 - 0.5 and 0
    kernels = 0.1 / (27 / 14 - 0.5 + 0.1) + 1
    assert episode.add(embedding(3.0)) == pytest.approx(1 / (math.sqrt(kernels) + 0.01))
    # the two nearest of three only: 0 and 1, running mean 15/5 = 3: both relative distances are 0
    assert episode.add(embedding(3.0)) == pytest.approx(1 / (math.sqrt(2) + 0.01))


def test_what_is_too_similar_brings_nothing():
    episode = memory(max_similarity=1.2)
    for _ in range(3):
        last = episode.add(embedding(1.0))
    assert last == 0.0


def test_an_episode_begins_with_an_empty_memory_and_the_oldest_goes_first():
    episode = memory(memory_capacity=3)
    for number in range(5):
        episode.add(embedding(number))
    assert len(episode) == 3
    assert sorted(episode._embeddings[:3, 0]) == [2, 3, 4]
    episode.clear()
    assert len(episode) == 0 and episode.add(embedding(9.0)) == 0.0


def test_a_memory_grows_to_what_it_needs():
    episode = memory(memory_capacity=1000)
    for number in range(200):
        episode.add(embedding(number))
    assert len(episode) == 200 and len(episode._embeddings) == 256
    assert episode._embeddings[:200, 0].tolist() == list(range(200))


# Lifelong novelty


class Surprises(Model):
    """Embeds an observation as itself, and is as surprised as its first number says."""

    def embed(self, obs):
        return obs[:, :1]

    def surprise(self, obs):
        return obs[:, 1]


def test_the_factor_of_lifelong_novelty_by_hand():
    novelty = Novelty(Surprises(), 1, NoveltySettings(embedding_size=1))
    # means 1, 2, 3 and deviations 0, 1, sqrt(8/3): factors 1, 1 + (3 - 2)/1, 1 + (5 - 3)/sqrt(8/3)
    factors = [novelty._lifelong(np.array([surprise]))[0] for surprise in (1.0, 3.0, 5.0)]
    assert factors == pytest.approx([1.0, 2.0, 1 + 2 / math.sqrt(8 / 3)])
    assert novelty._lifelong(np.array([-9.0]))[0] == 1.0
    assert novelty._lifelong(np.array([1e6]))[0] <= 5.0


def test_each_environment_has_its_episode_and_a_first_observation_no_reward():
    novelty = Novelty(Surprises(), 2, NoveltySettings(embedding_size=1))
    assert novelty.reward(torch.tensor([[0.0, 1.0], [5.0, 1.0]]), np.array([True, True])).tolist() == [0.0, 0.0]
    moved = novelty.reward(torch.tensor([[0.0, 1.0], [6.0, 1.0]]), np.array([False, False]))
    assert 0 < moved[0] < moved[1]
    assert novelty.reward(torch.tensor([[3.0, 1.0], [7.0, 1.0]]), np.array([True, False]))[0] == 0.0
    assert [len(each) for each in novelty.memories] == [1, 3]


def test_what_is_often_seen_surprises_less_and_actions_can_be_told():
    torch.manual_seed(0)
    model = NoveltyModel(lambda: Dense(4, 32), 2, NoveltySettings(embedding_size=8, novelty_size=8))
    optimizer = torch.optim.Adam(model.get_learned_params(), 1e-2)
    often, seldom = torch.eye(4)[:2], torch.eye(4)[2:]
    action = torch.tensor([0, 1])
    for _ in range(150):
        loss = model.surprise(often).mean() + model.inverse_loss(often, often.flip(0), action).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model.surprise(often).max() < 0.1 * model.surprise(seldom).min()
    assert model.inverse_loss(often, often.flip(0), action).max() < 0.1
    assert all(parameter.grad is None for parameter in model.random.parameters())


# The family


def test_the_weights_of_novelty_by_hand():
    # 0, 0.3 sigmoid(10 (2j - 2) / 2) for j = 1, 2, and 0.3
    assert intrinsic_weights(4).tolist() == pytest.approx([0.0, 0.15, 0.3 / (1 + math.exp(-10)), 0.3])
    assert intrinsic_weights(1).tolist() == [0.0]
    assert len(intrinsic_weights(32)) == 32 and (np.diff(intrinsic_weights(32)) >= 0).all()


def test_the_discounts_by_hand():
    # evenly in log(1 - gamma): 1e-3, sqrt(1e-3 1e-1) = 1e-2, 1e-1
    assert discounts(3, 0.999, 0.9).tolist() == pytest.approx([0.999, 0.99, 0.9])
    gammas = agent57_discounts(32)
    assert gammas[[0, 7, 31]].tolist() == pytest.approx([0.9999, 0.997, 0.99])
    # gamma_j = 0.997 + 0.0029 sigmoid(10 (6 - 2j) / 6): in the middle for j = 3
    assert gammas[3] == pytest.approx(0.997 + 0.0029 / 2)
    assert len(gammas) == 32 and (np.diff(gammas) < 0).all()


def test_a_bandit_tries_every_arm_and_then_the_best_with_a_bonus_for_the_rare():
    bandit = SlidingWindowUCB(3, window=10, bonus=2.0, epsilon=0.0)
    for returned in (5.0, 4.0, 0.0):
        bandit.update(bandit.choose(), returned)
    assert [arm for arm, _ in bandit.episodes] == [0, 1, 2]
    assert bandit.choose() == 0  # 5 + 2, 4 + 2, 0 + 2
    for _ in range(3):
        bandit.update(0, 5.0)
    assert bandit.choose() == 0  # 5 + 2 / sqrt(4) = 6 = 4 + 2: the first of equals
    bandit.update(0, 5.0)
    assert bandit.choose() == 1  # 5 + 2 / sqrt(5) < 6
    assert bandit.best() == 0


def test_a_bandit_forgets():
    bandit = SlidingWindowUCB(2, window=4, bonus=0.0, epsilon=0.0)
    for arm, returned in ((0, 100.0), (1, 1.0), (1, 1.0), (0, 0.0), (0, 0.0)):
        bandit.update(arm, returned)
    assert bandit.best() == 1  # the 100 is out of the window


def test_a_bandit_draws_any_arm_with_probability_epsilon_and_resumes_exactly():
    bandit, other = SlidingWindowUCB(4, epsilon=1.0, seed=1), SlidingWindowUCB(4, epsilon=1.0, seed=2)
    for arm in range(4):
        bandit.update(arm, arm)
    assert {bandit.choose() for _ in range(100)} == {0, 1, 2, 3}
    other.load_state_dict(bandit.state_dict())
    assert [bandit.choose() for _ in range(50)] == [other.choose() for _ in range(50)]
    assert_equal(list(other.episodes), list(bandit.episodes))


# The algorithm


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


class Tables(Model):
    """The values of both kinds by observation, 2 actions, no memory."""

    def __init__(self, extrinsic, intrinsic) -> None:
        super().__init__()
        self.extrinsic = nn.Parameter(torch.tensor(extrinsic, dtype=torch.float32))
        self.intrinsic = nn.Parameter(torch.tensor(intrinsic, dtype=torch.float32))

    def initial_state(self, n):
        return {}

    def unroll(self, obs, context, first, state):
        return Values(self.extrinsic[obs], self.intrinsic[obs]), {}


class Whole(Model):
    n_actions = 2

    def __init__(self, q: Tables) -> None:
        super().__init__()
        self.q = q
        self.novelty = NoveltyModel(lambda: nn.Embedding(3, 4), 2, NoveltySettings(embedding_size=4, novelty_size=4))


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setattr(nn.Embedding, "n_features", 4, raising=False)

    def make(extrinsic, intrinsic, **fields) -> Agent:
        chosen = {"n_policies": 2, "highest_gamma": 0.75, "lowest_gamma": 0.5, "largest_intrinsic_weight": 1.0}
        return Agent(Agent57(Whole(Tables(extrinsic, intrinsic)), Agent57Learning(**{**chosen, **fields})))

    return make


def sequence(length: int, n: int = 1, **columns) -> dict[str, np.ndarray]:
    shape, zeros = (length, n), np.zeros(n, dtype=np.float32)
    return {
        "obs": np.zeros(shape, dtype=np.int64),
        "action": np.zeros(shape, dtype=np.int64),
        "reward": np.zeros(shape, dtype=np.float32),
        "intrinsic_reward": np.zeros(shape, dtype=np.float32),
        "terminated": np.zeros(shape, dtype=bool),
        "first": np.zeros(shape, dtype=bool),
        "valid": np.ones(shape, dtype=bool),
        "policy": np.zeros(shape, dtype=np.int64),
        "behaviour_log_prob": np.zeros(shape, dtype=np.float32),
        "state": {"action": np.full(n, -1), "reward": zeros, "intrinsic_reward": zeros},
        "burn_in": 0,
        **columns,
    }


def test_a_loss_by_hand(tables):
    # policy 1: beta 1, gamma 1/2. Row 0 -> state 1 -> state 2. Greedy by the sum: in state 1 action 1 (0 + 8), in state 2
    # action 0 (6 + 0); the action taken in row 1 is the greedy one, so that the trace is lambda = 1/2
    # extrinsic: G[1] = 2 + 6/2 = 5; G[0] = 1 + (V + 1/2 (5 - Q)) / 2 = 1 + (0 + 1/2 (5 - 0)) / 2 = 2.25
    # intrinsic: G[1] = 0 + 0/2 = 0; G[0] = 4 + (8 + 1/2 (0 - 8)) / 2 = 6
    agent = tables(
        [[0, 0], [h(4), 0], [h(6), h(5)]],
        [[0, 0], [0, h(8)], [0, 0]],
        retrace_lambda=0.5,
    )
    batch = sequence(
        3,
        obs=np.array([[0], [1], [2]]),
        action=np.array([[0], [1], [0]]),
        reward=np.array([[1], [2], [99]], dtype=np.float32),
        intrinsic_reward=np.array([[4], [0], [99]], dtype=np.float32),
        policy=np.ones((3, 1), dtype=np.int64),
        behaviour_log_prob=np.full((3, 1), math.log(0.5), dtype=np.float32),
        weight=np.ones(1, dtype=np.float32),
    )
    measures = agent.learn(batch)
    extrinsic, intrinsic = [h(2.25), h(5)], [h(6), -h(8)]
    assert measures["loss"] == pytest.approx(sum(error**2 for error in extrinsic + intrinsic) / 2, rel=1e-4)
    sizes = [abs(e) + abs(i) for e, i in zip(extrinsic, intrinsic, strict=True)]
    assert measures["priority"].tolist() == pytest.approx([0.9 * max(sizes) + 0.1 * sum(sizes) / 2], rel=1e-4)


def test_an_actor_finds_the_priorities_of_its_rows(tables):
    # as above, with two rows of a rollout and the observation it ends with; beta 3/4, by which the same action is greedy
    agent = tables([[0, 0], [h(4), 0], [h(6), h(5)]], [[0, 0], [0, h(8)], [0, 0]], retrace_lambda=0.5)
    agent.alg.beta[1] = 0.75
    rollout = sequence(
        2,
        obs=np.array([[0], [1], [2]]),
        action=np.array([[0], [1]]),
        reward=np.array([[1], [2]], dtype=np.float32),
        intrinsic_reward=np.array([[4], [0]], dtype=np.float32),
        policy=np.ones((2, 1), dtype=np.int64),
        first=np.zeros((3, 1), dtype=bool),
        behaviour_log_prob=np.full((2, 1), math.log(0.5), dtype=np.float32),
    )
    expected = [[h(2.25) + 0.75 * h(6)], [h(5) + 0.75 * h(8)]]
    np.testing.assert_allclose(row_priorities(agent.alg, rollout), expected, rtol=1e-4)


def test_a_trace_ends_where_the_action_was_not_the_policys(tables):
    # policy 0 has beta 0 and gamma 3/4, and would have taken action 0 in state 1: G[0] = 1 + 3/4 4, without G[1]
    agent = tables([[0, 0], [h(4), 0], [0, 0]], [[0, 0], [0, h(8)], [0, 0]], retrace_lambda=0.5)
    batch = sequence(
        3,
        obs=np.array([[0], [1], [2]]),
        action=np.array([[0], [1], [0]]),
        reward=np.array([[1], [2], [99]], dtype=np.float32),
    )
    # intrinsic: G[1] = 0 for Q = h(8); G[0] = 3/4 of the value of action 0, 0
    expected = h(1 + 0.75 * 4) ** 2 + h(2) ** 2 + h(8) ** 2
    assert agent.learn(batch)["loss"] == pytest.approx(expected / 2, rel=1e-4)


def test_the_family_is_read_by_the_policy_that_acted():
    beta, gamma = family(Agent57Learning())
    assert (beta.shape, gamma.shape) == ((32,), (32,))
    assert beta[[0, 31]].tolist() == pytest.approx([0.0, 0.3])
    assert gamma[[0, 7, 31]].tolist() == pytest.approx([0.9999, 0.997, 0.99])
    assert family(Agent57Learning(n_policies=3))[1][[0, 2]].tolist() == pytest.approx([0.9999, 0.99])


def test_policies_act_by_their_weight_of_novelty(tables):
    agent = tables([[h(4), 0], [0, 0], [0, 0]], [[0, h(8)], [0, 0], [0, 0]])
    obs, first = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=bool)
    state = {name: part.numpy() for name, part in agent.alg.initial_state(2).items()}
    action, log_prob, state = agent.sample(obs, state, first, np.array([0, 1]), epsilon=0.0)
    assert action.tolist() == [0, 1] and log_prob.tolist() == [0.0, 0.0]
    assert agent.predict(obs, state, first)[0].tolist() == [0, 0]
    action, log_prob, _ = agent.sample(obs, state, first, np.array([0, 0]), epsilon=0.5)
    assert all(math.exp(log) == pytest.approx(0.75 if a == 0 else 0.25) for a, log in zip(action, log_prob, strict=True))


def small_agent(**fields) -> Agent:
    sizes = {"lstm_size": 16, "head_size": 16, "n_policies": 3, "embedding_size": 4, "novelty_size": 8}
    settings = Agent57Learning(**{**sizes, **fields})
    return Agent(Agent57(network(settings, lambda: Dense(3, 16), 2), settings))


def test_half_the_updates_saved_and_restored_and_the_other_half_equal_all(tmp_path):
    stream = np.random.default_rng(0)
    memory = {name: part.numpy() for name, part in small_agent().alg.initial_state(4).items()}

    def batch():
        normal = stream.standard_normal
        return sequence(
            8,
            4,
            obs=normal((8, 4, 3)).astype(np.float32),
            action=stream.integers(2, size=(8, 4)),
            reward=normal((8, 4)).astype(np.float32),
            intrinsic_reward=stream.random((8, 4)).astype(np.float32),
            terminated=stream.random((8, 4)) < 0.1,
            first=stream.random((8, 4)) < 0.1,
            policy=stream.integers(3, size=(8, 4)),
            weight=stream.random(4).astype(np.float32),
            state=memory,
            burn_in=2,
        )

    assert_resumes_exactly(lambda: small_agent(target_period=3), [batch() for _ in range(10)], tmp_path / "half.ckpt")


class Lock:
    """16 locks of `length` turns, one action right for each; a wrong one goes back to the start, the last right one pays 1."""

    n = 16

    def __init__(self, length: int) -> None:
        self.length = length
        self.right = np.arange(length) * 7 % 3 % 2
        self.place = np.zeros(self.n, dtype=np.int64)

    def step(self, action: np.ndarray) -> np.ndarray:
        right = action == self.right[np.minimum(self.place, self.length - 1)]
        self.place = np.where(right, self.place + 1, 0)
        return (self.place == self.length).astype(np.float32)

    def obs(self) -> np.ndarray:
        return np.eye(self.length + 1, dtype=np.float32)[self.place]


def episodes(agent: Agent, novelty: Novelty, lock: Lock, policy: np.ndarray, epsilon: float) -> dict[str, np.ndarray]:
    """Return an episode of each lock, with as many steps as it has turns."""
    n, length = lock.n, lock.length + 1
    lock.place[:] = 0
    first = np.zeros((length, n), dtype=bool)
    first[0] = True
    start = state = {name: part.numpy() for name, part in agent.alg.initial_state(n).items()}
    columns = sequence(length, n, obs=np.zeros((length, n, length), dtype=np.float32), first=first, state=start)
    columns["obs"][0] = lock.obs()
    novelty.reward(torch.from_numpy(columns["obs"][0]), first[0])
    for t in range(length - 1):
        action, columns["behaviour_log_prob"][t], state = agent.sample(
            columns["obs"][t], state, first[t], policy, epsilon=epsilon
        )
        columns["action"][t], columns["reward"][t], columns["obs"][t + 1] = action, lock.step(action), lock.obs()
        columns["intrinsic_reward"][t] = novelty.reward(torch.from_numpy(columns["obs"][t + 1]), first[t + 1])
        state = {**state, "reward": columns["reward"][t], "intrinsic_reward": columns["intrinsic_reward"][t]}
    columns["valid"][-1] = False
    columns["terminated"][-2] = True
    columns["policy"][:] = policy
    return columns


def test_a_lock_is_opened_that_chance_opens_once_in_256_times():
    # without novelty (largest_intrinsic_weight=0) it is not, in as many episodes
    torch.manual_seed(0)
    lock = Lock(8)
    sizes = {"lstm_size": 32, "head_size": 32, "n_policies": 4, "embedding_size": 8, "novelty_size": 16}
    scales = {"kernel_epsilon": 5e-2, "n_neighbours": 3, "max_similarity": 1.0, "highest_gamma": 0.97, "lowest_gamma": 0.9}
    settings = Agent57Learning(learning_rate=5e-3, target_period=20, **sizes, **scales)
    agent = Agent(Agent57(network(settings, lambda: Dense(9, 32), 2), settings))
    novelty = Novelty(agent.alg.model.novelty, lock.n, settings)
    bandit = SlidingWindowUCB(4, window=160)
    stream = np.random.default_rng(0)
    buffer: list[dict[str, np.ndarray]] = []
    best = 0.0
    while best < lock.n and len(buffer) < 150:
        for _ in range(10):
            policy = np.array([bandit.choose() for _ in range(lock.n)])
            buffer.append(episodes(agent, novelty, lock, policy, epsilon=0.1))
            for arm, returned in zip(policy, buffer[-1]["reward"].sum(axis=0), strict=True):
                bandit.update(arm, returned)
            for _ in range(2):
                agent.learn(buffer[stream.integers(len(buffer))])
        best = episodes(agent, novelty, lock, np.full(lock.n, bandit.best()), epsilon=0.0)["reward"].sum()
    assert best == lock.n
