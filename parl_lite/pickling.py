"""Pickle protocol 5 with the numbers of arrays and tensors beside the pickle. Knows no Arrow and no wire.

    is_plain(value)       numbers, text and small containers of them: plain `pickle.dumps` says all there is to say
    dump(value)           anything: by reference what the receiver can import, else (classes of `__main__`, lambdas,
                          classes made in a function) by value with cloudpickle

`pickle.loads` is the inverse; given writable buffers it returns writable arrays, whatever they were. A tensor met
twice, or two tensors over one memory (tied weights), come back tied.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pickle import PickleBuffer
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakSet

import cloudpickle
import numpy as np

from parl_lite import tensors
from parl_lite.errors import SerializationError

Bytes = bytes | bytearray | memoryview
Reducers = Mapping[type, Callable[[Any], Any]]
"""How objects of a class are pickled: what __reduce__ would return."""
_finished: WeakSet[type] = WeakSet()
"""Classes that travel by value and exist here in full."""

Array = np.ndarray[Any, Any]

PROTOCOL = 5

_IN_BAND = 2048  # so few bytes are cheaper inside the pickle
_PLAIN = frozenset((type(None), bool, int, float, complex, str))
_LARGE = 64 * 1024  # bytes objects from here on are not copied by a pickler that writes to a file
_PLAIN_SIZE = 32
_PLAIN_DEPTH = 3

_ADVICE = (
    "send data (numbers, text, arrays, containers of them), "
    "and make what belongs to one process (locks, open files, sockets, generators) inside the actor"
)


def is_plain(value: Any, depth: int = _PLAIN_DEPTH) -> bool:
    """Return whether the value is of the most common kind: None, numbers, text, and small containers of them.

    Decides by exact type within a bounded time; False promises nothing.
    """
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is bytes:
        return len(value) < _LARGE
    if kind is not tuple and kind is not dict and kind is not list:
        return False
    if not value:
        return True
    if len(value) > _PLAIN_SIZE or not depth:
        return False
    for child in value.values() if kind is dict else value:  # a loop: all() and a generator cost twice as much
        if type(child) not in _PLAIN and not is_plain(child, depth - 1):
            return False
    return kind is not dict or _PLAIN.issuperset(map(type, value))


def dump(value: object, what: str = "the value", reducers: Reducers | None = None) -> tuple[list[Bytes], list[memoryview]]:
    """Return the pickle of a value, in parts, and the memory beside it. Both share memory with the value: copy at once.

    Args:
        reducers: how objects of some classes are pickled; a value may be pickled twice.

    Raises SerializationError, which begins with `what`, for what cannot travel: locks, generators, open files, CUDA
    tensors, structures nested too deeply, ...; its __cause__ is the original error.
    """
    try:
        return _dump(_ReferencePickler, value, reducers or {})
    except (SerializationError, RecursionError, MemoryError) as error:
        raise _refusal(what, error) from error
    except Exception:
        pass  # cloudpickle may know better, whatever it was
    try:
        return _dump(_ValuePickler, value, reducers or {})
    except Exception as error:
        raise _refusal(what, error) from error


def dumps_by_value(value: object, what: str = "the value") -> bytes:
    """Return the pickle of a value, with all that the receiver may lack (classes and functions of `__main__`) inside.

    `pickle.loads` reads it. Raises SerializationError like `dump`.
    """
    parts = _Parts()
    try:
        _ValuePickler(parts, lambda buffer: True, {}).dump(value)
    except Exception as error:
        raise _refusal(what, error) from error
    return b"".join(parts.written)


def rebuild_array(data: Bytes, dtype: str | np.dtype[Any], shape: tuple[int, ...], order: Any) -> Array:
    """Return the writable array over `data`, or over a copy where that is read-only or misaligned. Named in pickles.

    Within `readonly` it is read-only where `data` is.
    """
    array: Array = np.ndarray(shape, dtype, data, order=order)
    kept = array.flags.writeable or _reading.readonly
    return array if kept and array.flags.aligned else array.copy(order)


def rebuild_tensor(array: Array, dtype: str, requires_grad: bool) -> Any:
    """Return the tensor over the memory of `array`. Named in pickles."""
    return tensors.from_array(array, dtype).requires_grad_(requires_grad)


def rebuild_code(make: Callable[..., CodeType], args: tuple[Any, ...], file: str) -> CodeType:
    """Return the code with the name of its file, which cloudpickle leaves out and tracebacks show. Named in pickles."""
    return make(*args).replace(co_filename=file)


def finish_class(cls: type, setting: tuple[Callable[[type, Any], object], Any]) -> None:
    """Give a class that was just made its methods; one that was here before stays as it is. Named in pickles.

    cloudpickle would set them anew with every object of the class that comes back: methods with globals of their own,
    class attributes as they are elsewhere.
    """
    if cls not in _finished:
        set_state, state = setting
        set_state(cls, state)
        _finished.add(cls)


class _Reading(threading.local):
    readonly = False


_reading = _Reading()


@contextmanager
def readonly() -> Iterator[None]:
    """Let arrays that are unpickled here in read-only memory stay there."""
    before, _reading.readonly = _reading.readonly, True
    try:
        yield
    finally:
        _reading.readonly = before


class _TravelsByValue(Exception):
    """A class or function was met which the receiver cannot import."""


class _DataReducer:
    """How arrays and tensors are pickled: by `rebuild_array` and `rebuild_tensor`, their bytes in a PickleBuffer."""

    def __init__(self, reducers: Reducers) -> None:
        self._reducers = reducers
        self._tensor_class = tensors.tensor_class()
        self._memories: dict[object, Array] = {}

    def reduce(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return self._reduce_array(value)
        if kind is self._tensor_class:
            return self._reduce_tensor(value)
        special = self._reducers.get(kind)
        return NotImplemented if special is None else special(value)

    def _reduce_array(self, array: Array) -> Any:
        dtype = array.dtype
        if dtype.hasobject or not dtype.itemsize:
            return NotImplemented
        order = "F" if array.flags.fnc else "C"
        flat = np.ascontiguousarray(array.T if order == "F" else array).reshape(-1).view(np.uint8)
        plain = dtype.kind in "biufcmMSU" and dtype.isbuiltin != 2 and dtype.metadata is None
        return rebuild_array, (PickleBuffer(flat.data), dtype.str if plain else dtype, array.shape, order)

    def _reduce_tensor(self, tensor: Any) -> Any:
        tensors.refuse_unsendable(tensor)
        try:
            array = tensors.as_array(tensor.detach())
        except (TypeError, RuntimeError):
            return NotImplemented  # sparse, quantized, conjugated: as torch itself does it
        name = tensors.dtype_name(tensor)
        if name not in tensors.STORAGE:
            return NotImplemented
        # Tied weights are two tensors over one memory: the pickler's memo knows one array when it meets it again.
        memory = (tensor.data_ptr(), name, tuple(tensor.shape), tensor.stride())
        array = self._memories.setdefault(memory, array)
        return rebuild_tensor, (array, name, tensor.requires_grad)


class _ReferencePickler(pickle.Pickler):
    """Pickles classes and functions by reference; raises _TravelsByValue where the receiver could not follow it."""

    def __init__(self, file: _Parts, keep: Callable[[PickleBuffer], bool], reducers: Reducers) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=keep)
        self._data = _DataReducer(reducers)
        self._by_value = {"__main__", *cloudpickle.list_registry_pickle_by_value()}

    def reducer_override(self, value: Any) -> Any:
        if (isinstance(value, type) or type(value) is FunctionType) and value.__module__ in self._by_value:
            raise _TravelsByValue
        return self._data.reduce(value)


class _ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, with our way of arrays and tensors."""

    def __init__(self, file: _Parts, keep: Callable[[PickleBuffer], bool], reducers: Reducers) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=keep)
        self._data = _DataReducer(reducers)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, io.TextIOWrapper) and value not in (sys.stdout, sys.stderr):
            raise TypeError("cannot pickle an open file")  # cloudpickle would send its text as a StringIO
        if type(value) is CodeType:
            return rebuild_code, (*self.dispatch_table[CodeType](value), value.co_filename)
        reduced = self._data.reduce(value)
        if reduced is NotImplemented:
            reduced = super().reducer_override(value)
        if isinstance(value, type) and type(reduced) is tuple and len(reduced) == 6:  # a class by value, with its state
            _finished.add(value)
            maker, args, state, _, _, set_state = reduced
            return maker, args, (set_state, state), None, None, finish_class
        return reduced


class _Parts:
    """A file that keeps what is written to it. A pickler writes large bytes objects as they are."""

    def __init__(self) -> None:
        self.written: list[Bytes] = []

    def write(self, data: Bytes) -> None:
        # A memoryview here is over memory that nobody holds once the pickler is gone.
        self.written.append(bytes(data) if type(data) is memoryview else data)


def _dump(
    pickler_class: type[_ReferencePickler | _ValuePickler], value: object, reducers: Reducers
) -> tuple[list[Bytes], list[memoryview]]:
    buffers: list[memoryview] = []

    def keep(buffer: PickleBuffer) -> bool:
        """Return whether the buffer goes into the pickle."""
        view = buffer.raw()
        if view.nbytes < _IN_BAND:
            return True
        buffers.append(view)
        return False

    parts = _Parts()
    pickler_class(parts, keep, reducers).dump(value)
    return parts.written, buffers


def _refusal(what: str, error: BaseException) -> SerializationError:
    reason = str(error) or type(error).__name__
    if isinstance(error, RecursionError):
        reason += "; it is nested too deeply, send it in parts"
    elif not isinstance(error, SerializationError | MemoryError):
        reason += f"; {_ADVICE}"
    return SerializationError(f"{what} cannot be sent: {reason}")
