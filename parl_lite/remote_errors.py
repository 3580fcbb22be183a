"""Exceptions across processes: taken apart where they are raised, rebuilt where they arrive. Knows no socket.

An exception is never pickled as a whole: its constructor may not be replayable, it may hold a lock. It travels as plain
parts, so that a part that cannot travel costs only that part:

    kind               the class: by name if it is Python's own, else pickled
    args, attributes   each a Part: a plain value, or a pickle, or a note that it cannot be sent
    members            of an exception group, each an exception in parts
    chained            the __cause__ or, unless suppressed, the __context__
    text               the traceback, made where the source is

A receiver that takes no pickles (allow_pickle=False) still gets Python's own classes with their plain values.
"""

from __future__ import annotations

import builtins
import functools
import pickle
import traceback
from collections.abc import Iterator
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypedDict

from parl_lite import pickling
from parl_lite.errors import RemoteError

_DEEPEST = 8
"""So many exceptions of a chain travel, and so many levels of groups in groups."""
_PLAIN, _PICKLED, _LEFT_BEHIND = range(3)
_NEVER_SENT = frozenset(("args", "obj", "exceptions"))
"""Attributes of Python's own exceptions: sent otherwise, or (AttributeError.obj) the whole actor."""
_OWN_ATTRIBUTES = frozenset(("type_name", "remote_traceback", "_message", "_where"))
_ARGS: Any = vars(BaseException)["args"]  # a class of the user's may have something else under this name
_Group: Any = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.10 has none

Part = tuple[int, Any]
"""(_PLAIN, value), (_PICKLED, bytes) or (_LEFT_BEHIND, a text that stands for it)."""


class PackedError(TypedDict):
    """An exception in parts."""

    type_name: str
    message: str
    text: str
    kind: Part
    args: list[Part]
    attributes: dict[str, Part]
    members: list[PackedError]
    notes: list[str]
    chained: PackedError | None
    explicit: bool
    """Whether `chained` is the __cause__."""


# --- where it is raised ------------------------------------------------------------------------------------


def pack(error: BaseException) -> PackedError:
    """Take an exception apart; never raises, whatever the exception does when it is looked at."""
    text = _text_of(error)
    try:
        return _packed(error, text, 0)
    except Exception:
        return _bare(_full_name(type(error)), _message_of(error), text)


def _packed(error: BaseException, text: str, depth: int) -> PackedError:
    again = isinstance(error, RemoteError) and error._message is not None  # it came from another actor
    kind = _original_of(type(error))
    packed = _bare(error.type_name if again else _full_name(kind), _message_of(error), text)  # type: ignore[attr-defined]
    packed["kind"] = _kind_part(kind)
    packed["args"] = [_part(value) for value in _ARGS.__get__(error)]
    packed["attributes"] = {name: _part(value) for name, value in _attributes_of(error)}
    packed["notes"] = [str(note) for note in getattr(error, "__notes__", ())]
    if depth < _DEEPEST:
        if isinstance(error, _Group):
            packed["args"] = [_part(error.message)]
            packed["members"] = [_packed(member, "", depth + 1) for member in error.exceptions]
        chained = _chained(error)
        if chained is not None:
            packed["chained"] = _packed(chained, "", depth + 1)
            packed["explicit"] = error.__cause__ is not None
    return packed


def _bare(type_name: str, message: str, text: str) -> PackedError:
    return PackedError(
        type_name=type_name,
        message=message,
        text=text,
        kind=(_LEFT_BEHIND, type_name),
        args=[],
        attributes={},
        members=[],
        notes=[],
        chained=None,
        explicit=False,
    )


def _part(value: Any) -> Part:
    if pickling.is_plain(value):
        return _PLAIN, value
    try:
        data = pickling.dumps_by_value(value)
        pickle.loads(data)  # much that can be pickled fails only on the way back
    except Exception:
        return _LEFT_BEHIND, f"<{_full_name(type(value))}: cannot be sent>"
    return _PICKLED, data


def _kind_part(kind: type) -> Part:
    return (_PLAIN, kind.__name__) if getattr(builtins, kind.__name__, None) is kind else _part(kind)


def _attributes_of(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield what its __dict__ holds, and its slots and C fields (OSError.filename, UnicodeError.start) that are set."""
    for name, value in vars(error).items():
        if not name.startswith("__") and name not in _OWN_ATTRIBUTES:
            yield name, value
    for cls in type(error).__mro__:
        for name, field in vars(cls).items():
            is_field = isinstance(field, MemberDescriptorType | GetSetDescriptorType)
            if is_field and not name.startswith("__") and name not in _NEVER_SENT:
                value = getattr(error, name, None)
                if value is not None:
                    yield name, value


def _chained(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _text_of(error: BaseException) -> str:
    if error.__traceback__ is None and _chained(error) is None:
        return ""  # nothing beyond the message
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:
        return "".join(traceback.format_tb(error.__traceback__)) + _full_name(type(error))


def _message_of(error: BaseException) -> str:
    if isinstance(error, RemoteError) and error._message is not None:
        return error._message
    try:
        return str(error)
    except Exception as broken:
        return f"<its text cannot be made: {type(broken).__name__}>"


def _full_name(kind: type) -> str:
    plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"


# --- where it arrives --------------------------------------------------------------------------------------


def unpack(packed: PackedError, where: str, trusted: bool) -> RemoteError:
    """Rebuild an exception as a RemoteError that is, where possible, an instance of the original class too.

    Args:
        where: which actor raised it, for the message.
        trusted: whether pickles may be opened.
    """
    try:
        error = _instance(packed, where, trusted)
    except Exception:  # the class is not to be had here, or cannot be made without its constructor
        error = RemoteError(packed["message"])
    error.type_name = packed["type_name"]
    error.remote_traceback = packed["text"]
    error._message = packed["message"]
    error._where = where
    if packed["notes"]:
        error.__notes__ = list(packed["notes"])
    if packed["chained"] is not None:
        chained = unpack(packed["chained"], where, trusted)
        if packed["explicit"]:
            error.__cause__ = chained
        else:
            error.__context__ = chained
    return error


def _instance(packed: PackedError, where: str, trusted: bool) -> RemoteError:
    """Return an object of a class that is both; raises when there can be none."""
    kind = _kind(packed["kind"], trusted)
    args = [_value(part, trusted) for part in packed["args"]]
    attributes = {name: _value(part, trusted) for name, part in packed["attributes"].items()}
    if packed["members"]:
        args.append([unpack(member, where, trusted) for member in packed["members"]])
    return _rebuild(kind, args, attributes)


def _kind(part: Part, trusted: bool) -> Any:
    how, value = part
    return getattr(builtins, value) if how == _PLAIN else _value(part, trusted)


def _value(part: Part, trusted: bool) -> Any:
    how, value = part
    if how != _PICKLED:
        return value
    if not trusted:
        return "<a pickle, not opened: allow_pickle=False>"
    try:
        return pickle.loads(value)
    except Exception as error:
        return f"<cannot be read here: {type(error).__name__}: {error}>"


def _rebuild(kind: Any, args: list[Any], attributes: dict[str, Any]) -> RemoteError:
    """Make a RemoteError of an exception class without calling the class's own constructor. Named in pickles."""
    both = _both(kind)
    error = _made(both, args)
    _ARGS.__set__(error, tuple(args))
    for name, value in attributes.items():
        _restore(error, name, value)
    return error


def _made(both: type[RemoteError], args: list[Any]) -> RemoteError:
    for fitting in (args, ()):
        try:
            return both.__new__(both, *fitting)
        except Exception:
            continue  # a __new__ of the user's that wants something else
    return Exception.__new__(both)


def _restore(error: Exception, name: str, value: Any) -> None:
    field = next((vars(cls)[name] for cls in type(error).__mro__ if name in vars(cls)), None)
    try:
        if isinstance(field, MemberDescriptorType | GetSetDescriptorType):
            field.__set__(error, value)
        else:
            error.__dict__[name] = value
    except (AttributeError, TypeError):
        pass  # a field that is read-only, or of which Python says itself what it is


@functools.lru_cache(maxsize=256)
def _both(kind: Any) -> type[RemoteError]:
    """Return the class of RemoteErrors that are instances of `kind` too; raises TypeError where there can be none."""
    if not issubclass(kind, Exception):
        raise TypeError(f"{kind!r} is not a class of exceptions")
    body = {
        "__module__": RemoteError.__module__,
        "__doc__": kind.__doc__,
        "__reduce__": _reduced,
        "_parl_original": kind,
    }
    both: type[RemoteError] = kind if issubclass(kind, RemoteError) else type("RemoteError", (RemoteError, kind), body)
    return both


def _reduced(error: Any) -> Any:
    """How a RemoteError is pickled, for its class has no name to find it by."""
    args = list(_ARGS.__get__(error))
    if isinstance(error, _Group):
        args = [error.message, list(error.exceptions)]
    state = {name: getattr(error, name) for name in _OWN_ATTRIBUTES}
    return _rebuild, (error._parl_original, args, dict(_attributes_of(error))), state


def _original_of(kind: type) -> type:
    return getattr(kind, "_parl_original", kind)


__all__ = ["PackedError", "Part", "pack", "unpack"]
