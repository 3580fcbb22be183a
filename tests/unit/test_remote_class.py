"""@remote_class without a cluster: what is checked when a class is decorated, and how the result stands for the class."""

from __future__ import annotations

import functools
import inspect
import math
import pickle
import sys
import types
from typing import Generic, Optional, TypeVar

import pytest

import parl_lite
from parl_lite import class_code
from parl_lite.proxy import OWN_NAMES, Proxy, methods_of, proxy_class_for
from parl_lite.remote import RemoteClass, plain_class

T = TypeVar("T")


class Plain:
    """Adds."""

    CONSTANT = 7

    def __init__(self, x=1):
        self.x = x

    def add(self, y):
        return self.x + y

    @staticmethod
    def double(x):
        return 2 * x

    @classmethod
    def make(cls, x):
        return cls(x)


@parl_lite.remote_class
class Remote(Plain):
    """Adds elsewhere."""

    def get_constant(self):
        return Remote.CONSTANT


class Outer:
    @parl_lite.remote_class
    class Inner: ...


@parl_lite.remote_class(n_cpu=2)
class WithOptions(Generic[T]):
    options = "the user's own"


# --- arguments of the decorator ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"is_wait": False}, "is_wait"),
        ({"max_memory": "300"}, "max_memory"),
        ({"max_memory": -1}, "max_memory"),
        ({"max_memory": 0}, "max_memory"),
        ({"n_gpu": -1}, "n_gpu"),
        ({"n_gpu": 0.5}, "n_gpu"),
        ({"n_cpu": 0}, "n_cpu"),
        ({"n_cpu": True}, "n_cpu"),
        ({"max_restarts": -1}, "max_restarts"),
        ({"wait": "no"}, "wait"),
    ],
)
def test_a_bad_option_is_named_when_the_class_is_decorated(options, name):
    with pytest.raises((TypeError, ValueError), match=name):
        parl_lite.remote_class(**options)
    with pytest.raises((TypeError, ValueError), match=name):
        Remote.options(**options)


def test_the_decorator_works_bare_and_with_parentheses():
    assert isinstance(parl_lite.remote_class(Plain), RemoteClass)
    assert isinstance(parl_lite.remote_class()(Plain), RemoteClass)
    assert parl_lite.remote_class(wait=False, n_gpu=1, max_memory=300)(Plain)._options.max_memory == 300


def test_what_is_no_plain_class_is_refused():
    def function(): ...

    with pytest.raises(TypeError, match=r"'function' is a function"):
        parl_lite.remote_class(function)
    with pytest.raises(TypeError, match="Remote is decorated already"):
        parl_lite.remote_class(Remote)


# --- the decorated class ----------------------------------------------------------------------------------


def test_the_decorated_class_shows_what_the_class_has():
    assert (Remote.__name__, Remote.__doc__, Remote.__module__) == ("Remote", "Adds elsewhere.", __name__)
    assert Remote.CONSTANT == 7
    assert Remote.double(4) == 8
    assert type(Remote.make(3)) is Remote._original
    assert Remote._original(2).add(1) == 3
    assert list(inspect.signature(Remote).parameters) == ["x"]


def test_setting_an_attribute_of_the_class_sets_it_on_the_class():
    remote = parl_lite.remote_class(type("Other", (Plain,), {}))
    remote.CONSTANT = 8
    assert remote._original.CONSTANT == 8


def test_the_base_class_can_be_called_by_name():
    class Below(Remote):
        def __init__(self):
            Remote.__init__(self, 5)

    assert Below().x == 5
    assert issubclass(Below, Remote) and issubclass(Remote, Plain) and not issubclass(Plain, Remote)
    assert isinstance(Below(), Remote)


def test_options_make_another_remote_class_of_the_same_class():
    changed = Remote.options(n_cpu=3, wait=False)
    assert (changed._options.n_cpu, changed._options.wait, Remote._options.n_cpu) == (3, False, 1)
    assert changed._original is Remote._original
    assert WithOptions.options == "the user's own"


def test_the_class_can_be_used_in_annotations_at_run_time():
    assert Remote | None == Optional[Remote]  # noqa: UP045
    assert int | Remote == Remote | int
    assert WithOptions[int] is WithOptions
    with pytest.raises(TypeError):
        Remote[int]


@pytest.mark.parametrize("remote", [Remote, Remote.options(wait=False), parl_lite.remote_class(n_cpu=2)(Plain)])
def test_the_decorated_class_is_pickled_by_its_name(remote):
    data = pickle.dumps(remote)
    assert b"get_constant" not in data
    again = pickle.loads(data)
    assert again._original is remote._original
    assert again._options == remote._options


def test_a_class_within_a_class_is_found_by_its_name():
    assert pickle.loads(pickle.dumps(Outer.Inner)) is Outer.Inner


def test_making_an_actor_without_a_cluster_says_what_to_do():
    with pytest.raises(parl_lite.NotConnectedError, match=r"parl_lite\.connect\(\)"):
        Remote()


# --- what is a method -------------------------------------------------------------------------------------


def test_functions_of_any_kind_are_methods_and_values_are_not():
    class Everything(dict):
        value = 3
        kind = int
        routine = math.sqrt

        def plain(self): ...

        @functools.lru_cache  # noqa: B019
        def cached(self): ...

        partial = functools.partialmethod(plain)

        @functools.singledispatchmethod
        def dispatched(self, x): ...

        @classmethod
        def of_class(cls): ...

        @staticmethod
        def static(): ...

        @property
        def computed(self): ...

        @functools.cached_property
        def computed_once(self): ...

    own = {"routine", "plain", "cached", "partial", "dispatched", "of_class", "static"}
    assert methods_of(Everything) == own | {name for name in dir(dict) if not name.startswith("__")}


def test_a_proxy_has_the_dunders_of_the_class_and_no_others():
    class Meta(type):
        def __len__(cls):
            return 1

    class Callable(metaclass=Meta):
        def __call__(self): ...

        def __iter__(self): ...

    made = proxy_class_for(Callable)
    assert "__call__" in vars(made) and "__len__" not in vars(made)
    assert vars(made)["__iter__"] is None
    assert not callable(object.__new__(proxy_class_for(Plain)))
    assert issubclass(made, Proxy) and {"futures", "destroy", "restarts"} == OWN_NAMES


# --- the class in the actor's own process -----------------------------------------------------------------


def module_with(text: str) -> types.ModuleType:
    module = types.ModuleType("users_module")
    exec(compile(text, "<a notebook's cell>", "exec"), vars(module))
    return module


FAMILY = """
import parl_lite

@parl_lite.remote_class
class Base:
    def __init__(self, x):
        super(Base, self).__init__()
        self.x = x

@parl_lite.remote_class
class Derived(Base):
    def __init__(self):
        Base.__init__(self, 4)

    @property
    def other(self):
        return Other

@parl_lite.remote_class
class Other: ...
"""


def test_names_of_the_class_and_its_bases_mean_the_plain_class_where_the_object_lives(monkeypatch):
    module = module_with(FAMILY)
    monkeypatch.setitem(sys.modules, "users_module", module)
    plain = plain_class(module.Derived)
    assert plain().x == 4
    assert (module.Derived, type(module.Base)) == (plain, type)
    assert isinstance(plain().other, RemoteClass)  # other actors can be made there as anywhere


def test_closures_mean_the_plain_class_too():
    @parl_lite.remote_class
    class Local:
        def kind(self):
            return Local

    plain = plain_class(Local)
    assert plain().kind() is plain


# --- sources ----------------------------------------------------------------------------------------------


def test_the_text_of_a_class_without_a_file_can_be_known_elsewhere(monkeypatch):
    linecache = class_code.linecache
    monkeypatch.setattr(linecache, "cache", {})
    module = module_with(FAMILY)
    class_code.know_sources({"<a notebook's cell>": FAMILY})
    monkeypatch.setitem(sys.modules, "users_module", module)
    assert class_code.sources_of(module.Derived._original) == {"<a notebook's cell>": FAMILY}
    linecache.checkcache()
    assert linecache.getline("<a notebook's cell>", 4) == "@parl_lite.remote_class\n"


def test_functions_are_found_in_all_their_wrappings():
    class Wrapped:
        def plain(self): ...

        @property
        def computed(self): ...

        @computed.setter
        def computed(self, value): ...

        @classmethod
        def of_class(cls): ...

        @functools.cached_property
        def once(self): ...

        @functools.lru_cache  # noqa: B019
        def cached(self): ...

        constant = 3

    names = [function.__name__ for function in class_code.functions_of(Wrapped)]
    assert names == ["plain", "computed", "computed", "of_class", "once", "cached"]
