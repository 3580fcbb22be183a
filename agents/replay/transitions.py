"""The buffer of transitions, for DQN, DDPG, SAC and their kin. Knows rows and windows.

Every step is an item as soon as it is added. Its n-step window grows with the rollouts that follow: until then it ends
at the last observation there is, exact for the steps it has (see n_step.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parl_lite.errors import ParlError

from .buffer import Batch, ReplayBuffer, Sampler, nested
from .n_step import n_step_windows
from .steps import Added, StepStore
from .uniform import Array, UniformSampler


class TransitionReplay(ReplayBuffer):
    """Transitions of n steps.

    A batch is a dict of arrays (N, ...):
        obs, next_obs   the observations before and after the window; nested dicts where they were
        action          of the first step
        reward          float32, the discounted sum over the window
        discount        float32, gamma^k, or 0 where the window terminated; a truncation bootstraps
        index           int64, for `update_priorities`
        weight          float32, importance weights, where prioritized
        further columns asked for by `extra`, of the first step

    Args:
        capacity: rows: a step takes one, the final observation of an episode another.
        sampler: UniformSampler() or PrioritizedSampler(...); uniform without.
        n_step: steps of a window.
        gamma: discount of one step.
        frame_stack: keep each frame of stacked observations (frame_stack, ...) once; see frames.py.
        extra: names of further columns (T, B, ...) of rollouts to keep.
        min_size: transitions there must be before the first is drawn.
        seed: of the draws.
        n_threads: that copy the observations of a batch; a second one helps with images, where a processor is free.
    """

    def __init__(
        self,
        capacity: int,
        *,
        sampler: Sampler | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        frame_stack: int = 0,
        extra: Sequence[str] = (),
        min_size: int = 1,
        seed: int | np.random.SeedSequence = 0,
        n_threads: int = 1,
    ) -> None:
        if n_step < 1 or not 0 <= gamma <= 1:
            raise ParlError(f"n_step is {n_step} and gamma {gamma}: at least 1 step, and a gamma between 0 and 1")
        store = StepStore(capacity, frame_stack=frame_stack, extra=extra, n_history=n_step - 1, n_threads=n_threads)
        super().__init__(store, sampler or UniformSampler(), min_size=min_size, seed=seed)
        self.n_step, self.gamma = n_step, gamma
        self._frame_stack, self._extra = frame_stack, tuple(extra)
        self._reward = np.zeros(capacity, dtype=np.float32)
        self._discount = np.zeros(capacity, dtype=np.float32)
        self._next = np.zeros(capacity, dtype=np.int64)  # position of the observation to bootstrap from

    def _insert(self, rollout: Mapping[str, Any], added: Added, source: int, priority: Array | None) -> int:
        columns = self.store.columns
        rows = np.concatenate([added.history, added.rows[:-1]])  # (P + T, B)
        reward, terminated, truncated, step = (columns[name][rows] for name in ("reward", "terminated", "truncated", "step"))
        windows = n_step_windows(reward, terminated, truncated, step, self.gamma, self.n_step)
        last = rows[windows.last, np.arange(rows.shape[1])]
        self._reward[rows], self._discount[rows] = windows.reward, windows.discount
        self._next[rows] = self.store.ring.successor[last]
        is_step = columns["step"][added.rows[:-1]]
        self.sampler.insert(added.rows[:-1][is_step], None if priority is None else priority[is_step])
        return int(np.count_nonzero(is_step))

    def _read(self, rows: Array) -> Batch:
        columns = self.store.columns
        obs, next_obs = self.store.read_each(rows, self._next[rows])
        batch: Batch = {"obs": nested("obs", obs), "action": columns["action"][rows]}
        batch |= {"reward": self._reward[rows], "discount": self._discount[rows]}
        batch["next_obs"] = nested("obs", next_obs)
        return batch | {name: columns[name][rows] for name in self._extra}

    def _config(self) -> dict[str, Any]:
        return {
            "kind": "transitions",
            "capacity": self.capacity,
            "n_step": self.n_step,
            "gamma": self.gamma,
            "frame_stack": self._frame_stack,
            "extra": list(self._extra),
            "sampler": self.sampler.facts,
        }

    def _state(self) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
        tables, state = super()._state()
        n_rows = self.store.ring.n_rows
        tables["rows"] |= {name: array[:n_rows] for name, array in self._windows().items()}
        return tables, state

    def _restore(self, state: Mapping[str, Any], read: Any) -> None:
        super()._restore(state, read)
        read("rows", self._windows())

    def _windows(self) -> dict[str, Array]:
        return {"window/reward": self._reward, "window/discount": self._discount, "window/next": self._next}
