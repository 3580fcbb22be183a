"""ReplayMemory: a ring of single transitions in numpy. Knows nothing of agents and priorities.

It draws from numpy's global stream, as PARL's does: `np.random.seed` makes it repeatable, and `Agent.save` keeps its place.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parl_lite.utils import logger

Batch = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]

_COLUMNS = ("obs", "action", "reward", "terminal", "next_obs")
_D4RL = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "terminal": "terminals",
    "next_obs": "next_observations",
}


class ReplayMemory:
    """The last `max_size` transitions.

    Args:
        max_size: how many; the oldest make room.
        obs_dim: length, or shape, of an observation; kept as float32.
        act_dim: length, or shape, of an action, kept as float32; 0: actions are single integers, kept as int32.
    """

    def __init__(self, max_size: int, obs_dim: int | Sequence[int], act_dim: int | Sequence[int]) -> None:
        self.max_size = int(max_size)
        if self.max_size < 1:
            raise ValueError(f"max_size={max_size} is not above 0")
        self.obs_dim = obs_dim
        self.act_dim = act_dim
        obs_shape, act_shape = _shape(obs_dim), () if act_dim == 0 else _shape(act_dim)
        self.obs = np.zeros((self.max_size, *obs_shape), np.float32)
        self.action = np.zeros((self.max_size, *act_shape), np.int32 if act_dim == 0 else np.float32)
        self.reward = np.zeros(self.max_size, np.float32)
        self.terminal = np.zeros(self.max_size, np.bool_)
        self.next_obs = np.zeros((self.max_size, *obs_shape), np.float32)
        self._size = 0
        self._position = 0

    def append(self, obs: ArrayLike, act: ArrayLike, reward: float, next_obs: ArrayLike, terminal: bool | float) -> None:
        """Take in one transition; `terminal` says that nothing is bootstrapped from `next_obs`: not after a time limit.

        Raises ValueError when a value is not of the size that was given at the start: one too short would be repeated.
        """
        row = self._position
        _put(self.obs, row, obs, "obs")
        _put(self.action, row, act, "act")
        _put(self.next_obs, row, next_obs, "next_obs")
        self.reward[row] = reward
        self.terminal[row] = terminal
        self._position = (row + 1) % self.max_size
        self._size = min(self._size + 1, self.max_size)

    def sample_batch(self, batch_size: int) -> Batch:
        """Return obs, action, reward, next_obs, terminal of `batch_size` transitions, each drawn from all."""
        return self.sample_batch_by_index(self.make_index(batch_size))

    def make_index(self, batch_size: int) -> NDArray[np.int64]:
        """Return `batch_size` random rows for `sample_batch_by_index`."""
        if not self._size:
            raise ValueError("the replay memory is empty: append transitions before sampling")
        return np.random.randint(self._size, size=batch_size)

    def sample_batch_by_index(self, batch_idx: ArrayLike) -> Batch:
        """Return obs, action, reward, next_obs, terminal of these rows, as copies."""
        rows = np.asarray(batch_idx)
        return self.obs[rows], self.action[rows], self.reward[rows], self.next_obs[rows], self.terminal[rows]

    def size(self) -> int:
        """Return how many transitions there are."""
        return self._size

    def __len__(self) -> int:
        return self._size

    def save(self, pathname: str | os.PathLike[str]) -> None:
        """Write all transitions to a .npz file, which PARL can read, too, whole or not at all."""
        target = _npz(pathname)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp.npz")
        columns: dict[str, Any] = {name: getattr(self, name)[: self._size] for name in _COLUMNS}
        try:
            np.savez(draft, **columns, other=np.array([self._size, self._position % self.max_size], np.int64))
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def load(self, pathname: str | os.PathLike[str]) -> None:
        """Take the place of what `save` wrote, here or in PARL; a memory of the same size goes on bit by bit.

        A larger memory has room left; a smaller one keeps the newest, with a warning. Raises ValueError when the file
        holds observations or actions of another shape.
        """
        with np.load(_npz(pathname)) as file:
            size, position = (int(number) for number in file["other"])
            columns = {name: file[name][:size] for name in _COLUMNS}
        rows = np.arange(size) if size == self.max_size else _oldest_first(size, position)
        if size > self.max_size:
            logger.warning("%s holds %d transitions: the newest %d are kept", pathname, size, self.max_size)
        self._fill({name: column[rows[-self.max_size :]] for name, column in columns.items()}, str(pathname))
        self._position = (position if size == self.max_size else self._size) % self.max_size

    def load_from_d4rl(self, dataset: Mapping[str, NDArray[Any]]) -> None:
        """Take in a data set with observations, actions, rewards, terminals and next_observations, as D4RL's have."""
        missing = sorted(set(_D4RL.values()) - set(dataset))
        if missing:
            raise ValueError(f"the data set lacks {', '.join(missing)}")
        n = len(dataset["rewards"])
        if n > self.max_size:
            raise ValueError(f"the data set has {n} transitions, but max_size is {self.max_size}: raise it")
        self._fill({name: np.asarray(dataset[theirs]) for name, theirs in _D4RL.items()}, "the data set")
        self._position = self._size % self.max_size

    def _fill(self, columns: Mapping[str, NDArray[Any]], source: str) -> None:
        for name, column in columns.items():
            own = getattr(self, name)
            if column.shape[1:] != own.shape[1:]:
                raise ValueError(f"{name} in {source} has shape {column.shape[1:]}, but here it is {own.shape[1:]}")
        self._size = len(columns["reward"])
        for name, column in columns.items():
            getattr(self, name)[: self._size] = column


def _shape(dim: int | Sequence[int]) -> tuple[int, ...]:
    return (dim,) if isinstance(dim, int | np.integer) else tuple(dim)


def _put(column: NDArray[Any], row: int, value: ArrayLike, name: str) -> None:
    value, shape = np.asarray(value), column.shape[1:]
    if value.size != prod(shape):
        raise ValueError(f"{name} has shape {value.shape}, but {shape} was given when the replay memory was made")
    column[row] = value.reshape(shape)


def _oldest_first(size: int, position: int) -> NDArray[np.int64]:
    """Return the rows in the order in which they came; `position` is the oldest's where the ring was full."""
    return (position % size + np.arange(size)) % size if size else np.arange(0)


def _npz(pathname: str | os.PathLike[str]) -> Path:
    """Return the path with the ending that numpy would add."""
    path = Path(pathname)
    return path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
