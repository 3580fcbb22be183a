"""Evaluation: how a policy plays a fixed number of episodes in each of some environments. Knows policies and collectors.

As many episodes count from each environment, the first ones: were it the first n of all, short episodes would count more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from .collector import Collector
from .envs import spaces_of
from .rollout_worker import SamplingPolicy
from .seeds import env_seeds, sequence_of, torch_generator
from .spaces import Spaces
from .trees import Array, Tree, map_tree
from .unrolling import policy_step

EVALUATION_RANK = 2**31
"""Rank of the random streams of evaluations, above those of all actors."""
ROWS = 64
"""Steps between two looks at which episodes have ended."""
MAX_ROWS = 200_000
"""Steps of each environment after which an evaluation ends with what it has: some episodes never end."""


class Evaluation(NamedTuple):
    """Raw returns and lengths of episodes, those of one environment after those of another."""

    returns: Array
    lengths: Array

    def figures(self) -> dict[str, float | None]:
        """Return means and spread by name, None without any episode."""
        some = len(self.returns) > 0
        return {
            "eval_return_mean": float(self.returns.mean()) if some else None,
            "eval_return_std": float(self.returns.std()) if some else None,
            "eval_episodes": len(self.returns),
        }


class GreedyPolicy(SamplingPolicy):
    """Chooses the likeliest actions."""

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B, ...) and parameters (B, P) float32 for observations (B, *shape)."""
        with torch.inference_mode():
            inputs = map_tree(torch.from_numpy, obs)
            params, self._state = policy_step(self.model, inputs, torch.from_numpy(first), self._state)
            return self.distribution(params).mode().numpy(), params.numpy()


class Evaluator:
    """Plays with weights that it is given, in this process or as an actor.

    Args:
        make_envs: makes the environments, with raw rewards and whole games.
        make_model: makes the model for their spaces.
        make_policy: makes a policy of (model, generator, number of environments).
        seed: of the run; each evaluation of the run plays the same games.
    """

    def __init__(
        self,
        make_envs: Callable[[], VectorEnv],
        make_model: Callable[[Spaces], Any],
        make_policy: Callable[[Any, torch.Generator, int], Any] = GreedyPolicy,
        *,
        seed: int,
    ) -> None:
        self.envs = make_envs()
        self.model = make_model(spaces_of(self.envs))
        self.model.eval()
        self.make_policy = make_policy
        self.seed = seed

    def evaluate(self, weights: Mapping[str, Any], n_episodes: int) -> Evaluation:
        """Return how the model plays with these weights, `n_episodes` divided among the environments and rounded up."""
        self.model.set_weights(weights)
        env_stream, action_stream = sequence_of(self.seed, EVALUATION_RANK).spawn(2)
        n_envs = self.envs.num_envs
        policy = self.make_policy(self.model, torch_generator(action_stream), n_envs)
        return play(Collector(self.envs, policy, ROWS, env_seeds(env_stream, n_envs)), -(-n_episodes // n_envs))

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def play(collector: Collector, quota: int) -> Evaluation:
    """Return the first `quota` episodes of each environment."""
    n_envs = collector.envs.num_envs
    ended: list[list[tuple[float, int]]] = [[] for _ in range(n_envs)]
    for _ in range(MAX_ROWS // ROWS):
        if all(len(episodes) >= quota for episodes in ended):
            break
        columns = collector.collect()
        for env, t in np.argwhere(~np.isnan(columns["episode_return"].T)):
            ended[env].append((columns["episode_return"][t, env], columns["episode_length"][t, env]))
    counted = [episode for episodes in ended for episode in episodes[:quota]]
    returns, lengths = zip(*counted, strict=True) if counted else ((), ())
    return Evaluation(np.array(returns), np.array(lengths))
