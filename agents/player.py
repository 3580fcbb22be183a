"""Environments and an algorithm that acts in them, for replay: rollouts, with the priorities of their steps. Knows no actors."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from parl_lite.agent import to_numpy, to_tensors

from .collector import Collector, Columns
from .replay.n_step import n_step_windows
from .seeds import env_seeds
from .trees import Array, Tree, map_tree, row

UNUSED = ("behaviour_logits", "version")
"""Columns that no buffer keeps."""


class Player:
    """Plays on from one rollout to the next.

    Args:
        envs: B environments with next-step autoreset.
        algorithm: what acts, and where priorities are wanted has `priority(batch)` of transitions, or `errors(batch)` of the rows
            of sequences.
        make_policy: `Entry.make_policy`.
        place: number of the player, from 0 to n_places - 1.
        n_places: players of the run.
        seeds: stream of the environments' seeds.
    """

    def __init__(
        self, envs: VectorEnv, algorithm: Any, make_policy: Any, *, place: int, n_places: int, seeds: np.random.SeedSequence
    ) -> None:
        self.settings, n_envs = algorithm.settings, envs.num_envs
        self.envs, self.algorithm = envs, algorithm
        self.policy = make_policy(algorithm, n_envs)
        self.collector = Collector(envs, self.policy, self.settings.unroll_length, env_seeds(seeds, n_envs))
        self._index, self._n = np.arange(place * n_envs, (place + 1) * n_envs), n_places * n_envs

    def play(self, version: int, env_steps: int) -> Columns:
        """Return the next rollout of weights `version`, when the run has made `env_steps`."""
        self.policy.explore(env_steps, self._index, self._n)
        columns = self.collector.collect(version)
        self.policy.finish(columns)
        if self.settings.actor_priorities:
            of_steps = row_priorities if hasattr(self.settings, "sequence_length") else step_priorities
            columns["priority"] = of_steps(self.algorithm, columns)
        return columns


def without_unused(columns: Columns) -> Columns:
    """Return what goes to a buffer."""
    return {name: column for name, column in columns.items() if name not in UNUSED}


def step_priorities(algorithm: Any, columns: Columns) -> Array:
    """Return the priorities (T, B) of the steps of a rollout with next-step autoreset, 0 where a row is none.

    A window that the rollout cuts short bootstraps from the last observation, as it does in the buffer until more is known.
    """
    settings, (n_steps, n_envs) = algorithm.settings, columns["reward"].shape
    ends = (columns["terminated"], columns["truncated"], columns["valid"])
    windows = n_step_windows(columns["reward"], *ends, settings.gamma, settings.n_step)
    env = np.broadcast_to(np.arange(n_envs), (n_steps, n_envs))
    batch = {
        "obs": _flat(row(columns["obs"], slice(None, -1))),
        "action": _flat(columns["action"]),
        "reward": _flat(windows.reward),
        "discount": _flat(windows.discount),
        "next_obs": _flat(row(columns["obs"], (windows.last + 1, env))),
    }
    device = next(algorithm.model.parameters()).device
    priority: Array = to_numpy(algorithm.priority(to_tensors(batch, device)))
    return np.where(columns["valid"], priority.reshape(n_steps, n_envs), 0.0).astype(np.float32)


def row_priorities(algorithm: Any, columns: Columns) -> Array:
    """Return the absolute TD errors (T, B) of the rows of a rollout with next-step autoreset, 0 where a row is no step.

    The rollout is taken for a sequence that starts from the memory the actor had, so no burn-in is needed. A target that it cuts
    short has fewer steps, as at the end of a sequence. The buffer mixes the errors of the rows of each sequence.
    """
    names = ("action", "reward", "terminated", "valid", *getattr(algorithm, "extra_columns", ()))
    batch = {name: np.concatenate([columns[name], columns[name][-1:]]) for name in names}
    batch["valid"][-1] = False  # row T is no step yet; whose policy it is read with is known from the row before
    batch |= {name: columns[name] for name in ("obs", "first", "state")}
    device = next(algorithm.model.parameters()).device
    errors: Array = to_numpy(algorithm.errors({**to_tensors(batch, device), "burn_in": 0}))
    return np.where(columns["valid"], np.abs(errors[:-1]), 0.0).astype(np.float32)


def _flat(tree: Tree) -> Tree:
    """Return (T, B, ...) as (T * B, ...)."""
    return map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)
