"""Steps a vector environment with a policy and writes rollouts. Knows numpy and gymnasium; nothing of torch and clusters.

A rollout is a dict of columns, (T, B, ...): T steps of B environments. Row t of environment b is one step:

    obs               (T + 1, B, *obs_shape)   as the environment gave it; row T is where the rollout ends, to
    bootstrap from action            (T, B)          int64    counted from 0, also where the action space is not
    reward            (T, B)          float32  raw
    terminated        (T, B)          bool     the step ended the episode in a state of value zero
    truncated         (T, B)          bool     the step was the last for another reason (a time limit)
    valid             (T, B)          bool     False: no step at all, but the pseudo-step of a next-step autoreset
    behaviour_logits  (T, B, A)       float32  of the policy that chose the action
    episode_return    (T, B)          float64  raw return of the episode that ended with the step, NaN elsewhere
    episode_length    (T, B)          int32    its length in steps, 0 elsewhere
    version           ()              int64    of the weights that chose the actions
    final_obs         (K, *obs_shape)          only with SAME_STEP and DISABLED autoreset: the last observations of
    episodes final_row         (K,)            int64    and the rows t * B + b they belong to

The three ways to start the next episode, each exact:

    NEXT_STEP   the step after the last ignores the action and returns the first observation. So obs[t + 1] of the
                last step t is the final observation, and row t + 1 is a pseudo-step, marked by valid = False.
    SAME_STEP   the last step returns the first observation of the next episode, the final one is in
                info["final_obs"]. So obs[t + 1] belongs to the next episode; the final observation goes to `final_obs`.
    DISABLED    the collector resets by a mask after the last step; what is stored is as with SAME_STEP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from .envs import autoreset_mode_of, spaces_of

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
Policy = Callable[[Array], tuple[Array, Array]]
"""Takes observations (B, *obs_shape), returns actions (B,) int64 from 0 on and logits (B, A) float32."""


class Collector:
    """Continues its episodes from one rollout to the next.

    Args:
        envs: B environments with discrete actions.
        policy: chooses the actions.
        unroll_length: T.
        seeds: one seed an environment; without, they are drawn by the system.
    """

    def __init__(self, envs: VectorEnv, policy: Policy, unroll_length: int, seeds: Sequence[int] | None = None) -> None:
        self.envs = envs
        self.policy = policy
        self.unroll_length = unroll_length
        self.spaces = spaces_of(envs)
        self.mode = autoreset_mode_of(envs)
        seed: Any = None if seeds is None else list(seeds)  # gymnasium's base class is typed for a single one
        self._obs, _ = envs.reset(seed=seed)
        self._resetting = np.zeros(envs.num_envs, dtype=bool)
        self._returns = np.zeros(envs.num_envs, dtype=np.float64)
        self._lengths = np.zeros(envs.num_envs, dtype=np.int32)

    def collect(self, version: int = 0) -> Columns:
        """Return the next rollout, with `version` in its column of that name."""
        columns = self._allocate()
        columns["version"] = np.asarray(version, dtype=np.int64)
        finals: list[tuple[int, Array, Array]] = []
        for t in range(self.unroll_length):
            self._step(columns, t, finals)
        columns["obs"][-1] = self._obs
        if self.mode != AutoresetMode.NEXT_STEP:
            self._write_finals(columns, finals)
        return columns

    def _step(self, columns: Columns, t: int, finals: list[tuple[int, Array, Array]]) -> None:
        columns["obs"][t] = self._obs
        action, columns["behaviour_logits"][t] = self.policy(columns["obs"][t])
        self._obs, reward, terminated, truncated, info = self.envs.step(action + self.spaces.first_action)
        np.logical_not(self._resetting, out=columns["valid"][t])
        columns["action"][t] = action
        columns["reward"][t] = reward * columns["valid"][t]
        columns["terminated"][t] = terminated
        columns["truncated"][t] = truncated
        self._returns += reward * columns["valid"][t]
        self._lengths += columns["valid"][t]
        done = terminated | truncated
        if done.any():
            self._end_episodes(columns, t, done)
            if self.mode != AutoresetMode.NEXT_STEP:
                finals.append((t, done, self._final_obs(done, info)))
        if self.mode == AutoresetMode.NEXT_STEP:
            self._resetting = done

    def _end_episodes(self, columns: Columns, t: int, done: Array) -> None:
        columns["episode_return"][t, done] = self._returns[done]
        columns["episode_length"][t, done] = self._lengths[done]
        self._returns[done] = 0.0
        self._lengths[done] = 0

    def _final_obs(self, done: Array, info: dict[str, Any]) -> Array:
        """Return the last observations (n done, *obs_shape) and see to it that `self._obs` is the first of the next."""
        if self.mode == AutoresetMode.DISABLED:
            final = np.array(self._obs[done])
            self._obs, _ = self.envs.reset(options={"reset_mask": done})
            return final
        return np.stack([info["final_obs"][index] for index in np.flatnonzero(done)])

    def _write_finals(self, columns: Columns, finals: list[tuple[int, Array, Array]]) -> None:
        n_envs, spaces = self.envs.num_envs, self.spaces
        rows = [t * n_envs + np.flatnonzero(done) for t, done, _ in finals]
        columns["final_row"] = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        empty = np.zeros((0, *spaces.obs_shape), dtype=spaces.obs_dtype)
        columns["final_obs"] = np.concatenate([empty, *(final for _, _, final in finals)])

    def _allocate(self) -> Columns:
        shape = (self.unroll_length, self.envs.num_envs)
        spaces = self.spaces
        return {
            "obs": np.empty((shape[0] + 1, shape[1], *spaces.obs_shape), dtype=spaces.obs_dtype),
            "action": np.empty(shape, dtype=np.int64),
            "reward": np.empty(shape, dtype=np.float32),
            "terminated": np.empty(shape, dtype=bool),
            "truncated": np.empty(shape, dtype=bool),
            "valid": np.empty(shape, dtype=bool),
            "behaviour_logits": np.empty((*shape, spaces.n_actions), dtype=np.float32),
            "episode_return": np.full(shape, np.nan),
            "episode_length": np.zeros(shape, dtype=np.int32),
        }


def concatenate(rollouts: Sequence[Columns]) -> Columns:
    """Return one rollout of the environments of all, in order: columns side by side along B, `version` (n
    rollouts,)."""
    n_envs = [rollout["action"].shape[1] for rollout in rollouts]
    starts = np.cumsum([0, *n_envs])
    batch = {name: np.concatenate([rollout[name] for rollout in rollouts], axis=1) for name in _STEP_COLUMNS}
    batch["version"] = np.array([rollout["version"] for rollout in rollouts])
    if "final_row" in rollouts[0]:
        batch["final_obs"] = np.concatenate([rollout["final_obs"] for rollout in rollouts])
        rows = [
            rollout["final_row"] // n * starts[-1] + rollout["final_row"] % n + start
            for rollout, n, start in zip(rollouts, n_envs, starts, strict=False)
        ]
        batch["final_row"] = np.concatenate(rows)
    return batch


_STEP_COLUMNS = (
    "obs",
    "action",
    "reward",
    "terminated",
    "truncated",
    "valid",
    "behaviour_logits",
    "episode_return",
    "episode_length",
)
