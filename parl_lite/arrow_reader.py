"""Reads Arrow record batch messages that anyone may have sent: see arrow_codec.py for the layout. Trusts nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from parl_lite import tensors
from parl_lite.arrow_codec import (
    CONTINUATION,
    MAX_DEPTH,
    MAX_DIMENSIONS,
    MAX_LEAVES,
    MAX_SCHEMA_SIZE,
    METADATA_KEY,
    PREFIX,
    PYTHON_CODES,
    Bytes,
    Leaf,
    body_layout,
)
from parl_lite.columns import nest


class MessageReader:
    """Reads the messages of one schema. Believes nothing: a schema or message that makes no sense raises ValueError."""

    def __init__(self, schema: Bytes) -> None:
        self.schema = schema
        if len(schema) > MAX_SCHEMA_SIZE:
            raise ValueError(f"a schema of {len(schema)} bytes")
        metadata = pa.ipc.read_schema(pa.py_buffer(bytes(schema))).metadata or {}
        tree = json.loads(metadata[METADATA_KEY])
        self.is_rollout = type(tree) is dict and list(tree) == ["rollout"]
        if self.is_rollout:
            tree = _as_dicts(nest(tree["rollout"], tree["rollout"].values()))
        self._leaves: list[Leaf] = []
        self._build = _compile(tree, self._leaves, 0)
        if not 0 < len(self._leaves) <= MAX_LEAVES:
            raise ValueError(f"a value of {len(self._leaves)} leaves")
        self._rows = -1
        self._readers: list[tuple[Callable[[Bytes, int], object], int]] = []
        self._size = 0

    def read(self, data: Bytes, start: int, rows: int) -> Any:
        """Return the value of the message that begins at `start` and ends with `data`, which must be writable.

        The arrays are views of `data`. For a rollout the value is the nested dict of its columns, (rows, ...) each.
        """
        if rows != self._rows:
            self._arrange(rows, len(data))
        body = len(data) - self._size
        if body < start + PREFIX.size or PREFIX.unpack_from(data, start) != (CONTINUATION, body - start - PREFIX.size):
            raise ValueError("a message whose length does not fit its schema")
        return self._build(iter([read(data, body + offset) for read, offset in self._readers]))

    def _arrange(self, rows: int, available: int) -> None:
        """Prepare for messages of so many rows."""
        if rows != 1 and not self.is_rollout:
            raise ValueError(f"{rows} rows in the message of a value that is no rollout")
        offsets, size = body_layout(self._leaves, rows)
        if size > available:
            raise ValueError(f"a message of {available} bytes for {size} bytes of numbers")
        outer = (rows,) if self.is_rollout else ()
        readers = [_leaf_reader(leaf, (*outer, *leaf.shape)) for leaf in self._leaves]
        self._readers = list(zip(readers, offsets, strict=True))
        self._rows, self._size = rows, size


def _as_dicts(tree: Any) -> object:
    """Return a nested dict of leaves as nodes."""
    return {"dict": {name: _as_dicts(child) for name, child in tree.items()}} if type(tree) is dict else tree


def _compile(node: Any, leaves: list[Leaf], depth: int) -> Callable[[Iterator[object]], object]:
    """Return the function that builds a value from its leaves in order; adds the leaves it needs to `leaves`."""
    if depth > MAX_DEPTH:
        raise ValueError("a value nested too deeply")
    match node:
        case [str(kind), str(dtype), list(shape)]:
            leaves.append(_checked_leaf(kind, dtype, shape))
            return next
        case {"dict": dict(children)} if len(node) == 1:
            pairs = [(name, _compile(child, leaves, depth + 1)) for name, child in children.items()]
            return lambda values: {name: build(values) for name, build in pairs}
        case {"list": list(children)} if len(node) == 1:
            builders = [_compile(child, leaves, depth + 1) for child in children]
            return lambda values: [build(values) for build in builders]
        case {"tuple": list(children)} if len(node) == 1:
            builders = [_compile(child, leaves, depth + 1) for child in children]
            return lambda values: tuple([build(values) for build in builders])
    raise ValueError(f"a schema with the node {str(node)[:80]}")


def _checked_leaf(kind: str, dtype: str, shape: list[Any]) -> Leaf:
    leaf = Leaf(kind, dtype, tuple(shape))
    if len(shape) > MAX_DIMENSIONS or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"a schema with the shape {str(shape)[:80]}")
    if shape and kind not in ("array", "tensor"):
        raise ValueError(f"a schema with a {kind} of {len(shape)} dimensions")
    try:
        leaf.storage  # noqa: B018
    except (KeyError, TypeError):
        raise ValueError(f"a schema with a leaf of kind {kind[:20]!r} and dtype {dtype[:20]!r}") from None
    return leaf


def _leaf_reader(leaf: Leaf, shape: tuple[int, ...]) -> Callable[[Bytes, int], object]:
    """Return the function that reads a leaf from a buffer at an offset."""
    storage = leaf.storage
    if leaf.kind == "array":
        return lambda data, offset: np.ndarray(shape, storage, data, offset)
    if leaf.kind == "tensor":
        name = leaf.dtype
        return lambda data, offset: tensors.from_array(np.ndarray(shape, storage, data, offset), name)
    if leaf.kind == "scalar":
        return lambda data, offset: np.ndarray((), storage, data, offset)[()]
    unpack = struct.Struct(PYTHON_CODES[leaf.kind]).unpack_from
    return lambda data, offset: unpack(data, offset)[0]
