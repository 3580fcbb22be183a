"""Models, rollouts and a loop for the tests of algorithms that learn from rollouts. No test in here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from parl_lite.agent import Agent
from parl_lite.agents.collector import concatenate
from parl_lite.agents.envs import make_envs
from parl_lite.agents.models import NetworkSettings, actor_critic
from parl_lite.agents.rollout_worker import RolloutWorker
from parl_lite.agents.spaces import DiscreteActions, ObsSpec, Spaces
from parl_lite.model import Model

torch.set_num_threads(1)  # as in a run: layers this small only wait for a second thread

SPACES = Spaces(ObsSpec((1,), np.dtype(np.float32)), DiscreteActions(2))


class Table(Model):
    """The same logits and the same value everywhere."""

    def __init__(self, logits: tuple[float, ...] = (0.0, 0.0)) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))
        self.level = nn.Parameter(torch.zeros(1))

    def policy(self, obs):
        return self.logits.expand(*obs.shape[:-1], len(self.logits))

    def value(self, obs):
        return self.level.expand(obs.shape[:-1])

    def get_actor_params(self):
        return [self.logits]

    def get_critic_params(self):
        return [self.level]


def rollout(steps: int, n_envs: int, **columns: Any) -> dict[str, np.ndarray]:
    """Return a rollout of two equally likely actions; lists become arrays of the right type."""
    shape = (steps, n_envs)
    columns = {name: np.array(column, np.float32 if name != "action" else None) for name, column in columns.items()}
    for name in {"terminated", "truncated", "valid"} & set(columns):
        columns[name] = columns[name].astype(bool)
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


def random_rollouts(n: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield n rollouts, the same each time."""
    stream = np.random.default_rng(0)
    for _ in range(n):
        obs = stream.standard_normal((9, 4, 1)).astype(np.float32)
        action, ends = stream.integers(2, size=(8, 4)), stream.random((8, 4)) < 0.1
        yield rollout(8, 4, obs=obs, action=action, reward=obs[:-1, :, 0], terminated=ends, truncated=~ends)


def check_resume(make: Callable[[Any], Any], tmp_path: Path, **settings: Any) -> None:
    """Assert that four updates, saved, restored in a new agent, and four more equal eight, bit by bit."""
    network = NetworkSettings(hidden_size=8, **settings)

    def new_agent(seed: int) -> Agent:
        torch.manual_seed(seed)
        return Agent(make(actor_critic(network, SPACES)))

    straight = new_agent(1)
    before, after = list(random_rollouts(8))[:4], list(random_rollouts(8))[4:]
    metrics = [straight.learn(batch) for batch in [*before, *after]]

    half = new_agent(1)
    for batch in before:
        half.learn(batch)
    half.save(tmp_path / "half.ckpt")
    torch.manual_seed(99)
    other = new_agent(2)
    other.restore(tmp_path / "half.ckpt")
    assert [other.learn(batch) for batch in after] == metrics[4:]
    assert (other.alg.env_steps, other.alg.n_updates) == (8 * 32, 8)
    for name, array in straight.get_weights().items():
        np.testing.assert_array_equal(other.get_weights()[name], array)


def train(make: Callable[[Any, Any], Any], settings: Any, env: Any) -> tuple[Agent, float]:
    """Learn in step with one worker; return the agent and the mean return of the last 100 episodes."""
    worker = RolloutWorker(
        partial(make_envs, env, settings.envs_per_actor),
        partial(actor_critic, settings),
        unroll_length=settings.unroll_length,
        seed=1,
        rank=0,
    )
    torch.manual_seed(1)
    agent = Agent(make(actor_critic(settings, worker.collector.spaces), settings))
    returns: list[float] = []
    while agent.alg.env_steps < settings.total_steps:
        worker.set_weights(agent.alg.n_updates, agent.get_weights())
        batch = concatenate([worker.sample()])
        agent.learn(batch)
        returns += batch["episode_return"][~np.isnan(batch["episode_return"])].tolist()
    return agent, float(np.mean(returns[-100:]))
