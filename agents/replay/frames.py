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

from .gather import Rows
from .stacks import Stacks, equal
from .storage import Layout, Places

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class StackedLayout(Layout):
    """A layout with what is shared. Whole stacks, those that share nothing with a row before, are listed apart."""

    stacks: Any = None
    """Stacks: what is shared."""
    whole: Any = None
    """(Q, S, *frame): the whole stacks that are to be stored."""
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

    def layout(self, obs: Any, final_obs: Array, final_at: tuple[Array, Array], fresh: bool) -> StackedLayout:
        """Return what is to be stored of obs (T + 1, B, S, *frame) and final_obs (K, S, *frame), or of Stacks."""
        stacks = obs if isinstance(obs, Stacks) else Stacks.of(obs, final_obs, final_at)
        whole = stacks.whole if fresh else stacks.whole[len(stacks.first) :]
        repeats = np.stack([equal(whole[:, j], whole[:, j + 1], 1) for j in range(self.n_frames - 1)], axis=1)
        return StackedLayout(obs, final_obs, fresh, int((~repeats).sum()), stacks, whole, repeats)

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
        begin, seen = 0 if layout.fresh else 1, layout.stacks
        self._frames[places.rows[begin:]] = seen.newest[begin:]
        self._frames[places.final_rows] = seen.final_newest
        is_whole = np.concatenate([np.full_like(seen.shares[:1], layout.fresh), ~seen.shares])
        stacks = np.zeros((*places.rows.shape, self.n_frames), dtype=np.int64)
        final_stacks = np.zeros((len(places.final_rows), self.n_frames), dtype=np.int64)
        own = np.concatenate([places.rows[is_whole], places.final_rows[~seen.final_shares]])
        whole = self._write_whole(layout, own, places.fillers)
        stacks[is_whole], final_stacks[~seen.final_shares] = np.split(whole, [int(is_whole.sum())])
        if not layout.fresh:
            stacks[0] = self._stacks[places.rows[0]]
        for t in np.flatnonzero(seen.shares.any(axis=1)):
            moved = np.concatenate([stacks[t, :, 1:], places.rows[t + 1][:, None]], axis=1)
            stacks[t + 1] = np.where(seen.shares[t][:, None], moved, stacks[t + 1])
        before = stacks[places.final_at][seen.final_shares]  # (shared K, S)
        newest = places.final_rows[seen.final_shares][:, None]
        final_stacks[seen.final_shares] = np.concatenate([before[:, 1:], newest], axis=1)
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

    def source(self, rows: Array) -> Rows:
        """Return what to take for the observations at positions `rows` (N,): N * S frames."""
        return self._frames, self._stacks[rows].reshape(-1)
