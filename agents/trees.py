"""Nested dicts and tuples of arrays or tensors, leaf by leaf. Knows nothing of what they hold.

A tree is a leaf, a dict of trees, or a tuple of trees: Dict observations are dicts, recurrent states are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Tree = Any


def map_tree(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return a tree of `function(leaf, *leaves at the same place of the others)`."""
    if isinstance(tree, dict):
        return {name: map_tree(function, child, *(other[name] for other in others)) for name, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_tree(function, *children) for children in zip(tree, *others, strict=True))
    return function(tree, *others)


def leaves(tree: Tree) -> Iterator[Any]:
    """Yield the leaves in order."""
    if isinstance(tree, dict | tuple):
        for child in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(child)
    else:
        yield tree


def row(tree: Tree, index: Any) -> Tree:
    """Return `leaf[index]` of each leaf: a view where numpy and torch give one."""
    if isinstance(tree, dict | tuple):
        return map_tree(lambda leaf: leaf[index], tree)
    return tree[index]


def write(tree: Tree, index: Any, values: Tree) -> None:
    """Copy `values` into `leaf[index]` of each leaf; a tuple may stand for the dict {"0": ..., "1": ...}."""
    if isinstance(tree, dict):
        named = values if isinstance(values, dict) else dict(zip(tree, values, strict=True))
        for name, child in tree.items():
            write(child, index, named[name])
    else:
        tree[index] = values


def concatenate_trees(trees: Sequence[Tree], axis: int) -> Tree:
    """Return one tree of numpy arrays, joined leaf by leaf along `axis`."""
    return map_tree(lambda *arrays: np.concatenate(arrays, axis=axis), *trees)
