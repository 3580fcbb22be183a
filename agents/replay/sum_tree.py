"""A sum tree over a fixed number of leaves, for drawing in proportion to priorities. Knows numpy only.

The leaves lie in order in the last level of a full binary tree, padded with zeros to a power of two, so any capacity
keeps its order. An inner node is always computed from its two children and never by adding differences: the tree is a
function of its leaves, whatever came before, and does not drift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_FEW = 16
"""So many leaves are set one by one."""


class SumTree:
    """Sums of `capacity` non-negative float64 leaves, all zero at first.

    Args:
        capacity: number of leaves, at least 1; need not be a power of two.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sum tree of {capacity} leaves: it needs at least 1")
        self.capacity = capacity
        self._depth = (capacity - 1).bit_length()
        self._first = 1 << self._depth
        self._nodes = np.zeros(2 * self._first, dtype=np.float64)  # node i has children 2 i and 2 i + 1, the root is 1

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._nodes[1])

    @property
    def leaves(self) -> Array:
        """The leaves (capacity,) float64, a read-only view."""
        view = self._nodes[self._first : self._first + self.capacity]
        view.flags.writeable = False
        return view

    def get(self, index: Array) -> Array:
        """Return the leaves (N,) float64 at `index` (N,)."""
        return np.asarray(self._nodes[self._first + index])

    def set(self, index: Array, value: Array | float) -> None:
        """Set the leaves at `index` (N,) int64 to `value` (N,) or one number; of equal indices the last counts."""
        nodes = self._nodes
        node = self._first + np.asarray(index, dtype=np.int64)
        nodes[node] = value
        if len(node) <= _FEW:
            self._sum_above(node.tolist())
            return
        node = np.unique(node)
        for _ in range(self._depth):
            node = node >> 1
            if len(node) > 64:  # they are sorted: leave out what two children share
                node = node[np.flatnonzero(np.diff(node, prepend=-1))]
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]

    def _sum_above(self, node: list[int]) -> None:
        """Compute the nodes above a few leaves one by one: numpy costs more for so little."""
        nodes = self._nodes
        for _ in range(self._depth):
            node = list({one >> 1 for one in node})
            for one in node:
                nodes[one] = nodes[2 * one] + nodes[2 * one + 1]

    def replace(self, leaves: Array) -> None:
        """Set all leaves (capacity,) at once."""
        nodes, width = self._nodes, self._first
        nodes[width : width + self.capacity] = leaves
        while width > 1:
            pairs = nodes[width : 2 * width].reshape(-1, 2)
            width >>= 1
            nodes[width : 2 * width] = pairs[:, 0] + pairs[:, 1]

    def find(self, mass: Array) -> Array:
        """Return for each `mass` (N,) in [0, total) the leaf (N,) int64 in whose share of the running sum it lies.

        A leaf of zero is never found, also where rounding pushes a mass to a border.
        """
        nodes, mass = self._nodes, np.asarray(mass, dtype=np.float64)
        level = min(self._depth, len(mass).bit_length())  # a row of about as many nodes is searched at once
        border = np.concatenate([[0.0], np.cumsum(nodes[1 << level : 2 << level])])
        last = np.searchsorted(border[1:], border[-1])  # that is not zero
        node = np.minimum(np.searchsorted(border[1:], mass, side="right"), last)
        mass = mass - border[node]
        node += 1 << level
        for _ in range(self._depth - level):
            node <<= 1
            left = nodes[node]
            right = (mass >= left) & (nodes[node + 1] > 0)
            mass -= np.where(right, left, 0.0)
            node += right
        return np.asarray(node - self._first)

    def sample(self, n: int, random: np.random.Generator) -> Array:
        """Return `n` leaves (n,) int64 drawn in proportion to their values, one from each of n equal strata."""
        mass = (np.arange(n) + random.random(n)) * (self.total / n)
        return self.find(np.minimum(mass, np.nextafter(self.total, 0.0)))
