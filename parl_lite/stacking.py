"""Trees of arrays stacked along a new first axis, and split again. Knows no actors; imports torch only if others did.

    tree            dicts, lists, tuples (named ones, too) and None, with leaves
    leaf to stack   numpy array, torch tensor, numpy scalar, bool, int, float, complex: n of shape S become (n, *S)
    leaf to split   numpy array or torch tensor of shape (n, *S): becomes n of shape S, numpy scalars where S is ()

None has no leaves and stays None. Numbers become numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from parl_lite import tensors
from parl_lite.errors import ParlError

_NUMBERS = (bool, int, float, complex, np.generic)


def signature(tree: Any, path: str = "the value") -> Hashable:
    """Return what two trees must have in common to be stacked: structure, and kind, dtype and shape of each leaf.

    Raises ParlError, which names the place below `path`, for a leaf that cannot be stacked.
    """
    kind = type(tree)
    if kind is dict:
        return kind, frozenset((key, signature(child, f"{path}[{key!r}]")) for key, child in tree.items())
    if _is_sequence(tree):
        return kind, tuple(signature(child, f"{path}[{i}]") for i, child in enumerate(tree))
    if tree is None:
        return None
    if _is_tensor(tree):
        return "tensor", tree.dtype, tree.shape, tree.layout
    array = tree if kind is np.ndarray else np.asarray(tree) if isinstance(tree, _NUMBERS) else None
    if array is None or (array.dtype.hasobject and array is not tree):
        what = f"the number {tree}" if array is not None else f"a {kind.__name__}"
        raise ParlError(f"{path} is {what}, which cannot be stacked; arrays, tensors, numbers and None can")
    return "array", array.dtype, array.shape


def has_leaves(tree: Any) -> bool:
    """Return whether there is anything to stack in a tree."""
    if type(tree) is dict or _is_sequence(tree):
        return any(map(has_leaves, tree.values() if type(tree) is dict else tree))
    return tree is not None


def alike(signatures: Sequence[Hashable], owners: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of trees that can be stacked, in groups to be run one after the other.

    What an owner sent stays in order: none of it is in an earlier group than what that owner sent before it.
    """
    groups: list[list[int]] = []
    reached: dict[Hashable, int] = {}  # the group of an owner's last tree
    for i, (found, owner) in enumerate(zip(signatures, owners, strict=True)):
        candidates = range(reached.get(owner, 0), len(groups))
        place = next((g for g in candidates if signatures[groups[g][0]] == found), len(groups))
        if place == len(groups):
            groups.append([])
        groups[place].append(i)
        reached[owner] = place
    return groups


def stack(trees: Sequence[Any]) -> Any:
    """Return one tree for n >= 1 trees of one `signature`; its leaves have shape (n, *S) and memory of their own."""
    first = trees[0]
    if type(first) is dict:
        return {key: stack([tree[key] for tree in trees]) for key in first}
    if _is_sequence(first):
        return _like(first, [stack(children) for children in zip(*trees, strict=True)])
    if first is None:
        return None
    if _is_tensor(first):
        import torch

        return torch.stack(list(trees))
    return np.stack(trees)


def split(tree: Any, n: int, path: str = "the result") -> list[Any]:
    """Return n trees, one for each entry of the first axis of all leaves; they share memory with the tree.

    Raises ParlError, which names the place below `path`, for a leaf without a first axis of length n.
    """
    _check_rows(tree, n, path)
    return [_map(tree, itemgetter(i)) for i in range(n)]


def _check_rows(tree: Any, n: int, path: str) -> None:
    if type(tree) is dict or _is_sequence(tree):
        for key, child in tree.items() if type(tree) is dict else enumerate(tree):
            _check_rows(child, n, f"{path}[{key!r}]")
    elif tree is not None:
        shape = tuple(tree.shape) if isinstance(tree, np.ndarray) or _is_tensor(tree) else None
        if not shape or shape[0] != n:
            seen = f"a {type(tree).__name__}" if shape is None else f"of shape {shape}"
            raise ParlError(f"{path} is {seen}, and must be an array or tensor whose first axis is the batch of {n}")


def _map(tree: Any, function: Callable[[Any], Any]) -> Any:
    if type(tree) is dict:
        return {key: _map(child, function) for key, child in tree.items()}
    if _is_sequence(tree):
        return _like(tree, [_map(child, function) for child in tree])
    return None if tree is None else function(tree)


def _is_sequence(tree: Any) -> bool:
    return type(tree) in (list, tuple) or (isinstance(tree, tuple) and hasattr(tree, "_fields"))


def _like(sequence: Any, children: list[Any]) -> Any:
    """Return a sequence of the same type with other children."""
    kind = type(sequence)
    return kind(*children) if hasattr(sequence, "_fields") else kind(children)


def _is_tensor(value: Any) -> bool:
    tensor = tensors.tensor_class()
    return tensor is not None and isinstance(value, tensor)
