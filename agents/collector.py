"""Steps a vector environment with a policy and writes rollouts. Knows numpy and gymnasium; nothing of torch and clusters.

A rollout is a dict of columns, (T, B, ...): T steps of B environments. Row t of environment b is one step:

    obs                 (T + 1, B, *shape)  as the environment gave it, a dict of arrays for Dict spaces; row T is where
                                            the rollout ends, to bootstrap from
    first               (T + 1, B)  bool    an episode begins with the row: recurrent state is zeroed before it
    action              (T, B, ...)         as `spaces.py` lists it: counted from 0, neither clipped nor squashed
    reward              (T, B)      float32 to learn from: raw, or clipped and scaled as the environments were told
    terminated          (T, B)      bool    the step ended the episode in a state of value zero
    truncated           (T, B)      bool    the step was the last for another reason (a time limit)
    valid               (T, B)      bool    False: no step at all, but the pseudo-step of a next-step autoreset
    behaviour_logits    (T, B, P)   float32 parameters of the distribution that the action was drawn from
    behaviour_log_prob  (T, B)      float32 of the action there
    episode_return      (T, B)      float64 raw return of the episode that ended with the step, NaN elsewhere
    episode_length      (T, B)      int32   its length in steps, 0 elsewhere
    version             ()          int64   of the weights that chose the actions
    state               (B, ...)            only of recurrent policies: the state before row 0, a tree of arrays
    discounted_return   (T, B)      float32 only where the environments give it, to normalise rewards
    final_obs           (K, *shape)         only with SAME_STEP and DISABLED autoreset: the last observations of episodes
    final_row           (K,)        int64   and the rows t * B + b they belong to

The three ways to start the next episode, each exact:

    NEXT_STEP   the step after the last ignores the action and returns the first observation. So obs[t + 1] of the
                last step t is the final observation, and row t + 1 is a pseudo-step, marked by valid = False.
    SAME_STEP   the last step returns the first observation of the next episode, the final one is in
                info["final_obs"]. So obs[t + 1] belongs to the next episode; the final observation goes to `final_obs`.
    DISABLED    the collector resets by a mask after the last step; what is stored is as with SAME_STEP.

A lost life (`envs.py`) is terminated = True, and the next row is first; but the game goes on, and so does its return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from .envs import autoreset_mode_of, spaces_of
from .spaces import empty_obs, env_actions
from .trees import Array, Tree, concatenate_trees, map_tree, row, write

Columns = dict[str, Any]


class Policy(Protocol):
    """What chooses the actions."""

    squashes: bool
    """Whether Box actions go to the environment through tanh, instead of being clipped."""
    # scales: bool     may say that Box actions in [-1, 1] are stretched to the bounds
    # rewarded(reward) may be there, to be told what (B,) the step after each call brought

    def __call__(self, obs: Tree, first: Array) -> tuple[Array, Array]:
        """Return actions (B, ...) as they stand in a rollout, and parameters (B, P) float32 of their distribution.

        Args:
            obs: observations (B, *shape).
            first: (B,) bool, an episode begins here.
        """

    def log_prob(self, params: Array, action: Array) -> Array:
        """Return log probabilities (T, B) float32 of actions (T, B, ...) for parameters (T, B, P)."""

    def state(self) -> Tree:
        """Return a copy of the recurrent state (B, ...) before the next row; () where there is none."""


class Collector:
    """Continues its episodes from one rollout to the next.

    Args:
        envs: B environments.
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
        self._to_env = env_actions(self.spaces.action, squash=policy.squashes, scale=getattr(policy, "scales", False))
        self._rewarded: Callable[[Array], None] | None = getattr(policy, "rewarded", None)
        seed: Any = None if seeds is None else list(seeds)  # gymnasium's base class is typed for a single one
        self._obs, _ = envs.reset(seed=seed)
        self._first = np.ones(envs.num_envs, dtype=bool)
        self._resetting = np.zeros(envs.num_envs, dtype=bool)
        self._returns = np.zeros(envs.num_envs, dtype=np.float64)
        self._lengths = np.zeros(envs.num_envs, dtype=np.int32)

    def collect(self, version: int = 0) -> Columns:
        """Return the next rollout, with `version` in its column of that name."""
        columns = self._allocate()
        columns["version"] = np.asarray(version, dtype=np.int64)
        state = self.policy.state()
        if state != ():
            columns["state"] = state
        params: list[Array] = []
        finals: list[tuple[int, Array, Tree]] = []
        for t in range(self.unroll_length):
            self._step(columns, t, params, finals)
        write(columns["obs"], -1, self._obs)
        columns["first"][-1] = self._first
        columns["behaviour_logits"] = np.stack(params)
        columns["behaviour_log_prob"] = self.policy.log_prob(columns["behaviour_logits"], columns["action"])
        if self.mode != AutoresetMode.NEXT_STEP:
            self._write_finals(columns, finals)
        return columns

    def _step(self, columns: Columns, t: int, params: list[Array], finals: list[tuple[int, Array, Tree]]) -> None:
        write(columns["obs"], t, self._obs)
        columns["first"][t] = self._first
        action, described = self.policy(row(columns["obs"], t), self._first)
        self._obs, reward, terminated, truncated, info = self.envs.step(self._to_env(action))
        valid = ~self._resetting
        columns["valid"][t] = valid
        columns["action"][t] = action
        columns["reward"][t] = reward * valid
        columns["terminated"][t] = terminated
        columns["truncated"][t] = truncated
        if self._rewarded:
            self._rewarded(columns["reward"][t])
        params.append(described)
        self._returns += info.get("raw_reward", reward) * valid
        self._lengths += valid
        done = terminated | truncated
        self._first = self._resetting if self.mode == AutoresetMode.NEXT_STEP else done
        if done.any():
            self._end_episodes(columns, t, done)
            if self.mode != AutoresetMode.NEXT_STEP:
                finals.append((t, done, self._final_obs(done, info)))
        if self.mode == AutoresetMode.NEXT_STEP:
            self._resetting = done
        if info:
            self._heed(columns, t, info)

    def _heed(self, columns: Columns, t: int, info: dict[str, Any]) -> None:
        """Write what only some environments say."""
        if "life_lost" in info:
            columns["terminated"][t] |= info["life_lost"]
            self._first = self._first | info["life_lost"]
        if "discounted_return" in info:
            if t == 0:
                columns["discounted_return"] = np.zeros_like(columns["reward"])
            columns["discounted_return"][t] = info["discounted_return"]

    def _end_episodes(self, columns: Columns, t: int, done: Array) -> None:
        columns["episode_return"][t, done] = self._returns[done]
        columns["episode_length"][t, done] = self._lengths[done]
        self._returns[done] = 0.0
        self._lengths[done] = 0

    def _final_obs(self, done: Array, info: dict[str, Any]) -> Tree:
        """Return the last observations (n done, *shape) and see to it that `self._obs` is the first of the next."""
        final = empty_obs(self.spaces.obs, int(done.sum()))
        if self.mode == AutoresetMode.DISABLED:
            write(final, ..., row(self._obs, done))
            self._obs, _ = self.envs.reset(options={"reset_mask": done})
            return final
        for place, index in enumerate(np.flatnonzero(done)):
            write(final, place, info["final_obs"][index])
        return final

    def _write_finals(self, columns: Columns, finals: list[tuple[int, Array, Tree]]) -> None:
        n_envs = self.envs.num_envs
        rows = [t * n_envs + np.flatnonzero(done) for t, done, _ in finals]
        columns["final_row"] = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        columns["final_obs"] = concatenate_trees([empty_obs(self.spaces.obs, 0), *(final for _, _, final in finals)], axis=0)

    def _allocate(self) -> Columns:
        shape = (self.unroll_length, self.envs.num_envs)
        action = self.spaces.action
        return {
            "obs": empty_obs(self.spaces.obs, shape[0] + 1, shape[1]),
            "first": np.empty((shape[0] + 1, shape[1]), dtype=bool),
            "action": np.empty((*shape, *action.shape), dtype=action.dtype),
            "reward": np.empty(shape, dtype=np.float32),
            "terminated": np.empty(shape, dtype=bool),
            "truncated": np.empty(shape, dtype=bool),
            "valid": np.empty(shape, dtype=bool),
            "episode_return": np.full(shape, np.nan),
            "episode_length": np.zeros(shape, dtype=np.int32),
        }


def concatenate(rollouts: Sequence[Columns]) -> Columns:
    """Return one rollout of the environments of all, in order: columns side by side along B, `version` (n rollouts,)."""
    n_envs = [rollout["reward"].shape[1] for rollout in rollouts]
    starts = np.cumsum([0, *n_envs])
    batch = {}
    for name in rollouts[0]:
        parts = [rollout[name] for rollout in rollouts]
        if name == "version":
            batch[name] = np.array(parts)
        elif name == "final_row":
            moved = (part // n * starts[-1] + part % n + start for part, n, start in zip(parts, n_envs, starts, strict=False))
            batch[name] = np.concatenate(list(moved))
        else:
            batch[name] = concatenate_trees(parts, axis=0 if name in ("state", "final_obs") else 1)
    return batch


def select_envs(batch: Columns, chosen: Any) -> Columns:
    """Return the rollout of some environments only; `chosen` (n,) are their numbers. For numpy arrays or tensors.

    `final_obs` and `final_row` are left out: take next values before choosing.
    """
    left_out = ("version", "final_obs", "final_row")
    return {
        name: map_tree(lambda leaf, name=name: leaf[chosen] if name == "state" else leaf[:, chosen], column)
        for name, column in batch.items()
        if name not in left_out
    }
