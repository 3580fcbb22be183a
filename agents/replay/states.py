"""Recurrent states at the starts of sequences: a ring of slots beside the ring of rows. Knows trees of arrays.

States are far fewer than rows, and bigger. A row that starts a sequence has the number of its slot. When slots run out
before rows, which happens where sequences start more often than planned for, the oldest state goes, and its sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parl_lite.errors import ParlError

Array = np.ndarray[Any, Any]


class StateStore:
    """`n_slots` states, which are trees of arrays: an array, or tuples and dicts of such, each (B, ...) for B rows.

    Attributes:
        slot: (capacity,) int64, the slot of the row at each position, or -1: its state is zeros.
    """

    def __init__(self, n_slots: int, capacity: int) -> None:
        self.n_slots = n_slots
        self.slot = np.full(capacity, -1, dtype=np.int64)
        self._owner = np.full(n_slots, -1, dtype=np.int64)  # position of the row that has the slot
        self._n_kept = 0
        self._shape: Any = None
        self._leaves: list[Array] = []

    @property
    def arrays(self) -> dict[str, Array]:
        """All there is to save by name: arrays (n_slots, ...)."""
        return {"owner": self._owner, **{f"leaf{i}": leaf for i, leaf in enumerate(self._leaves)}}

    @property
    def facts(self) -> dict[str, Any]:
        """Plain values to go on from."""
        leaves = [[list(leaf.shape[1:]), leaf.dtype.str] for leaf in self._leaves]
        return {"n_slots": self.n_slots, "n_kept": self._n_kept, "shape": self._shape, "leaves": leaves}

    def open(self, facts: Mapping[str, Any]) -> None:
        """Make room for the states that `facts` tells of."""
        self.n_slots, self._n_kept, self._shape = facts["n_slots"], facts["n_kept"], facts["shape"]
        self._owner = np.full(self.n_slots, -1, dtype=np.int64)
        self._leaves = [np.zeros((self.n_slots, *shape), dtype) for shape, dtype in facts["leaves"]]

    def forget(self, rows: Array) -> None:
        """Let the states of `rows` (N,) be zeros."""
        self.slot[rows] = -1

    def keep(self, rows: Array, state: Any) -> Array:
        """Store the states of `rows` (N,), leaves (N, ...); return positions of rows that lost theirs."""
        leaves = [np.asarray(leaf) for leaf in _leaves_of(state)]
        self._fit(leaves, _shape_of(state), len(rows))
        slots = np.arange(self._n_kept, self._n_kept + len(rows)) % self.n_slots
        before = self._owner[slots]
        lost = before[(before >= 0) & (self.slot[before] == slots)]
        self.slot[lost] = -1
        for mine, leaf in zip(self._leaves, leaves, strict=True):
            mine[slots] = leaf
        self._owner[slots], self.slot[rows] = rows, slots
        self._n_kept += len(rows)
        return np.asarray(np.setdiff1d(lost, rows))

    def read(self, rows: Array) -> Any:
        """Return the states (N, ...) of `rows` (N,), in the form they were given; () before there was any."""
        if self._shape is None:
            return ()
        slots = self.slot[rows]
        leaves = [leaf[np.maximum(slots, 0)] for leaf in self._leaves]
        for leaf in leaves:
            leaf[slots < 0] = 0
        return _tree(self._shape, iter(leaves))

    def _fit(self, leaves: list[Array], shape: Any, n: int) -> None:
        rows = [(leaf.shape[1:], leaf.dtype) for leaf in leaves]
        if self._shape is None:
            if n > self.n_slots:
                self._owner = np.full(n, -1, dtype=np.int64)
                self.n_slots = n
            self._shape = shape
            self._leaves = [np.zeros((self.n_slots, *item), dtype) for item, dtype in rows]
        kept = [(leaf.shape[1:], leaf.dtype) for leaf in self._leaves]
        if shape != self._shape or rows != kept or any(len(leaf) != n for leaf in leaves):
            seen = [f"{leaf.dtype} {leaf.shape}" for leaf in leaves]
            raise ParlError(f"the state of a rollout is {seen}: this buffer keeps {kept} for each of {n} environments")


def _leaves_of(state: Any) -> Iterator[Any]:
    if isinstance(state, Mapping | tuple | list):
        for child in state.values() if isinstance(state, Mapping) else state:
            yield from _leaves_of(child)
    else:
        yield state


def _shape_of(state: Any) -> Any:
    """Return the form of a tree, in what JSON can hold: "leaf", a list or a dict."""
    if isinstance(state, Mapping):
        return {str(name): _shape_of(child) for name, child in state.items()}
    return [_shape_of(child) for child in state] if isinstance(state, tuple | list) else "leaf"


def _tree(shape: Any, leaves: Iterator[Array]) -> Any:
    if isinstance(shape, dict):
        return {name: _tree(child, leaves) for name, child in shape.items()}
    return tuple(_tree(child, leaves) for child in shape) if isinstance(shape, list) else next(leaves)
