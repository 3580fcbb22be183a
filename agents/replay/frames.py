"""Stacked frames, each kept once: observations of S frames for about the price of one. Knows numpy only.

An observation is a stack of S frames along its first axis, the newest last, as frame-stacking wrappers give it. A row of
the ring keeps the newest frame of its observation, and the positions of the rows that keep the S - 1 older ones:
those before it in the episode. That this is so is not taken on trust: a frame is shared only where it is equal bit by
bit, so what is read equals what was added, whatever it was. Frames that no row has, such as the zeros before the first
frame of an episode, go to rows of their own, the fillers; equal neighbours in a stack take one.

When a row is lost, the S - 1 rows after it that share its frame are, too: at the old end of the ring up to S - 1 rows of
each environment go early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .gather import take_rows
from .storage import Layout, Places

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StackedLayout(Layout):
    """A layout with what is shared. Whole stacks, those that share nothing with a row before, are listed apart."""

    shares: Any = None
    """(T, B) bool: whether obs[t + 1] is obs[t] moved on by one frame."""
    final_shares: Any = None
    """(K,) bool: the same for final_obs."""
    whole: Any = None
    """(Q, S, *frame): the whole stacks: of obs, then of final_obs, in order."""
    repeats: Any = None
    """(Q, S - 1) bool: whether frame j of a whole stack equals frame j + 1."""


class StackedColumn:
    """Observations of shape (S, *frame_shape), a frame each row.

    Args:
        capacity: rows.
        shape: of an observation.
        dtype: of an observation.
    """

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.n_frames = shape[0]
        self._frames = np.zeros((capacity, *shape[1:]), dtype=dtype)
        self._stacks = np.zeros((capacity, self.n_frames), dtype=np.int64)  # positions of the frames of each row

    @property
    def arrays(self) -> dict[str, Array]:
        """All there is to save, by name: arrays (capacity, ...)."""
        return {"frame": self._frames, "stack": self._stacks}

    def layout(self, obs: Array, final_obs: Array, final_at: tuple[Array, Array], fresh: bool) -> StackedLayout:
        """Return what is to be stored of obs (T + 1, B, S, *frame) and final_obs (K, S, *frame)."""
        shares = _equal(obs[1:, :, :-1], obs[:-1, :, 1:], 2)
        shares[final_at] = False  # a final observation comes between
        final_shares = _equal(final_obs[:, :-1], obs[final_at][:, 1:], 1)
        first = np.full((1, obs.shape[1]), fresh)
        whole = np.concatenate([obs[np.concatenate([first, ~shares])], final_obs[~final_shares]])
        repeats = np.stack([_equal(whole[:, j], whole[:, j + 1], 1) for j in range(self.n_frames - 1)], axis=1)
        return StackedLayout(obs, final_obs, fresh, int((~repeats).sum()), shares, final_shares, whole, repeats)

    def broken(self, lost: Array, successor: Array) -> Array:
        """Return the positions that cannot be read once `lost` (N,) are overwritten."""
        found, row = [], lost
        for _ in range(self.n_frames - 1):
            row = successor[row]
            lost, row = lost[row >= 0], row[row >= 0]
            found.append(row[(self._stacks[row] == lost[:, None]).any(axis=1)])
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])

    def write(self, layout: Layout, places: Places) -> None:
        """Store a layout."""
        assert isinstance(layout, StackedLayout)
        begin = 0 if layout.fresh else 1
        self._frames[places.rows[begin:]] = layout.obs[begin:, :, -1]
        self._frames[places.final_rows] = layout.final_obs[:, -1]
        first = np.full((1, layout.obs.shape[1]), layout.fresh)
        is_whole = np.concatenate([first, ~layout.shares])
        stacks = np.zeros((*places.rows.shape, self.n_frames), dtype=np.int64)
        final_stacks = np.zeros((len(places.final_rows), self.n_frames), dtype=np.int64)
        own = np.concatenate([places.rows[is_whole], places.final_rows[~layout.final_shares]])
        whole = self._write_whole(layout, own, places.fillers)
        stacks[is_whole], final_stacks[~layout.final_shares] = np.split(whole, [int(is_whole.sum())])
        if not layout.fresh:
            stacks[0] = self._stacks[places.rows[0]]
        for t in np.flatnonzero(layout.shares.any(axis=1)):
            moved = np.concatenate([stacks[t, :, 1:], places.rows[t + 1][:, None]], axis=1)
            stacks[t + 1] = np.where(layout.shares[t][:, None], moved, stacks[t + 1])
        before = stacks[places.final_at][layout.final_shares]  # (shared K, S)
        newest = places.final_rows[layout.final_shares][:, None]
        final_stacks[layout.final_shares] = np.concatenate([before[:, 1:], newest], axis=1)
        self._stacks[places.rows] = stacks
        self._stacks[places.final_rows] = final_stacks

    def _write_whole(self, layout: StackedLayout, own: Array, fillers: Array) -> Array:
        """Store the older frames of whole stacks, whose newest are at `own` (Q,); return their positions (Q, S)."""
        stacks = np.empty((len(own), self.n_frames), dtype=np.int64)
        stacks[:, -1] = own
        used = 0
        for j in range(self.n_frames - 2, -1, -1):
            needed = ~layout.repeats[:, j]
            filler = fillers[used : used + int(needed.sum())]
            used += len(filler)
            self._frames[filler] = layout.whole[needed, j]
            stacks[:, j] = stacks[:, j + 1]
            stacks[needed, j] = filler
        return stacks

    def read(self, rows: Array, n_threads: int = 1) -> Array:
        """Return the observations (N, S, *frame) at positions `rows` (N,), 0 or more."""
        frames = take_rows(self._frames, self._stacks[rows].reshape(-1), n_threads)
        return frames.reshape(len(rows), *self.shape)


def _equal(a: Array, b: Array, n_axes: int) -> Array:
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
