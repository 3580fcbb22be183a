"""Chooses rows uniformly. Knows positions only, not what lies there.

This and `prioritized.py` have the same methods, so that transitions and sequences can be drawn either way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parl_lite.errors import ParlError

Array = np.ndarray[Any, Any]

_MAX_ROUNDS = 32


class UniformSampler:
    """A set of positions below `capacity`, each drawn with the same probability."""

    prioritized = False

    def __init__(self) -> None:
        self.present = np.zeros(0, dtype=bool)
        self.n_items = 0
        self.span = 0
        """All members are below it."""

    def open(self, capacity: int) -> None:
        """Make room for positions below `capacity`."""
        self.present = np.zeros(capacity, dtype=bool)

    @property
    def total(self) -> float:
        """The mass of all items together: here their number."""
        return float(self.n_items)

    @property
    def facts(self) -> dict[str, Any]:
        """What decides on the draws, for a saved buffer."""
        return {"kind": "uniform"}

    def insert(self, rows: Array, priority: Array | None = None) -> None:
        """Add distinct positions (N,); `priority` (N,) is for the other kind of sampler."""
        self.n_items += int(np.count_nonzero(~self.present[rows]))
        self.present[rows] = True
        self.span = max(self.span, int(rows.max(initial=-1)) + 1)

    def remove(self, rows: Array) -> None:
        """Take positions (N,) away, those that are there; the same may come twice."""
        rows = rows[self.present[rows]]
        if not len(rows):
            return
        rows = np.unique(rows)
        self.n_items -= len(rows)
        self.present[rows] = False

    def draw(self, n: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Return `n` positions (n,), with replacement, and the probability of each to be drawn (n,) float64."""
        rows = self._draw_present(n, random)
        return rows, np.full(n, 1.0 / self.n_items)

    def update(self, rows: Array, priority: Array) -> None:
        """Refuse: there are no priorities."""
        raise ParlError("this buffer is uniform and keeps no priorities: make it with a PrioritizedSampler")

    def weight_exponent(self) -> float:
        """Return beta: uniform draws need no weights."""
        return 0.0

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays (capacity,) and facts to go on from."""
        return {"present": self.present}, {"span": self.span}

    def restore(self, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
        """Go on from the arrays (n,) of the first n positions and the facts that `state` returned."""
        self.open(len(self.present))
        self.present[: len(arrays["present"])] = arrays["present"]
        self.n_items = int(np.count_nonzero(self.present))
        self.span = facts["span"]

    def _draw_present(self, n: int, random: np.random.Generator) -> Array:
        """Draw among all positions below the span, and again where there is no item: few are none."""
        rows = random.integers(0, self.span, n)
        for _ in range(_MAX_ROUNDS):
            missed = np.flatnonzero(~self.present[rows])
            if not len(missed):
                return rows
            rows[missed] = random.integers(0, self.span, len(missed))
        missed = np.flatnonzero(~self.present[rows])
        rows[missed] = random.choice(np.flatnonzero(self.present), len(missed))
        return rows
