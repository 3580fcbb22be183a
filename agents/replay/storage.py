"""Where observations of one column lie: one array, a row each. `frames.py` has the other way. Knows numpy only.

Both ways have the same methods, which `steps.py` calls in this order for each rollout:

    layout    look at what is to be stored, and say how many rows it needs beyond one for each observation
    broken    which other rows cannot be read any more when some rows are lost
    write     store it

and `source` says where to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .gather import Rows

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """What of one observation column of a rollout is to be stored."""

    obs: Any
    """(T + 1, B, *shape)"""
    final_obs: Array
    """(K, *shape)"""
    fresh: bool
    """Whether obs[0] is to be stored too; else it lies in the ring since the rollout before."""
    n_fillers: int = 0
    """Rows needed beyond one for each observation."""


class Places(NamedTuple):
    """Where the observations of a rollout go, as positions in the ring."""

    rows: Array
    """(T + 1, B), of obs"""
    final_rows: Array
    """(K,), of final_obs"""
    final_at: tuple[Array, Array]
    """(t (K,), b (K,)): the steps after which the final observations came"""
    fillers: Array
    """(n_fillers,)"""


class PlainColumn:
    """Observations as they are: an array (capacity, *shape)."""

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self._values = np.zeros((capacity, *shape), dtype=dtype)  # pages are the system's until they are written

    @property
    def arrays(self) -> dict[str, Array]:
        """All there is to save, by name: arrays (capacity, ...)."""
        return {"value": self._values}

    def layout(self, obs: Any, final_obs: Array, final_at: tuple[Array, Array], fresh: bool) -> Layout:
        """Return what is to be stored of obs (T + 1, B, *shape) and final_obs (K, *shape)."""
        return Layout(obs, final_obs, fresh)

    def broken(self, lost: Array, successor: Array) -> Array:
        """Return the positions that cannot be read once `lost` (N,) are overwritten: none."""
        return np.zeros(0, dtype=np.int64)

    def write(self, layout: Layout, places: Places) -> None:
        """Store a layout."""
        begin = 0 if layout.fresh else 1
        self._values[places.rows[begin:]] = layout.obs[begin:]
        self._values[places.final_rows] = layout.final_obs

    def source(self, rows: Array) -> Rows:
        """Return what to take for the observations at positions `rows` (N,): N values."""
        return self._values, rows
