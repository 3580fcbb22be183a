"""Central inference in one process, for the tests of its algorithms. No test in here."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from parl_lite.agent import Agent
from parl_lite.agents.collector import Collector, concatenate
from parl_lite.agents.envs import make_envs, spaces_of
from parl_lite.agents.models import actor_critic
from parl_lite.agents.trees import row
from parl_lite.agents.wirings.central import PolicyServer, RemotePolicy


class LateServer(PolicyServer):
    """Gets new weights in the middle of a rollout, so that two policies act in it."""

    def __init__(self, *args: Any, unroll_length: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.n_calls, self.middle, self.unroll_length = 0, unroll_length // 2, unroll_length
        self.newest: tuple[int, Any] = (0, self.model.get_weights())

    def act(self, obs: Any, first: Any, state: Any) -> Any:
        """Return what `choose` does, for one caller."""
        if self.n_calls % self.unroll_length == self.middle:
            self.set_weights(*self.newest)
        self.n_calls += 1
        return row(self.choose(row(obs, None), first[None], row(state, None)), 0)


def train_central(make: Any, settings: Any, env: Any) -> tuple[Agent, float]:
    """Learn from rollouts in which an older and a newer policy acted; return the agent and the mean return at the end."""
    envs = make_envs(env, settings.envs_per_actor)
    make_model, spaces = partial(actor_critic, settings), spaces_of(envs)
    server = LateServer(make_model, spaces, seed=1, rank=0, unroll_length=settings.unroll_length)
    policy = RemotePolicy(server, make_model(spaces), envs.num_envs)
    collector = Collector(envs, policy, settings.unroll_length, seeds=range(envs.num_envs))
    torch.manual_seed(1)
    agent = Agent(make(make_model(spaces), settings))
    returns: list[float] = []
    while agent.alg.env_steps < settings.total_steps:
        batch = concatenate([collector.collect()])
        agent.learn(batch)
        server.newest = agent.alg.n_updates, agent.get_weights()
        returns += batch["episode_return"][~np.isnan(batch["episode_return"])].tolist()
    return agent, float(np.mean(returns[-100:]))
