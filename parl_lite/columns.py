"""One numpy array as one Arrow column, and back, without copying. Knows nothing of messages, trees or torch.

An array of shape (rows, *item) is a column with a row for each entry of its first axis:

    item shape   Arrow type of the column
    ()           the number type; bool as `arrow.bool8`
    (a, b, ...)  `arrow.fixed_shape_tensor`; bool as uint8

Arrow has no twin of some dtypes: complex numbers are pairs of floats along a last axis, datetime64 and timedelta64 are
int64. The field's metadata then keeps numpy's name of the dtype under `parl_lite.dtype`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]

MAX_CHILD_VALUES = 2**31 - 1
"""Arrow counts the numbers below one column of tensors in 32 bits."""

DTYPE_KEY = b"parl_lite.dtype"

_VALUE_TYPES: dict[np.dtype[Any], pa.DataType] = {
    np.dtype(name): pa.from_numpy_dtype(name) for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}

_DTYPE_NAME = re.compile(r"[<>|=]?[A-Za-z?][0-9]{0,2}(\[[0-9A-Za-z/]{1,12}\])?")


class NotArrow(TypeError):
    """A value has no Arrow twin here; it travels by pickle."""


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Raise NotArrow for a dtype that no column can hold: objects, strings, structures, big-endian numbers, ..."""
    if not dtype.isnative or not (dtype in _VALUE_TYPES or dtype.kind in "bmM" or dtype.char in "FD"):
        raise NotArrow(f"dtype {dtype}")


@lru_cache(maxsize=256)
def checked_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype of that name; raises NotArrow like `check_dtype`, TypeError for no dtype's name."""
    if not _DTYPE_NAME.fullmatch(text):  # np.dtype would evaluate it as Python
        raise NotArrow(f"dtype {text[:20]!r}")
    dtype = np.dtype(text)
    check_dtype(dtype)
    return dtype


def make_field(name: str, dtype: np.dtype[Any], item: tuple[int, ...]) -> pa.Field:
    """Return the Arrow field of a column whose rows have dtype `dtype` and shape `item`; raises NotArrow."""
    values, item = _values(dtype, item)
    implied = dtype in _VALUE_TYPES or (dtype.kind == "b" and not item)
    metadata = None if implied else {DTYPE_KEY: dtype.str}
    try:
        return pa.field(name, _column_type(values, item, dtype), nullable=False, metadata=metadata)
    except UnicodeEncodeError:
        raise NotArrow(f"the name {name!r} is no text") from None


def to_column(array: Array) -> pa.Array:
    """Return the Arrow array over the memory of `array` (rows, *item), which must be C-contiguous; raises NotArrow."""
    rows, item = len(array), array.shape[1:]
    values, item = _values(array.dtype, item)
    numbers = pa.py_buffer(array.reshape(-1).view(np.uint8)) if array.size else pa.py_buffer(b"")
    column_type = _column_type(values, item, array.dtype)
    if not item:
        storage = pa.Array.from_buffers(values, rows, [None, numbers])
    else:
        size = math.prod(item)
        if rows * size > MAX_CHILD_VALUES:
            raise NotArrow(f"a column of {rows * size} numbers")
        children = [pa.Array.from_buffers(values, rows * size, [None, numbers])]
        # Not FixedSizeListArray.from_arrays: it ends the process (SIGFPE) for lists of length 0.
        storage = pa.Array.from_buffers(pa.list_(values, size), rows, [None], children=children)
    if isinstance(column_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column_type, storage)
    return storage


def from_column(field: pa.Field, column: pa.Array) -> Array:
    """Return the column as an array (rows, *item): a read-only view where Arrow's memory allows, else a copy.

    Raises ValueError for missing entries (nulls) and for types that have no fixed shape, such as strings and lists.
    """
    if isinstance(column.type, pa.FixedShapeTensorType) and column.type.permutation is not None:
        return np.asarray(column.to_numpy_ndarray())
    values, item = _flat_values(column)
    if column.null_count or values.null_count:
        raise ValueError(f"column {field.name!r} has missing entries (nulls); fill or drop them first")
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind not in "biufmM":
        raise ValueError(f"column {field.name!r} of type {field.type} holds no numbers of a fixed shape")
    dtype = _kept_dtype(field) or numbers.dtype
    if dtype.kind == "c":
        item = item[:-1]
    if 0 in item:
        return np.empty((len(column), *item), dtype)
    return numbers.view(dtype).reshape(len(column), *item)  # type: ignore[no-any-return]


def join_path(names: Iterable[str]) -> str:
    """Return the names of nested dicts as one column name, as JSON pointers do: ("obs", "a/b") gives "obs/a~1b"."""
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in names)


def split_path(path: str) -> list[str]:
    """Return the names that `join_path` joined."""
    names = path.split("/")
    return [name.replace("~1", "/").replace("~0", "~") for name in names] if "~" in path else names


def nest(paths: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """Return the nested dict with `values` at `paths`; raises ValueError where two clash."""
    tree: dict[str, Any] = {}
    for path, value in zip(paths, values, strict=True):
        *outer, last = split_path(path)
        node = tree
        for name in outer:
            node = node.setdefault(name, {})
            if type(node) is not dict:
                raise ValueError(f"column {path!r} lies below another column")
        if last in node:
            raise ValueError(f"two columns share the name {path!r}")
        node[last] = value
    return tree


def _values(dtype: np.dtype[Any], item: tuple[int, ...]) -> tuple[pa.DataType, tuple[int, ...]]:
    """Return the Arrow type of the numbers and the item shape counted in them."""
    if dtype.kind == "b":
        return (pa.uint8() if item else pa.int8()), item
    if dtype.kind in "mM":
        return pa.int64(), item
    if dtype.kind == "c":
        return (pa.float32() if dtype.char == "F" else pa.float64()), (*item, 2)
    return _VALUE_TYPES[dtype], item


def _column_type(values: pa.DataType, item: tuple[int, ...], dtype: np.dtype[Any]) -> pa.DataType:
    if math.prod(item) > MAX_CHILD_VALUES:
        raise NotArrow(f"a row of {math.prod(item)} numbers")
    if item:
        return pa.fixed_shape_tensor(values, item)
    return pa.bool8() if dtype.kind == "b" else values


def _flat_values(column: pa.Array) -> tuple[pa.Array, tuple[int, ...]]:
    """Return the numbers below a column, and the shape they have in each row."""
    item = tuple(column.type.shape) if isinstance(column.type, pa.FixedShapeTensorType) else ()
    values = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    sizes: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(values.type):
        sizes += (values.type.list_size,)
        values = values.flatten()
    return values, item or sizes


def _kept_dtype(field: pa.Field) -> np.dtype[Any] | None:
    """Return the dtype that `make_field` was given where the Arrow type does not say it."""
    kept = (field.metadata or {}).get(DTYPE_KEY)
    if kept is not None:
        return checked_dtype(kept.decode())
    return np.dtype(bool) if isinstance(field.type, pa.Bool8Type) else None
