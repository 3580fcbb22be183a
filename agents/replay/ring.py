"""A ring of rows: which rows are written next, and which are lost by that. Knows neither what is in a row nor episodes.

A row has a position in [0, capacity) and a serial number that is never used again; row `serial` lies at position
`serial % capacity`. Rows of one environment are chained by `successor`. A chain always leads to higher serials, so as
long as a row is there, all that follow it are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Ring:
    """Positions, serials and chains of `capacity` rows.

    Attributes:
        n_written: rows taken so far, and the serial of the next.
        serial: (capacity,) int64, of the row at each position, -1 where none was yet.
        alive: (capacity,) bool, whether the row there can be read whole.
        successor: (capacity,) int64, position of the next row of the same environment, or -1.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.n_written = 0
        self.serial = np.full(capacity, -1, dtype=np.int64)
        self.alive = np.zeros(capacity, dtype=bool)
        self.successor = np.full(capacity, -1, dtype=np.int64)

    @property
    def n_rows(self) -> int:
        """Positions that were ever written: the first so many."""
        return min(self.n_written, self.capacity)

    def next_positions(self, n: int) -> Array:
        """Return the positions (n,) of the next `n` rows; nothing changes."""
        return np.arange(self.n_written, self.n_written + n) % self.capacity

    def take(self, n: int) -> Array:
        """Return the positions (n,) of `n` new rows, alive and without successor; the rows there before are gone."""
        positions = self.next_positions(n)
        self.serial[positions] = np.arange(self.n_written, self.n_written + n)
        self.alive[positions] = True
        self.successor[positions] = -1
        self.n_written += n
        return positions

    def positions_of(self, serials: Array) -> tuple[Array, Array]:
        """Return (positions (N,), whether the row of that serial is still there (N,))."""
        positions = serials % self.capacity
        return positions, (self.serial[positions] == serials) & self.alive[positions]
