"""@remote_class and the proxy: a class whose objects live in processes of their own. Knows client and calls, no cluster.

What a proxy does with a name:

    name of the proxy's own       `futures`, `destroy` (unless the class has the name itself); everything else is the user's
    method of the class           a RemoteMethod, without asking the job
    any other name                asked from the job: a value, or a method that only the object knows (`__getattr__`)
    dunder                        never sent as an attribute; if the class defines one of __call__, __len__, __getitem__,
                                  __setitem__, __delitem__, __contains__, __enter__, __exit__, using it calls the job.
                                  ==, hash, repr, dir, bool without __len__, pickling concern the proxy itself.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

import cloudpickle
import zmq

from parl_lite import calls, client, frames, hostos
from parl_lite import project as projects
from parl_lite.calls import METHOD, Channel, Future
from parl_lite.errors import ActorLostError, ParlError
from parl_lite.messages import Needs
from parl_lite.settings import Settings
from parl_lite.sockets import data_dealer

ClassT = TypeVar("ClassT", bound=type)

FORWARDED = ("call", "len", "getitem", "setitem", "delitem", "contains", "enter", "exit")
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
        max_restarts: how often a lost actor is built anew.

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
        raise TypeError(
            f"remote_class is for classes, and {getattr(cls, '__name__', cls)!r} is a {type(cls).__name__}."
        )
    return RemoteClass(cls, options)


class RemoteClass:
    """A decorated class: calling it creates an actor; everything else is the original class's."""

    def __init__(self, original: type, options: Options) -> None:
        self._original = original
        self._options = options
        for name in ("__module__", "__qualname__", "__name__", "__doc__"):
            setattr(self, name, getattr(original, name, None))
        self.__wrapped__ = original
        self._methods = frozenset(name for name in dir(original) if callable(getattr(original, name, None)))
        self._proxy_class = _proxy_class_for(original)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Create an actor and return its proxy once the constructor has run there."""
        return _create(self, args, kwargs)

    def options(self, **options: Any) -> RemoteClass:
        """Return the same class with other options."""
        return RemoteClass(self._original, _checked_options(options, self._options))

    def __getattr__(self, name: str) -> Any:
        if name == "_original":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self._original, name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._original,)

    def __instancecheck__(self, instance: Any) -> bool:
        if isinstance(instance, Proxy):
            instance_class = object.__getattribute__(instance, "_parl_class")
            return issubclass(instance_class._original, self._original)
        return isinstance(instance, self._original)

    def __subclasscheck__(self, subclass: Any) -> bool:
        plain = subclass._original if isinstance(subclass, RemoteClass) else subclass
        return issubclass(plain, self._original)

    def __repr__(self) -> str:
        return f"<remote class {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> Any:
        if self.__module__ != "__main__" and _named(self.__module__, self.__qualname__) is self:
            return _import_class, (self.__module__, self.__qualname__)
        return RemoteClass, (self._original, self._options)


def _named(module: str, qualname: str) -> Any:
    """Return what a dotted name stands for in an imported module, or None."""
    try:
        return functools.reduce(getattr, qualname.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return None


def _import_class(module: str, qualname: str) -> Any:
    return functools.reduce(getattr, qualname.split("."), importlib.import_module(module))


# --- the proxy ----------------------------------------------------------------------------------------------------------------


class RemoteMethod:
    """A method of an actor: calling it calls the actor."""

    __slots__ = ("_channel", "_name", "_wait", "_what")

    def __init__(self, channel: Channel, name: str, wait: bool) -> None:
        self._channel = channel
        self._name = name
        self._wait = wait
        self._what = f"an argument of {name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._wait:
            return self._channel.call(self._name, (args, kwargs), self._what)
        return self._channel.request(frames.CALL, self._name, (args, kwargs), self._what)

    def __repr__(self) -> str:
        return f"<remote method {self._name} of {self._channel.label}>"


class Futures:
    """`actor.futures.method(...)`: every call returns a Future."""

    __slots__ = ("_proxy",)

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def __getattr__(self, name: str) -> RemoteMethod:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return RemoteMethod(_channel(self._proxy), name, wait=False)


class Proxy:
    """Stands for an actor. All its own state begins with `_parl_`; other names are the actor's."""

    _parl_class: RemoteClass
    _parl_channel: Channel
    _parl_address: Address

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"{type(self).__name__} does not forward {name}")
        remote = object.__getattribute__(self, "_parl_class")
        channel = _channel(self)
        if name in remote._methods and name not in object.__getattribute__(self, "_parl_hidden"):
            return self._parl_remember(name, RemoteMethod(channel, name, remote._options.wait))
        if name in ("futures", "destroy") and not hasattr(remote._original, name):
            return Futures(self) if name == "futures" else functools.partial(destroy, self)
        value = channel.request(frames.GET, name, None, name).result()
        if value is METHOD:
            return RemoteMethod(channel, name, remote._options.wait)
        return value

    def _parl_remember(self, name: str, method: RemoteMethod) -> RemoteMethod:
        """Keep the method as an attribute, so that the next call finds it without __getattr__."""
        object.__setattr__(self, name, method)
        return method

    def __setattr__(self, name: str, value: Any) -> None:
        _channel(self).request(frames.SET, name, value, f"the value of attribute {name}").result()
        remote = object.__getattribute__(self, "_parl_class")
        if name in remote._methods:
            self.__dict__.pop(name, None)
            object.__getattribute__(self, "_parl_hidden").add(name)

    def __delattr__(self, name: str) -> None:
        _channel(self).request(frames.DELETE, name, None, name).result()
        object.__getattribute__(self, "_parl_hidden").discard(name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._parl_class._original), "futures", "destroy"})

    def __repr__(self) -> str:
        return f"<actor {object.__getattribute__(self, '_parl_channel').label}>"

    def __reduce__(self) -> Any:
        return _attach, (self._parl_class, self._parl_address)


def _channel(proxy: Proxy) -> Channel:
    channel: Channel = object.__getattribute__(proxy, "_parl_channel")
    return channel


def _proxy_class_for(original: type) -> type[Proxy]:
    """Return a Proxy class with the dunders that the class defines: Python looks these up on the type."""
    forwarded: dict[str, Any] = {}
    for short in FORWARDED:
        name = f"__{short}__"
        if getattr(original, name, None) is not None and name not in vars(object):
            forwarded[name] = _forwarding(name)
    if "__getitem__" in forwarded or "__len__" in forwarded:
        forwarded["__iter__"] = None  # an iterator cannot travel
    return type(original.__name__, (Proxy,), {**forwarded, "__doc__": original.__doc__})


def _forwarding(name: str) -> Callable[..., Any]:
    def forward(self: Proxy, *args: Any, **kwargs: Any) -> Any:
        future = _channel(self).request(frames.CALL, name, (args, kwargs), f"an argument of {name}")
        result = future.result()
        return self if name == "__enter__" else result

    return forward


def destroy(actor: Proxy) -> None:
    """End an actor now; its calls under way fail with ActorLostError."""
    channel = _channel(actor)
    job = actor._parl_address.job
    if actor._parl_address.owned and client._current is not None:
        client.current().release(job)
    channel.close()


# --- creating and attaching ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Address:
    """Where an actor is, for handles that are sent to others."""

    job: str
    label: str
    boot_id: str
    addresses: tuple[str, ...]
    owned: bool = False


def _create(remote: RemoteClass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
    here = client.current()
    name = remote.__name__
    grant = here.want(name, remote._options.needs(), here.timeout)
    channel = here.open_channel(grant, name)
    try:
        by_value = _give_project(channel, here)
        with _travelling_by_value(remote._original.__module__ if by_value else None):
            what = f"an argument of {name}()"
            hidden = channel.request(frames.CREATE, "", (remote, args, kwargs), what).result()
    except BaseException:
        here.release(grant.job)
        channel.close()
        raise
    address = Address(grant.job, channel.label, grant.place.boot_id, grant.addresses, owned=True)
    return _proxy(remote, channel, address, hidden)


def _proxy(remote: RemoteClass, channel: Channel, address: Address, hidden: list[str]) -> Proxy:
    proxy: Proxy = object.__new__(remote._proxy_class)
    proxy.__dict__.update(_parl_class=remote, _parl_channel=channel, _parl_address=address, _parl_hidden=set(hidden))
    return proxy


def _give_project(channel: Channel, here: client.Client) -> bool:
    """Let the job use the user's code; return whether the class's module must travel by value."""
    root, paths = projects.find_folder()
    found = os.stat(root)
    place = {"root": root, "paths": list(paths), "identity": [here.place.boot_id, found.st_dev, found.st_ino]}
    if not here.has_distributed_files:
        value = {**place, "digest": "", "in_place": True}
        if channel.request(frames.PROJECT, "", value, "the project").result() is None:
            return False
    project = here.project()
    value = {**place, "digest": project.digest, "in_place": project.in_place}
    if channel.request(frames.PROJECT, "", value, "the project").result() == frames.NEED_CODE:
        channel.request(frames.CODE, "", projects.pack(project), "the project").result()
    return True


@contextmanager
def _travelling_by_value(module_name: str | None) -> Iterator[None]:
    """While open, cloudpickle sends classes of this module by value, when a job elsewhere could not import it."""
    project = client.current().project() if module_name is not None else None
    if project is None or module_name is None or not projects.travels_by_value(module_name, project):
        yield
        return
    module = sys.modules[module_name]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def _attach(remote: RemoteClass, address: Address) -> Proxy:
    """Rebuild a handle that was sent here: it calls the same actor, and does not keep it alive."""
    context = _contexts.setdefault(os.getpid(), zmq.Context())
    settings = Settings.from_environment()
    dealer = data_dealer(context, settings)
    dealer.connect(client.nearest(address.addresses, address.boot_id, hostos.boot_id()))
    channel = Channel(dealer, address.label, settings)
    return _proxy(remote, channel, replace(address, owned=False), [])


# --- in the job ------------------------------------------------------------------------------------------------------------------


def class_for_job(remote: Any) -> type:
    """Return the plain class of an actor, with its name bound to it wherever its own methods look it up.

    `super(B, self)` and `B.CONSTANT` inside the methods of B mean the class, not the decorated one.
    """
    original: type = remote._original
    for cls in original.__mro__:
        for function in _functions_of(cls):
            _rebind(function, original.__mro__)
    return original


def _functions_of(cls: type) -> Iterator[Any]:
    for value in vars(cls).values():
        candidates = (
            value,
            getattr(value, "__func__", None),
            *(getattr(value, f, None) for f in ("fget", "fset", "fdel")),
        )
        yield from (inspect.unwrap(found) for found in candidates if inspect.isfunction(found))


def _rebind(function: Any, family: tuple[type, ...]) -> None:
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, RemoteClass) and value._original in family:
            function.__globals__[name] = value._original
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # not filled yet
        if isinstance(value, RemoteClass) and value._original in family:
            cell.cell_contents = value._original


__all__ = ["ActorLostError", "Future", "ParlError", "Proxy", "RemoteClass", "calls", "destroy", "remote_class"]
