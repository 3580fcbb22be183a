"""The code of a user's class: its functions, and their source text for tracebacks elsewhere. Knows no actors."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

_LARGEST_SOURCE = 1024 * 1024


def defined(cls: type, name: str) -> Any:
    """Return what the class or a base defines under a name, unbound; None where none does. Metaclasses do not count."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def functions_of(cls: type) -> Iterator[FunctionType]:
    """Yield the functions that a class itself defines, taken out of their decorators and properties."""
    found: list[Any]
    for value in vars(cls).values():
        match value:
            case staticmethod() | classmethod():
                found = [value.__func__]
            case property():
                found = [value.fget, value.fset, value.fdel]
            case functools.cached_property() | functools.partialmethod():
                found = [value.func]
            case _:
                found = [value]
        yield from filter(inspect.isfunction, (inspect.unwrap(one) for one in found if inspect.isroutine(one)))


def sources_of(cls: type) -> dict[str, str]:
    """Return {file name: text} of the code that a class and the rest of its module were made of, as far as it is known.

    A script, a notebook's cells: what a process that was sent the class by value has no file for.
    """
    files = {function.__code__.co_filename for function in _neighbours(cls)}
    found = {file: "".join(linecache.getlines(file)) for file in files}
    return {file: text for file, text in found.items() if 0 < len(text) <= _LARGEST_SOURCE}


def know_sources(sources: dict[str, str]) -> None:
    """Let tracebacks (and `inspect.getsource`) of this process find what `sources_of` returned elsewhere."""
    for file, text in sources.items():
        # without a modification time: `linecache.checkcache` then never looks for the file
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)


def _neighbours(cls: type) -> Iterator[FunctionType]:
    """Yield the functions of a class and its bases, and of all functions and classes of their modules."""
    for base in cls.__mro__:
        yield from functions_of(base)
    module = sys.modules.get(cls.__module__)
    for value in list(vars(module).values()) if module is not None else ():
        if isinstance(value, FunctionType | type) and value.__module__ == cls.__module__:
            yield from functions_of(value) if isinstance(value, type) else (value,)
