"""Observations of a rollout that are stacks of frames, each frame once: in memory and on the wire. Knows numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from parl_lite.errors import ParlError

Array = np.ndarray[Any, Any]

_MARK = "~"
"""Begins the names of a packed column's parts, so that no observation space has them."""


@dataclass(frozen=True)
class Stacks:
    """Stacks of S frames (T + 1, B, S, *frame), the newest last, and those that ended episodes (K, S, *frame).

    A stack shares with the one before, if it is that one moved on by one frame, bit by bit.
    """

    newest: Array
    """(T + 1, B, *frame)"""
    shares: Array
    """(T, B) bool: whether row t + 1 shares with row t; never over a final observation"""
    final_newest: Array
    """(K, *frame)"""
    final_shares: Array
    """(K,) bool: whether a final stack shares with that of its step"""
    whole: Array
    """(Q, S, *frame): the stacks of row 0, then those of later rows that do not share, then such final ones"""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the observations."""
        return (*self.newest.shape[:2], *self.whole.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the observations."""
        return np.dtype(self.newest.dtype)

    @property
    def first(self) -> Array:
        """The observations of row 0, (B, S, *frame)."""
        return self.whole[: self.newest.shape[1]]

    @classmethod
    def of(cls, obs: Array, final_obs: Array, final_at: tuple[Array, Array]) -> Stacks:
        """Find out what is shared.

        Args:
            obs: (T + 1, B, S, *frame).
            final_obs: (K, S, *frame).
            final_at: the steps (t (K,), b (K,)) after which they came.
        """
        shares = equal(obs[1:, :, :-1], obs[:-1, :, 1:], 2)
        shares[final_at] = False  # a final observation comes between
        final_shares = equal(final_obs[:, :-1], obs[final_at][:, 1:], 1)
        whole = np.concatenate([obs[0], obs[1:][~shares], final_obs[~final_shares]])
        return cls(obs[:, :, -1], shares, final_obs[:, -1], final_shares, whole)

    def check(self, name: str) -> None:
        """Raise ParlError where the parts do not fit together."""
        n_envs, n_final = self.newest.shape[1], len(self.final_newest)
        n_whole = n_envs + np.count_nonzero(~self.shares) + np.count_nonzero(~self.final_shares)
        fits = self.shares.shape == (len(self.newest) - 1, n_envs) and self.final_shares.shape == (n_final,)
        if not fits or len(self.whole) != n_whole or self.whole.shape[2:] != self.newest.shape[2:]:
            shapes = {field.name: getattr(self, field.name).shape for field in fields(self)}
            raise ParlError(f"the packed frames of {name!r} do not fit together: {shapes}")


def pack_frames(rollout: Mapping[str, Any], n_frames: int) -> dict[str, Any]:
    """Return a rollout with each frame of its stacked observations once, for a buffer with frame_stack = `n_frames`.

    It is about `n_frames` times smaller on its way; what is stored is the same.
    """
    final_row = np.asarray(rollout.get("final_row", ()), dtype=np.int64)
    final_at = np.divmod(final_row, np.shape(rollout["reward"])[1])
    obs, final_obs = _packed(rollout["obs"], rollout.get("final_obs"), final_at, n_frames)
    packed = {**rollout, "obs": obs}
    return {**packed, "final_obs": final_obs} if "final_obs" in rollout else packed


def unpacked(column: Mapping[str, Any]) -> Stacks | None:
    """Return the stacks of a packed column, or None where it is an ordinary dict of observations."""
    names = [field.name for field in fields(Stacks)]
    return Stacks(*(np.asarray(column[_MARK + name]) for name in names)) if _MARK + names[0] in column else None


def is_stacked(shape: tuple[int, ...], n_frames: int) -> bool:
    """Return whether observations of that shape are taken for stacks of `n_frames` frames."""
    return n_frames > 0 and len(shape) > 1 and shape[0] == n_frames


def _packed(obs: Any, final_obs: Any, final_at: tuple[Array, Array], n_frames: int) -> tuple[Any, Any]:
    if isinstance(obs, Mapping):
        finals = final_obs if isinstance(final_obs, Mapping) else {}
        pairs = {name: _packed(child, finals.get(name), final_at, n_frames) for name, child in obs.items()}
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}
    if not is_stacked(obs.shape[2:], n_frames):
        return obs, final_obs
    final_obs = np.zeros((0, *obs.shape[2:]), obs.dtype) if final_obs is None else final_obs
    stacks = Stacks.of(obs, final_obs, final_at)
    parts = {_MARK + field.name: np.ascontiguousarray(getattr(stacks, field.name)) for field in fields(stacks)}
    return parts, stacks.final_newest


def equal(a: Array, b: Array, n_axes: int) -> Array:
    """Return whether two arrays are equal bit by bit, for each entry of their first `n_axes` axes."""
    lead = a.shape[:n_axes]
    if not a.size:
        return np.ones(lead, dtype=bool)
    return np.asarray((_words(a, n_axes) == _words(b, n_axes)).all(axis=-1))


def _words(array: Array, n_axes: int) -> Array:
    """Return the bytes of each entry, as the widest integers that divide them. (*lead, words)"""
    flat = np.ascontiguousarray(array).reshape(*array.shape[:n_axes], -1)
    size = flat.shape[-1] * flat.itemsize
    return flat.view(np.dtype(f"u{next(width for width in (8, 4, 2, 1) if size % width == 0)}"))
