"""@remote_class: a class whose objects live in processes of their own. Knows how actors are created, not where.

A decorated class is used like the class itself. Calling it creates an actor and returns its proxy (see proxy.py, also
for what a proxy does with a name). In the process of an actor, and only there, the name of its class means the plain
class, so that `super(B, self)`, `Base.__init__(self)` and `B(...)` in its methods are what they are in plain Python.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import CellType
from typing import Any, TypeVar, Union, overload

import cloudpickle

from parl_lite.class_code import functions_of
from parl_lite.creation import create
from parl_lite.messages import Needs
from parl_lite.proxy import Proxy, methods_of, proxy_class_for

ClassT = TypeVar("ClassT", bound=type)

_MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Options:
    """How the actors of a class run; see `remote_class`."""

    wait: bool = True
    n_cpu: int = 1
    n_gpu: int = 0
    max_memory: int | None = None
    max_restarts: int = 0

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError that names the argument."""
        if not isinstance(self.wait, bool):
            raise TypeError(f"remote_class: wait is {self.wait!r}, it must be True or False.")
        for name, least in (("n_cpu", 1), ("n_gpu", 0), ("max_memory", 1), ("max_restarts", 0)):
            value = getattr(self, name)
            if name == "max_memory" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"remote_class: {name} is {value!r}, it must be a whole number.")
            if value < least:
                raise ValueError(f"remote_class: {name} is {value}, it must be at least {least}.")

    def needs(self) -> Needs:
        """Return what the cluster must find room for."""
        memory = None if self.max_memory is None else self.max_memory * _MEGABYTE
        return Needs(self.n_cpu, self.n_gpu, memory)


@overload
def remote_class(cls: ClassT, /) -> ClassT: ...


@overload
def remote_class(
    *,
    wait: bool = True,
    n_cpu: int = 1,
    n_gpu: int = 0,
    max_memory: int | None = None,
    max_restarts: int = 0,
) -> Callable[[ClassT], ClassT]: ...


def remote_class(cls: Any = None, /, **options: Any) -> Any:
    """Make a class whose objects live in processes of their own, on any machine of the cluster.

    Args:
        wait: calls block and return the result; False: they return a Future.
        n_cpu: slots an actor takes; numeric libraries in it use so many threads.
        n_gpu: GPUs an actor takes for itself.
        max_memory: MB that an actor may use more than at its start; above, it is killed (OutOfMemoryError).
        max_restarts: how often a lost actor is built anew, with the arguments it was made with, when it is used again.
            Calls under way when it was lost fail, and handles that were sent to others before do not follow it.

    The result is used like the class: `Cls(...)` makes an actor, `Cls.static_method()` and `Cls.CONSTANT` work here,
    `Cls._original` is the plain class, and `Cls.options(n_cpu=2)(...)` changes options for one actor. A class derived
    from it is a plain class until it is decorated too.

    Raises:
        TypeError, ValueError: an unknown or impossible option, or something that is not a class.
    """
    chosen = _checked_options(options)
    if cls is None:
        return lambda decorated: _decorated(decorated, chosen)
    return _decorated(cls, chosen)


def _checked_options(options: dict[str, Any], base: Options | None = None) -> Options:
    known = list(Options.__dataclass_fields__)
    for name in options:
        if name not in known:
            raise TypeError(f"remote_class has no option {name!r}: there are {', '.join(known)}.")
    return replace(base or Options(), **options)


def _decorated(cls: Any, options: Options) -> RemoteClass:
    if isinstance(cls, RemoteClass):
        raise TypeError(f"remote_class: {cls.__name__} is decorated already.")
    if not inspect.isclass(cls):
        raise TypeError(f"remote_class is for classes, and {getattr(cls, '__name__', cls)!r} is a {type(cls).__name__}.")
    return RemoteClass(cls, options)


class RemoteClass:
    """A decorated class: calling it creates an actor; everything else is the original class's."""

    def __init__(self, original: type, options: Options) -> None:
        own = {"_original": original, "_options": options, "__wrapped__": original}
        own |= {"_methods": methods_of(original), "_proxy_class": proxy_class_for(original)}
        for name in ("__module__", "__qualname__", "__name__", "__doc__", "__init__", "options"):
            if hasattr(original, name):
                own[name] = getattr(original, name)
        self.__dict__.update(own)

    _original: type
    _options: Options
    _methods: frozenset[str]
    _proxy_class: type[Proxy]
    __name__: str
    __qualname__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Create an actor and return its proxy once the constructor has run there."""
        return create(self, args, kwargs)

    def options(self, **options: Any) -> RemoteClass:
        """Return the same class with other options."""
        return RemoteClass(self._original, _checked_options(options, self._options))

    def __getattr__(self, name: str) -> Any:
        if name == "_original":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self._original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)

    def __getitem__(self, parameters: Any) -> Any:
        """Return the class itself for `Cls[int]`, if it is generic."""
        self._original[parameters]  # type: ignore[index]
        return self

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._original,)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._original)

    def __subclasscheck__(self, subclass: Any) -> bool:
        plain = subclass._original if isinstance(subclass, RemoteClass) else subclass
        return issubclass(plain, self._original)

    def __repr__(self) -> str:
        return f"<remote class {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> Any:
        module, qualname = self._original.__module__, self._original.__qualname__
        by_value = module == "__main__" or module in cloudpickle.list_registry_pickle_by_value()
        named = _named(module, qualname)  # where the object lives it is the plain class
        if getattr(named, "_original", named) is self._original and not by_value:
            return _import_class, (module, qualname, self._options)
        return RemoteClass, (self._original, self._options)


def _named(module: str, qualname: str) -> Any:
    """Return what a dotted name stands for in an imported module, or None."""
    try:
        return functools.reduce(getattr, qualname.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return None


def _import_class(module: str, qualname: str, options: Options) -> RemoteClass:
    found: Any = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    same = isinstance(found, RemoteClass) and found._options == options
    return found if same else RemoteClass(getattr(found, "_original", found), options)


# --- in the job --------------------------------------------------------------------------------------------


def plain_class(remote: RemoteClass) -> type:
    """Return the class itself, for the process that makes the object: there, its name means the plain class.

    So do those of its bases. They are bound anew wherever methods look them up: in modules and in closures.
    """
    family = remote._original.__mro__
    for cls in family:
        _bind(vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}, cls.__name__, family)
        for function in functions_of(cls):
            for name in function.__code__.co_names:
                _bind(function.__globals__, name, family)
            for cell in function.__closure__ or ():
                _bind_cell(cell, family)
    return remote._original


def _bind(namespace: dict[str, Any], name: str, family: tuple[type, ...]) -> None:
    value = namespace.get(name)
    if isinstance(value, RemoteClass) and value._original in family:
        namespace[name] = value._original


def _bind_cell(cell: CellType, family: tuple[type, ...]) -> None:
    try:
        value = cell.cell_contents
    except ValueError:
        return  # not filled yet
    if isinstance(value, RemoteClass) and value._original in family:
        cell.cell_contents = value._original


__all__ = ["Options", "RemoteClass", "plain_class", "remote_class"]
