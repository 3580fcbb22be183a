"""Buffers and value algorithms fit: batches are learned from as they are drawn, priorities go back."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from value_loops import Dense

from parl_lite.agent import Agent
from parl_lite.agents import agent57, dqn, r2d2
from parl_lite.agents.agent57 import Agent57, Agent57Learning
from parl_lite.agents.dqn import DQN, DQNLearning
from parl_lite.agents.r2d2 import R2D2, R2D2Learning
from parl_lite.agents.replay import PrioritizedSampler, SequenceReplay, TransitionReplay
from parl_lite.agents.value_math import mixed_priority

STEPS, ENVS = 8, 2
SIZES = {"lstm_size": 8, "head_size": 8, "n_policies": 3, "embedding_size": 4, "novelty_size": 4}


def rollouts(n: int, state=None, seed: int = 0):
    """Yield rollouts with next-step autoreset: after a terminated or truncated step comes a row that is none."""
    stream = np.random.default_rng(seed)
    obs = stream.standard_normal((n * STEPS + 1, ENVS, 5)).astype(np.float32)
    ended = np.zeros((n * STEPS + 1, ENVS), dtype=bool)
    ended[5::7] = True
    terminated = ended & (stream.random(ended.shape) < 0.5)
    valid = ~np.concatenate([np.zeros((1, ENVS), dtype=bool), ended[:-1]])
    first = np.concatenate([np.ones((1, ENVS), dtype=bool), ~valid[:-1]])
    for start in range(0, n * STEPS, STEPS):
        rows = slice(start, start + STEPS)
        shape = (STEPS, ENVS)
        rollout = {
            "obs": obs[start : start + STEPS + 1],
            "action": stream.integers(2, size=shape),
            "reward": stream.standard_normal(shape).astype(np.float32),
            "terminated": terminated[rows],
            "truncated": (ended & ~terminated)[rows],
            "valid": valid[rows],
            "first": first[start : start + STEPS + 1],
            "policy": stream.integers(3, size=shape),
            "intrinsic_reward": stream.random(shape).astype(np.float32),
            "behaviour_log_prob": np.log(stream.uniform(0.1, 1, shape)).astype(np.float32),
        }
        yield rollout if state is None else {**rollout, "state": state}


def test_transitions_are_learned_from_and_get_their_priorities_back():
    settings = DQNLearning(n_step=3)
    agent = Agent(DQN(dqn.network(settings, Dense(5, 8), 2), settings))
    buffer = TransitionReplay(200, sampler=PrioritizedSampler(), n_step=settings.n_step, gamma=settings.gamma)
    for rollout in rollouts(4):
        buffer.add(rollout)
    batch = buffer.sample(16)
    priority = agent.learn(batch)["priority"]
    assert buffer.update_priorities(batch["index"], priority) == 16
    assert priority.shape == (16,) and (priority > 0).all()


RECURRENT = {
    "R2D2": (R2D2, R2D2Learning, lambda settings: r2d2.network(settings, Dense(5, 8), 2)),
    "Agent57": (Agent57, Agent57Learning, lambda settings: agent57.network(settings, partial(Dense, 5, 8), 2)),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_sequences_are_learned_from_and_get_their_priorities_back(name):
    torch.manual_seed(0)
    algorithm, learning, network = RECURRENT[name]
    known = learning.__dataclass_fields__
    settings = learning(**{field: size for field, size in SIZES.items() if field in known})
    agent = Agent(algorithm(network(settings), settings))
    state = {part: values.numpy() for part, values in agent.alg.initial_state(ENVS).items()}
    extra = ("policy", "intrinsic_reward", "behaviour_log_prob")
    buffer = SequenceReplay(400, length=16, burn_in=8, period=8, sampler=PrioritizedSampler(0.9, 0.6), extra=extra)
    for rollout in rollouts(6, state):
        buffer.add(rollout)
    batch = buffer.sample(6)
    measures = agent.learn(batch)
    assert np.isfinite(measures["loss"]) and (measures["priority"] > 0).all()
    assert buffer.update_priorities(batch["index"], measures["priority"]) == 6


def test_errors_of_rows_are_what_priorities_are_made_of():
    torch.manual_seed(0)
    settings = R2D2Learning(lstm_size=8, head_size=8)
    agent = Agent(R2D2(r2d2.network(settings, Dense(5, 8), 2), settings))
    buffer = SequenceReplay(400, length=16, burn_in=8, period=8)
    state = {part: values.numpy() for part, values in agent.alg.initial_state(ENVS).items()}
    for rollout in rollouts(6, state):
        buffer.add(rollout)
    batch = {name: torch.as_tensor(part) for name, part in buffer.sample(4).items() if name not in ("state", "index")}
    batch["state"] = agent.alg.initial_state(4)
    error = agent.alg.errors(batch)
    assert error.shape == (8, 4)
    torch.testing.assert_close(agent.alg.priority(batch), mixed_priority(error, error != 0, settings.priority_mix))
