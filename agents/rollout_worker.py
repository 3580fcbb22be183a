"""The actor: environments, a copy of the policy, and rollouts on request. Knows nothing of algorithms and clusters.

It is a plain class. `training.py` makes a remote class of it; tests call it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from parl_lite.errors import ParlError
from parl_lite.model import Model

from .collector import Collector, Columns, Policy
from .distributions import distribution_of
from .envs import spaces_of
from .seeds import env_seeds, seed_globally, sequence_of, torch_generator
from .spaces import Spaces
from .trees import Array, Tree, map_tree
from .unrolling import initial_state, policy_step


class SamplingPolicy(Policy):
    """Draws actions from a model's distribution, and carries its recurrent state from step to step.

    Args:
        model: has `policy(obs)`, or is recurrent and has `unroll` and `initial_state` (`unrolling.py`).
        generator: the random stream of the actions.
        n_envs: B.
    """

    def __init__(self, model: Any, generator: torch.Generator, n_envs: int) -> None:
        self.model = model
        self.generator = generator
        self.distribution = distribution_of(model)
        self.squashes = getattr(self.distribution, "squashes", False)
        self._state = initial_state(model, n_envs)

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B, ...) and parameters (B, P) float32 for observations (B, *shape)."""
        with torch.inference_mode():
            inputs = map_tree(torch.from_numpy, obs)
            params, self._state = policy_step(self.model, inputs, torch.from_numpy(first), self._state)
            return self.distribution(params).sample(self.generator).numpy(), params.numpy()

    def log_prob(self, params: Array, action: Array) -> Array:
        """Return log probabilities (T, B) float32 of actions (T, B, ...)."""
        with torch.inference_mode():
            return self.distribution(torch.from_numpy(params)).log_prob(torch.from_numpy(action)).numpy()

    def state(self) -> Tree:
        """Return a copy of the recurrent state (B, ...); () where there is none."""
        return map_tree(lambda leaf: leaf.numpy().copy(), self._state)


class RolloutWorker:
    """Collects rollouts with the weights it was given last.

    It seeds the global random streams of its process, which environments and wrappers may use, from `seed` and `rank`.

    Args:
        make_envs: makes B environments; like `make_model` it must be picklable to get to another machine.
        make_model: makes a model with a method `policy` for these spaces.
        unroll_length: T, steps of one rollout.
        seed: of the whole run.
        rank: number of this worker, unique in the run; each has streams of its own.
    """

    def __init__(
        self,
        make_envs: Callable[[], VectorEnv],
        make_model: Callable[[Spaces], Model],
        *,
        unroll_length: int,
        seed: int,
        rank: int,
    ) -> None:
        global_stream, env_stream, action_stream = sequence_of(seed, rank).spawn(3)
        seed_globally(global_stream)
        self.envs = make_envs()
        self.model = make_model(spaces_of(self.envs))
        self.version: int | None = None
        n_envs = self.envs.num_envs
        policy = SamplingPolicy(self.model, torch_generator(action_stream), n_envs)
        self.collector = Collector(self.envs, policy, unroll_length, env_seeds(env_stream, n_envs))

    def set_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """Act with these weights from now on, unless newer ones came before."""
        if self.version is None or version > self.version:
            self.model.set_weights(weights)
            self.version = version

    def sample(self) -> Columns:
        """Return the next rollout; `collector.py` lists its columns."""
        if self.version is None:
            raise ParlError("this worker has no weights yet: call set_weights(version, weights) before sample()")
        return self.collector.collect(self.version)
