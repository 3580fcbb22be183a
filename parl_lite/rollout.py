"""A rollout: named columns of T rows each, with Arrow as its form on the wire, on disk and in memory. Knows no sockets.

Knows nothing of what the columns mean; `agents` gives them their names and shapes.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from parl_lite import columns as arrow
from parl_lite.columns import Array, NotArrow

Scalar = str | int | float | bool

_METADATA_KEY = b"parl_lite.rollout"
_FEATHER = (".feather", ".arrow")
_SUFFIXES = "'.feather' or '.arrow' (loads without copying) or '.parquet' (compressed)"


class Rollout:
    """Columns of numpy arrays that share their first axis of T rows, and a few facts about them.

        Rollout({"obs": {"image": image, "speed": speed}, "reward": reward}, {"policy_version": 17})

    Reads like a mapping: `rollout["reward"]`, `rollout["obs"]["image"]`, `"reward" in rollout`, `dict(rollout)`; but
    `len(rollout)` is T. Columns cannot be added, taken away or replaced; the arrays themselves are not copied.
    """

    __slots__ = ("_arrays", "_columns", "_length", "_metadata")

    def __init__(self, columns: Mapping[str, Any], metadata: Mapping[str, Scalar] | None = None) -> None:
        """Take arrays of shape (T, ...), or what `np.asarray` makes one of, by name; nested dicts of them are allowed.

        Big-endian arrays become native. Raises ValueError where the first axes differ or there is no column at all,
        TypeError for names other than str, for dtypes that Arrow has no numbers for (objects, strings), and for
        metadata other than str, int, float or bool.
        """
        self._arrays = dict(_checked_columns(columns, ()))
        self._length = _common_length(self._arrays)
        self._columns = arrow.nest(self._arrays, self._arrays.values())
        self._metadata = {name: _checked_scalar(name, value) for name, value in (metadata or {}).items()}

    @property
    def columns(self) -> dict[str, Any]:
        """The columns as a new (nested) dict of arrays (T, ...)."""
        return _copy_dicts(self._columns)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays (T, ...) by path, such as "obs/image": a new flat dict."""
        return dict(self._arrays)

    @property
    def metadata(self) -> dict[str, Scalar]:
        """The facts given with the columns, as a new dict."""
        return dict(self._metadata)

    def __getitem__(self, name: str) -> Any:
        column = self._columns[name]
        return _copy_dicts(column) if type(column) is dict else column

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def keys(self) -> Iterable[str]:
        """Return the names of the columns."""
        return self._columns.keys()

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        shapes = ", ".join(f"{path}: {array.dtype}{list(array.shape)}" for path, array in self._arrays.items())
        return f"<Rollout of {self._length} rows, {shapes}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._columns, self._metadata)

    @classmethod
    def concatenate(cls, rollouts: Iterable[Rollout]) -> Rollout:
        """Return one rollout with the rows of all, in order, copied; keeps the metadata in which all agree.

        Raises ValueError for no rollouts, or for rollouts whose columns or shapes of a row differ.
        """
        rollouts = list(rollouts)
        if not rollouts:
            raise ValueError("no rollouts to concatenate")
        first = rollouts[0]
        for other in rollouts[1:]:
            if other._arrays.keys() != first._arrays.keys():
                raise ValueError(f"rollouts have other columns: {list(first._arrays)} and {list(other._arrays)}")
        arrays = [np.concatenate([rollout._arrays[path] for rollout in rollouts]) for path in first._arrays]
        shared = {
            name: value
            for name, value in first._metadata.items()
            if all(name in other._metadata and other._metadata[name] == value for other in rollouts)
        }
        return cls(arrow.nest(first._arrays, arrays), shared)

    def to_arrow(self) -> pa.Table:
        """Return the columns as a table of T rows over the same memory, named by path ("obs/image").

        Non-contiguous arrays are copied. The table has one batch, or several where Arrow's limit of 2^31 - 1 numbers
        in a column of tensors asks for it. Raises ValueError for a single row beyond it.
        """
        arrays = {path: np.require(array, requirements="C") for path, array in self._arrays.items()}
        rows = _rows_per_batch(arrays.values())
        schema = pa.schema(
            [arrow.make_field(path, array.dtype, array.shape[1:]) for path, array in arrays.items()],
            metadata={_METADATA_KEY: json.dumps(self._metadata)},
        )
        starts = range(0, self._length, rows) if self._length else (0,)
        return pa.Table.from_batches([_batch(arrays, schema, start, start + rows) for start in starts], schema)

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> Rollout:
        """Return the rollout of a table or batch, from `to_arrow` or elsewhere; "a/b" becomes {"a": {"b": ...}}.

        The arrays are read-only views of Arrow's memory where it has them in one piece, else copies. Columns are
        numbers, booleans, timestamps, durations, or lists and tensors of them of one shape; raises ValueError for
        others and for nulls.
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        arrays = [_from_chunks(field, table.column(i)) for i, field in enumerate(table.schema)]
        metadata = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, "{}"))
        return cls(arrow.nest(table.schema.names, arrays), metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rollout to a file: ".feather" or ".arrow" (Arrow IPC, uncompressed), or ".parquet".

        The file appears at once and whole: it is written beside its place and renamed. Raises ValueError for another
        suffix, and for Parquet with rows of no numbers (shape (T, 0)), which Parquet cannot hold.
        """
        path = Path(path)
        write = _writer_for(path, self._arrays)
        table = self.to_arrow()
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            write(table, temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Rollout:
        """Read a rollout that `save` wrote, or any Arrow IPC file or stream.

        ".feather" and ".arrow" files are mapped into memory: nothing is read until it is used, and the arrays are
        read-only views of the file (copy one to change it). Files of several batches are copied.
        """
        path = Path(path)
        if path.suffix == ".parquet":
            return cls.from_arrow(_parquet().read_table(path))
        if path.suffix not in _FEATHER:
            raise ValueError(f"cannot tell the format of {path.name!r}; name it {_SUFFIXES}")
        with pa.memory_map(str(path)) as mapped:
            is_file = mapped.read(6) == b"ARROW1"
            mapped.seek(0)
            reader = pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)
            return cls.from_arrow(reader.read_all())


def _checked_columns(columns: Mapping[str, Any], outer: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Yield (path, array) of all columns, nested ones too."""
    for name, value in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"a column is named {name!r}; names are strings")
        names = (*outer, str(name))
        path = arrow.join_path(names)
        if not isinstance(value, Mapping):
            yield path, _checked_array(path, value)
        elif value:
            yield from _checked_columns(value, names)
        else:
            raise ValueError(f"column {path!r} is an empty dict; leave it out")


def _checked_array(path: str, value: Any) -> Array:
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        arrow.check_dtype(array.dtype)
    except NotArrow:
        raise TypeError(f"column {path!r} has dtype {array.dtype}; a rollout holds numbers, booleans and times") from None
    return array


def _common_length(arrays: Mapping[str, Array]) -> int:
    if not arrays:
        raise ValueError("a rollout needs at least one column")
    lengths: set[tuple[int, ...]] = {array.shape[:1] for array in arrays.values()}
    if len(lengths) != 1 or () in lengths:
        shapes = {path: array.shape for path, array in arrays.items()}
        raise ValueError(f"all columns of a rollout need the same first axis (T); their shapes are {shapes}")
    (length,) = lengths.pop()
    return length


def _checked_scalar(name: str, value: Any) -> Scalar:
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) not in (str, int, float, bool) or not isinstance(name, str):
        raise TypeError(f"metadata {name!r} is {value!r}; metadata are str, int, float or bool by name")
    return value  # type: ignore[no-any-return]


def _copy_dicts(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: _copy_dicts(value) if type(value) is dict else value for name, value in tree.items()}


def _rows_per_batch(arrays: Iterable[Array]) -> int:
    """Return how many rows one batch may have; raises ValueError if not even one."""
    numbers: int = max(math.prod(array.shape[1:]) * (2 if array.dtype.kind == "c" else 1) for array in arrays)
    if numbers > arrow.MAX_CHILD_VALUES:
        raise ValueError(f"a row of {numbers} numbers is beyond Arrow's limit of {arrow.MAX_CHILD_VALUES}")
    return arrow.MAX_CHILD_VALUES // max(numbers, 1)


def _batch(arrays: Mapping[str, Array], schema: pa.Schema, start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([arrow.to_column(array[start:stop]) for array in arrays.values()], schema=schema)


def _from_chunks(field: pa.Field, column: pa.ChunkedArray) -> Array:
    if column.num_chunks == 0:
        return arrow.from_column(field, pa.nulls(0, field.type))
    arrays = [arrow.from_column(field, chunk) for chunk in column.chunks]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _writer_for(path: Path, arrays: Mapping[str, Array]) -> Callable[[pa.Table, Path], None]:
    if path.suffix in _FEATHER:
        return _write_ipc
    if path.suffix != ".parquet":
        raise ValueError(f"cannot tell the format of {path.name!r}; name it {_SUFFIXES}")
    for name, array in arrays.items():
        if 0 in array.shape[1:]:
            raise ValueError(f"Parquet cannot hold column {name!r} of shape {array.shape}; save as '.arrow'")
    return _parquet().write_table  # type: ignore[no-any-return]


def _write_ipc(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def _parquet() -> Any:
    """Import Parquet for those who use it: it costs 10 ms at the start of every process, and 10 MB."""
    import pyarrow.parquet

    return pyarrow.parquet
