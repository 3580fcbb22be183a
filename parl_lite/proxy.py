"""What stands for an actor in a process that calls it. Knows channels, not how an actor comes to be.

What a proxy does with a name:

    `futures`, `destroy`, `restarts`   its own, unless the class or the object has the name
    a method of the class         a RemoteMethod, without asking the actor
    any other name                asked from the actor: a value, or a method that only the object knows (`__getattr__`)
    __call__, __len__, ...        (FORWARDED) if the class defines it, using it calls the actor: `actor[3]`
    every other dunder            concerns the proxy itself: ==, hash, repr, dir, pickling; never sent, not to be set

`isinstance(actor, Class)` is true, of the bases, too. A method that returns the object itself is an error, but for
__enter__: the object stays in its process.

An attribute that the constructor sets, or that is set through this proxy, hides a method of the same name.
With wait=False methods and `actor(...)` return futures; attributes and the other dunders give values all the same.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from parl_lite import frames
from parl_lite.calls import METHOD, Channel
from parl_lite.class_code import defined
from parl_lite.errors import SerializationError
from parl_lite.futures import Future
from parl_lite.links import Address, BorrowedLink, Link, RestartingLink
from parl_lite.payload import NO_ARGUMENTS

if TYPE_CHECKING:
    from parl_lite.remote import RemoteClass

FORWARDED = ("call", "len", "bool", "getitem", "setitem", "delitem", "contains", "enter", "exit")
OWN_NAMES = frozenset(("futures", "destroy", "restarts"))
_PROBED = "_repr_", "_ipython_"
"""So begin the names with which notebooks look how to show a thing: asked from the actor only if its class has them."""


class RemoteMethod:
    """A method of an actor: calling it calls the actor."""

    __slots__ = ("_channel", "_encoded_name", "_name", "_wait", "_what")

    def __init__(self, channel: Channel, name: str, wait: bool) -> None:
        self._channel = channel
        self._name = name
        self._encoded_name = name.encode()
        self._wait = wait
        self._what = f"an argument of {name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = (args, kwargs) if args or kwargs else NO_ARGUMENTS
        if not self._wait:
            return self._channel.request(frames.CALL, self._name, arguments, self._what)
        result = self._channel.call(self._encoded_name, arguments, self._what)
        if type(result) is not Future:
            return result
        try:
            return result.result()
        finally:
            del result  # a traceback keeps this frame, and would keep the future: see Future.result

    def __repr__(self) -> str:
        return f"<remote method {self._name} of {self._channel.label}>"

    def __reduce__(self) -> NoReturn:
        raise SerializationError(f"{self!r} cannot be sent: send the actor and call {self._name} there")


class Futures:
    """`actor.futures.method(...)`: every call returns a Future."""

    __slots__ = ("_proxy",)

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def __getattr__(self, name: str) -> RemoteMethod:
        _refuse_dunder(name)
        return RemoteMethod(_channel(self._proxy), name, wait=False)


class Proxy:
    """Stands for an actor. All its own state begins with `_parl_`; other names are the actor's."""

    _parl_class: RemoteClass
    _parl_link: Link | RestartingLink | BorrowedLink
    _parl_hidden: set[str]
    """Names of methods, and of our own, that attributes of the object hide."""

    def __getattr__(self, name: str) -> Any:
        _refuse_dunder(name)
        if name == "restarts" and name not in self._parl_hidden:
            return self._parl_link.restarts  # without a look at the actor, which could build it anew
        remote, channel = self._parl_class, _channel(self)
        if name.startswith(_PROBED) and defined(remote._original, name) is None:
            raise AttributeError(f"{remote.__name__!r} has no {name!r}")
        if name not in self._parl_hidden:
            if name in remote._methods:
                method = RemoteMethod(channel, name, remote._options.wait)
                if not remote._options.max_restarts:
                    self.__dict__[name] = method  # the next call finds it without coming here
                return method
            if name in OWN_NAMES:
                return Futures(self) if name == "futures" else functools.partial(destroy, self)
        value = channel.request(frames.GET, name, None, name).result()
        return RemoteMethod(channel, name, remote._options.wait) if value is METHOD else value

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_dunder(name)
        _channel(self).request(frames.SET, name, value, f"the value of attribute {name}").result()
        if name in self._parl_class._methods or name in OWN_NAMES:
            self.__dict__.pop(name, None)
            self._parl_hidden.add(name)

    def __delattr__(self, name: str) -> None:
        _refuse_dunder(name)
        _channel(self).request(frames.DELETE, name, None, name).result()
        self._parl_hidden.discard(name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._parl_class._original), *OWN_NAMES})

    def __repr__(self) -> str:
        return f"<actor {self._parl_link.address.label}>"

    def __reduce__(self) -> Any:
        return attach, (self._parl_class, self._parl_link.address, self._parl_hidden)


def make_proxy(remote: RemoteClass, link: Link | RestartingLink | BorrowedLink, hidden: set[str]) -> Proxy:
    """Return the proxy of an actor that exists."""
    proxy: Proxy = object.__new__(remote._proxy_class)
    proxy.__dict__.update(_parl_class=remote, _parl_link=link, _parl_hidden=hidden)
    return proxy


def destroy(actor: Proxy) -> None:
    """End an actor now; its calls under way fail with ActorLostError. A handle that was sent here only disconnects."""
    actor._parl_link.destroy()


def methods_of(original: type) -> frozenset[str]:
    """Return the names under which objects of a class have methods: functions of any kind, no classes, no values."""
    found = {name: inspect.getattr_static(original, name) for name in dir(original) if not _is_dunder(name)}
    return frozenset(name for name, value in found.items() if _makes_method(value))


def _makes_method(value: Any) -> bool:
    indirect = classmethod, functools.partialmethod, functools.singledispatchmethod
    return inspect.isroutine(value) and (callable(value) or isinstance(value, indirect))


def proxy_class_for(original: type) -> type[Proxy]:
    """Return a Proxy class with the dunders that the class defines: Python looks these up on the type."""
    body: dict[str, Any] = {"__doc__": original.__doc__, "__module__": original.__module__}
    body["__class__"] = property(lambda self: original)  # for isinstance: of the class and of all its bases
    for name in (f"__{short}__" for short in FORWARDED):
        if defined(original, name) is not None:
            body[name] = _forwarding(name)
    if defined(original, "__iter__") is not None:
        body["__iter__"] = None  # an iterator cannot travel, and Python must not try __getitem__ in its place
    return type(original.__name__, (Proxy,), body)


def _forwarding(name: str) -> Callable[..., Any]:
    def forward(self: Proxy, *args: Any) -> Any:
        return RemoteMethod(_channel(self), name, wait=True)(*args)

    def call(self: Proxy, *args: Any, **kwargs: Any) -> Any:
        return RemoteMethod(_channel(self), name, self._parl_class._options.wait)(*args, **kwargs)

    def enter(self: Proxy) -> Any:
        entered = forward(self)
        return self if entered is None else entered

    def leave(self: Proxy, kind: Any, error: Any, trace: Any) -> Any:
        try:
            return forward(self, kind, error, None)  # a traceback cannot travel
        except SerializationError:
            return forward(self, RuntimeError, RuntimeError(f"{kind.__name__}: {error}"), None)

    special: dict[str, Callable[..., Any]] = {"__call__": call, "__enter__": enter, "__exit__": leave}
    return special.get(name, forward)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _refuse_dunder(name: str) -> None:
    if _is_dunder(name) or name.startswith("_parl_"):
        raise AttributeError(f"{name!r} is no attribute of the actor: it concerns the proxy itself")


def attach(remote: RemoteClass, address: Address, hidden: set[str]) -> Proxy:
    """Rebuild a handle that was sent here: it calls the same actor, and does not keep it alive. Named in pickles."""
    return make_proxy(remote, BorrowedLink(address), hidden)


def _channel(proxy: Proxy) -> Channel:
    return proxy._parl_link.channel()
