"""Exceptions across processes: taken apart where they are raised, rebuilt as RemoteError where they arrive. Knows no socket.

An exception is never pickled as a whole: its constructor may not be replayable, it may hold a lock. It travels as plain parts, each
pickled by itself, so that one part that cannot travel costs only that part.
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any, TypedDict

import cloudpickle

from parl_lite.errors import RemoteError

_DEEPEST_CAUSE = 8


class PackedError(TypedDict):
    """An exception in plain parts; `args` and `state` hold pickles, None where a part could not be pickled."""

    type_name: str
    message: str
    text: str
    kind: bytes | None
    args: list[bytes | None]
    state: dict[str, bytes]
    notes: list[str]
    cause: PackedError | None


def pack(error: BaseException, depth: int = 0) -> PackedError:
    """Take an exception apart, with its cause and its traceback as text."""
    kind = type(error)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return PackedError(
        type_name=_full_name(kind),
        message=_message_of(error),
        text="".join(traceback.format_exception(kind, error, error.__traceback__)) if depth == 0 else "",
        kind=_pickled(kind),
        args=[_pickled(value) for value in error.args],
        state={name: data for name, value in vars(error).items() if (data := _pickled(value)) is not None},
        notes=[str(note) for note in getattr(error, "__notes__", ())],
        cause=pack(cause, depth + 1) if cause is not None and depth < _DEEPEST_CAUSE else None,
    )


def unpack(packed: PackedError, where: str, trusted: bool) -> RemoteError:
    """Rebuild an exception as a RemoteError that is, where possible, an instance of the original class too.

    Args:
        where: which actor raised it, for the message.
        trusted: whether pickles may be opened; without, only texts are used.
    """
    error = _instance(packed) if trusted else None
    if error is None:
        error = RemoteError(packed["message"])
    error.type_name = packed["type_name"]
    error.remote_traceback = packed["text"]
    error._message = packed["message"]  # type: ignore[attr-defined]
    error._where = where  # type: ignore[attr-defined]
    if packed["notes"]:
        error.__notes__ = list(packed["notes"])
    if packed["cause"] is not None:
        error.__cause__ = unpack(packed["cause"], where, trusted)
    return error


def _instance(packed: PackedError) -> RemoteError | None:
    """Return an object of a class that is both, made without its constructor; None when the class does not allow it."""
    try:
        kind = pickle.loads(packed["kind"] or b"")
        if not issubclass(kind, Exception):
            return None
        both = _both(kind)
        args = [pickle.loads(data) if data is not None else "<cannot travel>" for data in packed["args"]]
        try:
            error = both.__new__(both, *args)
        except TypeError:
            error = both.__new__(both)
        error.args = tuple(args)
        for name, data in packed["state"].items():
            if not name.startswith("__"):
                error.__dict__[name] = pickle.loads(data)
    except Exception:
        return None
    return error


def _both(kind: type[Exception]) -> type[RemoteError]:
    if issubclass(kind, RemoteError):
        return kind
    return type(kind.__name__, (RemoteError, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def _pickled(value: Any) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps(value)
        pickle.loads(data)  # many exceptions only fail on the way back
    except Exception:
        return None
    return data


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<its text cannot be made: {broken!r}>"


def _full_name(kind: type) -> str:
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
