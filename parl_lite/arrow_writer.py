"""Writes values as Arrow record batch messages: see arrow_codec.py for the layout. Knows no slots and no pickles."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from parl_lite import tensors
from parl_lite.arrow_codec import (
    MAX_DEPTH,
    MAX_LEAVES,
    MAX_SCHEMA_SIZE,
    METADATA_KEY,
    PREFIX,
    PYTHON_CODES,
    Bytes,
    Leaf,
    body_layout,
)
from parl_lite.columns import Array, NotArrow, check_dtype, join_path, make_field, to_column
from parl_lite.rollout import Rollout

Signature = tuple[object, ...]

_MAX_TOKENS = 4 * MAX_LEAVES
_COPIED = 4096  # a copy of so few bytes is cheaper than a view of them
_KEPT_LENGTHS = 64
_KEPT_WRITERS = 256

_STR = frozenset((str,))
_PACK_INT = struct.Struct(PYTHON_CODES["int"]).pack
_PACK_FLOAT = struct.Struct(PYTHON_CODES["float"]).pack


class Flattened:
    """A value taken apart: its signature, which with `leaves`, the bytes of each array and number, says all of it.

    Raises NotArrow for a value that cannot travel by Arrow, or that would lose something: an array met twice comes back
    as one array only by pickle, a tensor that requires grad keeps its flag only there.
    """

    __slots__ = ("_owners", "_signature", "leaves", "rows")

    def __init__(self, value: object) -> None:
        self._signature: list[object] = []
        self._owners: list[int] = []
        self.leaves: list[Bytes] = []
        self.rows = 1
        if type(value) is Rollout:
            self._add_rollout(value)
            return
        self._add(value, 0)
        if not 0 < len(self._owners) == len(set(self._owners)) or len(self.leaves) > MAX_LEAVES:
            raise NotArrow("no array, too many leaves, or one array twice")

    @property
    def signature(self) -> Signature:
        """Hashable; equal for two values exactly if one message head serves both."""
        return tuple(self._signature)

    def _add(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind is np.ndarray:
            self._owners.append(id(value))
            self._add_array(value.dtype, value)
        elif kind is dict:
            if not _STR.issuperset(map(type, value)):
                raise NotArrow("dict keys other than str")
            self._signature.append(tuple(value))
            self._add_all(value.values(), len(value), depth)
        elif kind is list or kind is tuple:
            self._signature += (kind, len(value))
            self._add_all(value, len(value), depth)
        else:
            _LEAVES.get(kind, _add_tensor)(self, value)

    def _add_all(self, values: Any, count: int, depth: int) -> None:
        if depth >= MAX_DEPTH or count > MAX_LEAVES or len(self._signature) > _MAX_TOKENS:
            raise NotArrow("too deep or too many leaves")
        for value in values:
            self._add(value, depth + 1)

    def _add_rollout(self, rollout: Rollout) -> None:
        """Add the columns; the signature says the shape of a row, and leaves open how many there are."""
        arrays = rollout.arrays
        if len(arrays) > MAX_LEAVES or any(path.count("/") >= MAX_DEPTH for path in arrays):
            raise NotArrow("too many columns, or nested too deeply")
        self.rows = len(rollout)
        self._signature.append(Rollout)
        for path, array in arrays.items():
            self._signature += (path, array.dtype, array.shape[1:])
            self.leaves.append(_bytes_of(array))

    def _add_array(self, dtype: object, array: Array) -> None:
        self._signature += (dtype, array.shape)
        self.leaves.append(_bytes_of(array))


def _bytes_of(array: Array) -> Bytes:
    """Return the array's bytes in C order, if they are many and lie so without a copy; raises NotArrow for objects."""
    if array.nbytes <= _COPIED:
        return array.tobytes()
    if array.dtype.hasobject:
        raise NotArrow("an array of objects")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _add_number(flat: Flattened, value: np.generic) -> None:
    flat._signature += (np.generic, value.dtype)
    flat.leaves.append(value.tobytes())


def _add_bool(flat: Flattened, value: bool) -> None:
    flat._signature.append(bool)
    flat.leaves.append(b"\1" if value else b"\0")


def _add_int(flat: Flattened, value: int) -> None:
    flat._signature.append(int)
    try:
        flat.leaves.append(_PACK_INT(value))
    except struct.error:
        raise NotArrow("a whole number of more than 64 bits") from None


def _add_float(flat: Flattened, value: float) -> None:
    flat._signature.append(float)
    flat.leaves.append(_PACK_FLOAT(value))


def _add_tensor(flat: Flattened, value: Any) -> None:
    """Add a tensor, or refuse whatever else has no entry in `_LEAVES`."""
    kind = type(value)
    if kind is not tensors.tensor_class():
        raise NotArrow(kind.__name__)
    try:
        array = tensors.as_array(value)
    except (TypeError, RuntimeError) as error:
        raise NotArrow("a tensor that numpy cannot see") from error
    flat._owners.append(value.data_ptr() or id(value))  # tied weights are two tensors over one memory
    flat._add_array(value.dtype, array)


_LEAVES: dict[type, Callable[[Flattened, Any], None]] = {
    **{kind: _add_number for kind in set(np.sctypeDict.values()) if not issubclass(kind, np.flexible | np.object_)},
    bool: _add_bool,
    int: _add_int,
    float: _add_float,
}


class MessageWriter:
    """Writes the messages of one signature. Made from the first value, of which it keeps no array.

    Raises NotArrow if a leaf's dtype, or the number of its entries, is beyond Arrow.
    """

    def __init__(self, value: object, flat: Flattened) -> None:
        described: list[tuple[str, Leaf]] = []
        if type(value) is Rollout:
            described += ((path, _leaf_of(array)._replace(shape=array.shape[1:])) for path, array in value.arrays.items())
            tree: object = {"rollout": dict(described)}
        else:
            tree = _describe(value, (), described)
        self._leaves = [leaf for _, leaf in described]
        fields = [make_field(path or "value", leaf.storage, leaf.shape) for path, leaf in described]
        self._schema = pa.schema(fields, metadata={METADATA_KEY: json.dumps(tree)})
        self.schema: bytes = self._schema.serialize().to_pybytes()
        """The schema as Arrow's IPC message."""
        if len(self.schema) > MAX_SCHEMA_SIZE:
            raise NotArrow("names too long for a schema")
        self._constant: dict[int, list[Bytes]] = {}  # by number of rows; threads may share it: each access is atomic
        self.parts(flat)  # refuses at once what Arrow cannot hold

    def parts(self, flat: Flattened) -> list[Bytes]:
        """Return the parts of the message of a value, to be joined: head, leaf, zeros, leaf, zeros, ..."""
        constant = self._constant.get(flat.rows)
        if constant is None:
            if len(self._constant) >= _KEPT_LENGTHS:
                self._constant.clear()
            constant = self._constant[flat.rows] = self._constant_parts(flat.leaves, flat.rows)
        parts = constant.copy()
        parts[1::2] = flat.leaves
        return parts

    def _constant_parts(self, leaves: Sequence[Bytes], rows: int) -> list[Bytes]:
        arrays = [np.ndarray((rows, *leaf.shape), leaf.storage, data) for data, leaf in zip(leaves, self._leaves, strict=True)]
        batch = pa.RecordBatch.from_arrays([to_column(array) for array in arrays], schema=self._schema)
        head = _message_head(batch, len(self.schema))
        offsets, size = body_layout(self._leaves, rows)
        if pa.ipc.get_record_batch_size(batch) != len(head) + size:
            raise NotArrow("this pyarrow lays out record batches in another way")
        ends = [*offsets[1:], size]
        pads = [bytes(end - start - len(leaf)) for start, end, leaf in zip(offsets, ends, leaves, strict=True)]
        return [head, *(part for pad in pads for part in (b"", pad))]


class WriterCache:
    """The writers of the signatures used last, shared by all connections of the process; thread-safe."""

    def __init__(self, size: int = _KEPT_WRITERS) -> None:
        self._size = size
        self._writers: OrderedDict[Signature, MessageWriter] = OrderedDict()
        self._lock = Lock()  # guards _writers

    def get(self, signature: Signature, value: object, flat: Flattened) -> MessageWriter:
        """Return the writer of a signature, made from the value if there is none; raises NotArrow."""
        with self._lock:
            writer = self._writers.get(signature)
            if writer is not None:
                self._writers.move_to_end(signature)
                return writer
        writer = MessageWriter(value, flat)
        with self._lock:
            self._writers[signature] = writer
            if len(self._writers) > self._size:
                self._writers.popitem(last=False)
        return writer


class _HeadSink:
    """A file that keeps the first bytes of each write: all of a message's metadata, none of a large body."""

    closed = False

    def __init__(self) -> None:
        self.kept = bytearray()

    def write(self, data: Any) -> int:
        self.kept += memoryview(data)[:MAX_SCHEMA_SIZE]
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _message_head(batch: pa.RecordBatch, start: int) -> bytes:
    """Return the part of the batch's IPC message before its body; the stream's schema takes `start` bytes."""
    sink = _HeadSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batch.schema) as stream:
        stream.write_batch(batch)
    _, length = PREFIX.unpack_from(sink.kept, start)
    return bytes(sink.kept[start : start + PREFIX.size + length])


def _describe(value: Any, names: tuple[str, ...], described: list[tuple[str, Leaf]]) -> object:
    """Return the node of a value for the schema's JSON; adds the path of each leaf, and the leaf, to `described`."""
    kind = type(value)
    if kind is dict:
        return {"dict": {name: _describe(child, (*names, name), described) for name, child in value.items()}}
    if kind is list or kind is tuple:
        children = [_describe(child, (*names, str(i)), described) for i, child in enumerate(value)]
        return {kind.__name__: children}
    leaf = _leaf_of(value)
    described.append((join_path(names), leaf))
    return leaf


def _leaf_of(value: Any) -> Leaf:
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        check_dtype(value.dtype)
    if kind is np.ndarray:
        return Leaf("array", value.dtype.str, value.shape)
    if isinstance(value, np.generic):
        return Leaf("scalar", value.dtype.str, ())
    if kind.__name__ in PYTHON_CODES:
        return Leaf(kind.__name__, "", ())
    name = tensors.dtype_name(value)
    if name not in tensors.STORAGE:
        raise NotArrow(f"torch dtype {name}")
    return Leaf("tensor", name, tuple(value.shape))
