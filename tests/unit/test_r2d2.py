"""R2D2: targets and priorities by hand, burn-in, saved and restored bit by bit, a cue remembered."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from value_loops import Dense, Plain, assert_resumes_exactly

from parl_lite.agent import Agent
from parl_lite.agents.player import row_priorities
from parl_lite.agents.q_networks import RecurrentQNetwork
from parl_lite.agents.r2d2 import R2D2, R2D2Learning, context_of, network
from parl_lite.agents.replay import PrioritizedSampler, SequenceReplay
from parl_lite.model import Model


class Table(Model):
    """Q values by observation, 2 actions; the state counts rows since the start of an episode."""

    n_actions = 2

    def __init__(self, numbers) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor(numbers, dtype=torch.float32))
        self.seen: list[tuple[int, bool]] = []

    def initial_state(self, n):
        return {"count": torch.zeros(n)}

    def unroll(self, obs, context, first, state):
        self.seen.append((len(obs), torch.is_grad_enabled()))
        count = state["count"]
        for row in first:
            count = torch.where(row, 1.0, count + 1)
        return self.numbers[obs], {"count": count}


def sequence(length: int, n: int = 1, **columns) -> dict[str, np.ndarray]:
    shape = (length, n)
    return {
        "obs": np.zeros(shape, dtype=np.int64),
        "action": np.zeros(shape, dtype=np.int64),
        "reward": np.zeros(shape, dtype=np.float32),
        "terminated": np.zeros(shape, dtype=bool),
        "first": np.zeros(shape, dtype=bool),
        "valid": np.ones(shape, dtype=bool),
        "state": {"count": np.zeros(n, np.float32), "action": np.full(n, -1), "reward": np.zeros(n, np.float32)},
        "burn_in": 0,
        **columns,
    }


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def test_a_loss_by_hand():
    # learned rows 1, 2, 3; gamma 1/2, n = 2; Q(0, .) = 0, Q(1, .) = (0, h(8)): greedy values 0 and 8
    # row 1: h(1 + 2/2 + 8/4) = h(4); row 2 ends early, at the last row: h(2 + 8/2) = h(6); row 3 has no target
    table = [[0.0, 0.0], [0.0, h(8.0)]]
    batch = sequence(
        4,
        obs=np.array([[0], [0], [0], [1]]),
        reward=np.array([[9], [1], [2], [4]], dtype=np.float32),
        burn_in=1,
        weight=np.ones(1, dtype=np.float32),
    )
    agent = Agent(R2D2(Table(table), R2D2Learning(gamma=0.5, n_step=2)))
    measures = agent.learn(batch)
    assert measures["loss"] == pytest.approx((h(4) ** 2 + h(6) ** 2) / 2, rel=1e-5)
    assert measures["priority"].tolist() == pytest.approx([0.9 * h(6) + 0.1 * (h(4) + h(6)) / 2], rel=1e-5)


def test_an_end_inside_a_sequence_cuts_the_targets():
    # row 1 terminates: its target is its reward; row 2 begins an episode that is cut off in row 3, whose last observation
    # is row 4: h(16 + 8/2); row 5 begins the next and is the last
    table = [[0.0, 0.0], [0.0, h(8.0)]]
    column = np.array([[1, 4, 0, 16, 0, 0]], dtype=np.float32).T
    batch = sequence(
        6,
        obs=np.array([[0, 0, 0, 0, 1, 0]]).T,
        reward=column,
        terminated=np.array([[0, 1, 0, 0, 0, 0]], dtype=bool).T,
        first=np.array([[1, 0, 1, 0, 0, 1]], dtype=bool).T,
        valid=np.array([[1, 1, 1, 1, 0, 1]], dtype=bool).T,
    )
    agent = Agent(R2D2(Table(table), R2D2Learning(gamma=0.5, n_step=3)))
    targets = [h(1 + 4 / 2), h(4), h(16 / 2 + 8 / 4), h(16 + 8 / 2)]
    assert agent.learn(batch)["loss"] == pytest.approx(sum(target**2 for target in targets) / 2, rel=1e-5)


def test_an_actor_finds_the_priorities_of_its_rows_and_a_new_sequence_has_their_mixture():
    # gamma 1/2, n = 2; Q(0, .) = 0, Q(1, .) = (0, h(8)). The first environment goes on after the rollout, in observation 1:
    # -9 + 2/2 + 0, 2 + 4/2 + 8/4, and cut short 4 + 8/2; that of the second terminates in row 1, and row 2 is no step
    rollout = {
        "obs": np.array([[0, 0], [0, 0], [0, 0], [1, 0]]),
        "action": np.zeros((3, 2), dtype=np.int64),
        "reward": np.array([[-9, 1], [2, 4], [4, 0]], dtype=np.float32),
        "terminated": np.array([[0, 0], [0, 1], [0, 0]], dtype=bool),
        "truncated": np.zeros((3, 2), dtype=bool),
        "valid": np.array([[1, 1], [1, 1], [1, 0]], dtype=bool),
        "first": np.array([[0, 1], [0, 0], [0, 0], [0, 1]], dtype=bool),
        "state": sequence(1, 2)["state"],
    }
    algorithm = R2D2(Table([[0.0, 0.0], [0.0, h(8.0)]]), R2D2Learning(gamma=0.5, n_step=2))
    found = row_priorities(algorithm, rollout)
    np.testing.assert_allclose(found, [[h(8), h(1 + 4 / 2)], [h(6), h(4)], [h(8), 0]], rtol=1e-5)
    buffer = SequenceReplay(20, length=3, eta=0.9, sampler=PrioritizedSampler(alpha=1.0, epsilon=0.0))
    assert buffer.add({**rollout, "priority": found}) == 2
    mixed = [0.9 * h(8) + 0.1 * (2 * h(8) + h(6)) / 3, 0.9 * h(4) + 0.1 * (h(3) + h(4)) / 2]
    assert buffer.sampler.total == pytest.approx(sum(mixed), rel=1e-5)
    assert sorted(set(buffer.sampler.tree.leaves) - {0.0}) == pytest.approx(sorted(mixed), rel=1e-5)


def test_the_learning_network_chooses_and_the_target_network_says_what_it_is_worth():
    agent = Agent(R2D2(Table([[0.0, 0.0], [1.0, 0.0]]), R2D2Learning(gamma=1.0, n_step=1)))
    with torch.no_grad():
        agent.alg.target.numbers.copy_(torch.tensor([[0.0, 0.0], [h(3.0), h(8.0)]]))
    assert agent.learn(sequence(2, obs=np.array([[0], [1]])))["loss"] == pytest.approx(h(3.0) ** 2 / 2, rel=1e-5)


def test_the_burn_in_runs_without_gradient_from_the_stored_state():
    model = Table([[0.0, 0.0]])
    agent = Agent(R2D2(model, R2D2Learning()))
    agent.learn(sequence(7, burn_in=3))
    assert model.seen == [(3, False), (4, True)]
    assert agent.alg.target.seen == [(3, False), (4, False)]


def test_the_context_is_the_step_before():
    action, reward = torch.tensor([[-1, 1], [0, 1]]), torch.tensor([[0.0, 0.5], [2.0, 3.0]])
    first = torch.tensor([[False, False], [False, True]])
    context = context_of(action, reward, first, 2)
    expected = [[[0, 0, 0], [0, 1, math.tanh(0.5)]], [[1, 0, math.tanh(2.0)], [0, 0, 0]]]
    torch.testing.assert_close(context, torch.tensor(expected))


def test_the_learner_sees_what_the_actor_saw():
    # one row at a time with the rewards told between, against the whole sequence from the same state
    torch.manual_seed(0)
    settings = R2D2Learning(lstm_size=8, head_size=8)
    algorithm = R2D2(network(settings, Dense(3, 8), 2), settings)
    obs, reward = torch.randn(5, 2, 3), torch.randn(5, 2)
    first = torch.zeros(5, 2, dtype=torch.bool)
    first[0] = first[3, 1] = True
    start = state = algorithm.initial_state(2)
    actions, states = [], []
    with torch.no_grad():
        for t in range(5):
            states.append(state)
            action, state = algorithm.sample(obs[t], state, first[t], 0.5)
            state["reward"] = reward[t]
            actions.append(action)
        for cut in (0, 2):
            batch = {"obs": obs[cut:], "action": torch.stack(actions)[cut:], "reward": reward[cut:], "first": first[cut:]}
            unrolled = algorithm._unroll({**batch, "state": states[cut]}, 0)
            best = torch.stack([algorithm.predict(obs[t], states[t], first[t])[0] for t in range(cut, 5)])
            assert torch.equal(unrolled.q.argmax(dim=-1), best)
    assert start["action"].tolist() == [-1, -1]


def test_the_default_network_is_the_papers():
    model = network(R2D2Learning(), Plain(3), 4)
    assert isinstance(model, RecurrentQNetwork)
    assert (model.core.n_features, model.head.value is not None, model.head.advantage[0].out_features) == (512, True, 512)


def recurrent_agent(**fields) -> Agent:
    settings = R2D2Learning(**{"lstm_size": 16, "head_size": 16, **fields})
    return Agent(R2D2(network(settings, Dense(3, 16), 2), settings))


def test_half_the_updates_saved_and_restored_and_the_other_half_equal_all(tmp_path):
    stream = np.random.default_rng(0)

    def batch():
        normal = stream.standard_normal
        memory = {"hidden": normal((4, 16)).astype(np.float32), "cell": normal((4, 16)).astype(np.float32)}
        return sequence(
            8,
            4,
            obs=normal((8, 4, 3)).astype(np.float32),
            action=stream.integers(2, size=(8, 4)),
            reward=normal((8, 4)).astype(np.float32),
            terminated=stream.random((8, 4)) < 0.1,
            first=stream.random((8, 4)) < 0.1,
            weight=stream.random(4).astype(np.float32),
            state={**memory, "action": stream.integers(2, size=4), "reward": normal(4).astype(np.float32)},
            burn_in=2,
        )

    make = lambda: recurrent_agent(target_period=3, noisy=True)  # noqa: E731
    assert_resumes_exactly(make, [batch() for _ in range(10)], tmp_path / "half.ckpt")


def cue_episode(agent: Agent, stream: np.random.Generator) -> dict[str, np.ndarray]:
    """Return 16 episodes of 4 steps: the cue shows in the first only, the last pays 1 for the action that it names."""
    n, length = 16, 5
    cue = stream.integers(2, size=n)
    obs = np.zeros((length, n, 3), dtype=np.float32)
    obs[0, np.arange(n), cue] = 1
    obs[3, :, 2] = 1
    first = np.zeros((length, n), dtype=bool)
    first[0] = True
    state = start = {name: part.numpy() for name, part in agent.alg.initial_state(n).items()}
    actions = np.zeros((length, n), dtype=np.int64)
    for t in range(4):
        actions[t], state = agent.sample(obs[t], state, first[t])
    reward = np.zeros((length, n), dtype=np.float32)
    reward[3] = actions[3] == cue
    ends = np.zeros((length, n), dtype=bool)
    ends[3] = True
    valid = np.ones((length, n), dtype=bool)
    valid[4] = False
    return sequence(length, n, obs=obs, action=actions, reward=reward, terminated=ends, first=first, valid=valid, state=start)


def test_a_cue_is_remembered_until_it_pays():
    torch.manual_seed(0)
    stream = np.random.default_rng(0)
    agent = recurrent_agent(learning_rate=1e-2, adam_epsilon=1e-5, target_period=10, gamma=0.9)
    agent.alg.epsilon = 0.5
    for _ in range(200):
        agent.learn(cue_episode(agent, stream))
    agent.alg.epsilon = 0.0
    assert cue_episode(agent, stream)["reward"].sum() == 16
