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

from .collector import Array, Collector, Columns
from .distributions import sample_categorical
from .envs import Spaces, spaces_of
from .seeds import env_seeds, seed_globally, sequence_of, torch_generator


class SamplingPolicy:
    """Draws discrete actions from `model.policy(obs)`, logits (B, A)."""

    def __init__(self, model: Any, generator: torch.Generator) -> None:
        self.model = model
        self.generator = generator

    def __call__(self, obs: Array) -> tuple[Array, Array]:
        """Return actions (B,) int64 and logits (B, A) float32 for observations (B, *obs_shape)."""
        with torch.inference_mode():
            logits = self.model.policy(torch.from_numpy(obs))
            return sample_categorical(logits, self.generator).numpy(), logits.numpy()


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
        policy = SamplingPolicy(self.model, torch_generator(action_stream))
        self.collector = Collector(self.envs, policy, unroll_length, env_seeds(env_stream, self.envs.num_envs))

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
