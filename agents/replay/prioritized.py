"""Chooses rows in proportion to priorities (Schaul et al. 2016, arXiv:1511.05952). Knows positions only.

The probability of item i is p_i^alpha / sum over all p^alpha, with p = priority + epsilon; the exponent is applied here,
once. A new item has the priority that came with it, as in Ape-X, else the highest that there ever was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parl_lite.errors import ParlError

from .sum_tree import SumTree
from .uniform import Array, UniformSampler


class PrioritizedSampler(UniformSampler):
    """A set of positions, each drawn with a probability of its own.

    Args:
        alpha: exponent of priorities: 0 is uniform.
        beta: exponent of importance weights, 1 makes up for the priorities in full.
        beta_end: where beta gets to; without, it stays.
        beta_draws: after how many draws of a batch, linearly.
        epsilon: added to every priority, so that none is never drawn.
        uniform_mix: share of the draws that are uniform instead.
    """

    prioritized = True

    def __init__(
        self,
        alpha: float = 0.6,
        beta: float = 0.4,
        *,
        beta_end: float | None = None,
        beta_draws: int = 1,
        epsilon: float = 1e-6,
        uniform_mix: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value in {"alpha": alpha, "beta": beta, "epsilon": epsilon, "uniform_mix": uniform_mix}.items():
            if not 0 <= value < np.inf:
                raise ParlError(f"{name} is {value}: it must be 0 or more, and finite")
        if uniform_mix > 1 or beta_draws < 1:
            raise ParlError(f"uniform_mix is {uniform_mix} and beta_draws {beta_draws}: at most 1, and at least 1")
        self.alpha, self.epsilon, self.uniform_mix = alpha, epsilon, uniform_mix
        self._beta = (beta, beta if beta_end is None else beta_end, beta_draws)
        self.n_draws = 0
        self.highest = 1.0
        """The highest priority so far, before the exponent; of an item without one."""

    def open(self, capacity: int) -> None:
        """Make room for positions below `capacity`."""
        super().open(capacity)
        self.tree = SumTree(capacity)

    @property
    def total(self) -> float:
        """The sum of all p^alpha."""
        return self.tree.total

    @property
    def facts(self) -> dict[str, Any]:
        """What decides on the draws, for a saved buffer."""
        return {"kind": "prioritized", "alpha": self.alpha, "epsilon": self.epsilon, "uniform_mix": self.uniform_mix}

    def insert(self, rows: Array, priority: Array | None = None) -> None:
        """Add distinct positions (N,) with priorities (N,), if they have some."""
        if priority is None:
            priority = np.full(len(rows), self.highest)
        mass = self._mass(priority)
        super().insert(rows)
        self.tree.set(rows, mass)

    def remove(self, rows: Array) -> None:
        """Take positions (N,) away, those that are there."""
        rows = rows[self.present[rows]]
        if len(rows):
            super().remove(rows)
            self.tree.set(rows, 0.0)

    def draw(self, n: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Return `n` positions (n,), stratified over the priorities, and their probabilities (n,) float64."""
        if not self.tree.total > 0:
            raise ParlError(f"the priorities of all {self.n_items} items are 0: nothing can be drawn in proportion to them")
        rows = self.tree.sample(n, random)
        probability = self.tree.get(rows) / self.tree.total
        if self.uniform_mix:
            swap = np.flatnonzero(random.random(n) < self.uniform_mix)
            rows[swap] = self._draw_present(len(swap), random)
            mine = self.tree.get(rows) / self.tree.total
            probability = (1 - self.uniform_mix) * mine + self.uniform_mix / self.n_items
        self.n_draws += 1
        return rows, probability

    def update(self, rows: Array, priority: Array) -> None:
        """Give items at positions (N,) new priorities (N,); of equal positions the last counts."""
        self.tree.set(rows, self._mass(priority))

    def weight_exponent(self) -> float:
        """Return beta as it is now."""
        begin, end, n = self._beta
        return begin + (end - begin) * min(1.0, self.n_draws / n)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays (capacity,) and facts to go on from."""
        arrays, facts = super().state()
        return {**arrays, "mass": self.tree.leaves}, {**facts, "n_draws": self.n_draws, "highest": self.highest}

    def restore(self, arrays: dict[str, Array], facts: dict[str, Any]) -> None:
        """Go on from the arrays (n,) of the first n positions and the facts that `state` returned."""
        super().restore(arrays, facts)
        leaves = np.zeros(self.tree.capacity)
        leaves[: len(arrays["mass"])] = arrays["mass"]
        self.tree.replace(leaves)
        self.n_draws, self.highest = facts["n_draws"], facts["highest"]

    def _mass(self, priority: Array) -> Array:
        """Return p^alpha (N,) float64; raises ParlError for priorities that are none."""
        priority = check_priorities(priority)
        self.highest = max(self.highest, float(priority.max(initial=0.0)))
        return np.asarray((priority + self.epsilon) ** self.alpha)


def check_priorities(priority: Array) -> Array:
    """Return priorities (N,) as float64; raise ParlError where one is negative, NaN or infinite."""
    priority = np.asarray(priority, dtype=np.float64)
    wrong = ~((priority >= 0) & (priority < np.inf))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ParlError(f"priority {place} is {priority.reshape(-1)[place]}: a priority must be 0 or more, and finite")
    return priority


def importance_weights(probability: Array, n_items: int, beta: float) -> Array:
    """Return (n_items * probability)^-beta, divided by the highest of the batch. (N,) float32"""
    weight = (n_items * probability) ** -beta
    return np.asarray(weight / weight.max(), dtype=np.float32)
