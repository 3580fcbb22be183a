"""Batches of several buffers as one. Knows the forms of batches: transitions (N, ...), sequences (L, N, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BY_ITEM = ("state", "index", "weight")
"""What a sequence batch has once for each sequence, (N, ...)."""


def join(batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one batch with the items of all, in order; a single one as it is."""
    first = batches[0]
    if len(batches) == 1:
        return first
    axis = 1 if "burn_in" in first else 0
    joined = {
        name: _join([batch[name] for batch in batches], 0 if name in _BY_ITEM else axis) for name in first if name != "burn_in"
    }
    return joined if axis == 0 else {**joined, "burn_in": first["burn_in"]}


def _join(trees: Sequence[Any], axis: int) -> Any:
    first = trees[0]
    if isinstance(first, dict):
        return {name: _join([tree[name] for tree in trees], axis) for name in first}
    if isinstance(first, tuple):
        return tuple(_join(children, axis) for children in zip(*trees, strict=True))
    return np.concatenate(trees, axis=axis)
