"""A remote object behaves as the object of its class would: names, inheritance, values, handles."""

from __future__ import annotations

import abc
import functools
import gc
import os
import pickle
import queue
import threading
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import parl_lite

T = TypeVar("T")


class Space:
    """A type of the user's."""

    def __init__(self, shape):
        self.shape = shape


@parl_lite.remote_class
class Thing:
    """Something of everything."""

    CONSTANT = 7
    kind = Space
    root = np.sqrt

    def __init__(self, n=0, **more):
        self.n = n
        self.space = Space((3,))
        self.more = more
        self.get, self.wait, self.pid, self.close = "a", "b", "c", "d"
        self.shadowed = "an attribute"
        self.renamed = self.increase

    def increase(self, by=1):
        self.n += by
        return self.n

    def shadowed(self):
        return "a method"

    def renamed(self):
        return "not this one"

    def same(self, *args, **kwargs):
        return args, kwargs

    def echo(self, value):
        return value

    def later(self):
        self.made_later = 1

    def constant(self):
        return Thing.CONSTANT

    @staticmethod
    def add(a, b):
        return a + b

    @classmethod
    def name(cls, end):
        return cls.__name__ + end

    @classmethod
    def make(cls, n):
        return cls(n)

    @property
    def square(self):
        return self.n**2

    @square.setter
    def square(self, value):
        self.n = int(value**0.5)

    @property
    def broken(self):
        raise LookupError("a property's own error")

    @functools.cached_property
    def slow(self):
        return self.n * 100

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def remembered(self, x):
        return x + 1

    doubled = functools.partialmethod(increase, 2)

    def itself(self):
        return self

    def generator(self):
        yield 1

    def lock(self):
        return threading.Lock()

    def make_adder(self, n):
        return lambda x: x + n

    def deep(self):
        value = []
        for _ in range(100_000):
            value = [value]
        return value


@pytest.fixture(scope="module")
def thing(cluster) -> Iterator[Any]:
    """Give all tests one actor; those that count make their own."""
    actor = Thing(5, a=1)
    yield actor
    actor.destroy()


@pytest.fixture
def fifo(tmp_path):
    """Return a path: whoever opens it to read waits until a test writes."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


# --- methods and attributes -------------------------------------------------------------------------------


def test_positional_keyword_and_variable_arguments_arrive(thing):
    assert thing.same(1, *[2, 3], x=4, y=5) == ((1, 2, 3), {"x": 4, "y": 5})
    assert thing.same() == ((), {})
    assert thing.more == {"a": 1}


def test_wrong_arguments_are_the_type_error_of_the_method(thing):
    with pytest.raises(TypeError, match="echo"):
        thing.echo()
    with pytest.raises(TypeError, match="nonsense"):
        thing.increase(nonsense=1)


def test_methods_of_every_kind_are_called_in_the_actor(cluster):
    actor = Thing(1)
    assert (actor.add(1, 2), actor.name("!"), actor.remembered(1), actor.doubled()) == (3, "Thing!", 2, 3)
    assert Thing.add(1, 2) == 3
    assert Thing.CONSTANT == 7
    assert actor.constant() == 7


def test_attributes_are_read_and_written_in_the_actor(cluster):
    actor = Thing(3)
    assert actor.n == 3
    actor.n = 10
    assert actor.increase() == 11
    actor.fresh = [1]
    assert actor.fresh == [1]
    del actor.fresh
    assert not hasattr(actor, "fresh")
    actor.later()
    assert actor.made_later == 1
    assert (actor.CONSTANT, actor.kind, actor.root(4.0)) == (7, Space, 2.0)


def test_properties_work_both_ways(cluster):
    actor = Thing(5)
    assert (actor.square, actor.slow) == (25, 500)
    actor.square = 49
    assert actor.n == 7
    with pytest.raises(LookupError, match="a property's own error"):
        _ = actor.broken


def test_a_value_of_the_users_own_class_can_be_read(thing):
    assert type(thing.space) is Space
    assert thing.space.shape == (3,)


def test_names_that_proxies_of_others_need_belong_to_the_user(thing):
    assert (thing.get, thing.wait, thing.pid, thing.close) == ("a", "b", "c", "d")


def test_a_missing_attribute_is_named(thing):
    with pytest.raises(AttributeError, match="'missing'"):
        _ = thing.missing
    with pytest.raises(AttributeError, match="'missing'"):
        thing.missing(1)
    with pytest.raises(AttributeError, match="missing"):
        thing.futures.missing(1).result()
    assert hasattr(thing, "n")
    assert not hasattr(thing, "missing")
    assert getattr(thing, "missing", 3) == 3


def test_an_attribute_hides_a_method_of_the_same_name(cluster):
    actor = Thing(1)
    assert actor.shadowed == "an attribute"
    assert actor.renamed() == 2  # a bound method in an attribute
    actor.echo = 4
    assert actor.echo == 4
    del actor.echo
    assert actor.echo(5) == 5


def test_looking_at_a_proxy_asks_nobody(cluster):
    actor = Thing()
    actor.destroy()  # whoever asked it now would get an error
    assert repr(actor).startswith("<actor Thing ")
    assert {"increase", "square", "futures", "destroy"} <= set(dir(actor))
    assert not hasattr(actor, "_repr_html_")
    assert not hasattr(actor, "__array__")
    assert actor == actor and hash(actor) and actor


@parl_lite.remote_class
class Own:
    """Needs the names `futures` and `destroy` for itself."""

    def __init__(self):
        self.futures = 1

    def destroy(self):
        return "mine"


def test_the_class_may_use_the_names_of_the_proxy(cluster):
    actor = Own()
    assert (actor.futures, actor.destroy()) == (1, "mine")


@parl_lite.remote_class
class Delegating:
    """Hands on what it does not know."""

    def __init__(self):
        self.inner = [3, 1, 2]

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def test_getattr_of_the_class_delegates_methods_and_refuses_what_it_refuses(cluster):
    actor = Delegating()
    actor.append(0)
    actor.sort()
    assert actor.inner == [0, 1, 2, 3]
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        _ = actor.x


# --- dunders ----------------------------------------------------------------------------------------------


@parl_lite.remote_class
class Table:
    """Has the dunders that travel, and some that do not."""

    def __init__(self):
        self.rows = {"a": 1}
        self.log = []

    def __call__(self, x, scale=1):
        return x * scale

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        return self.rows[key]

    def __setitem__(self, key, value):
        self.rows[key] = value

    def __delitem__(self, key):
        del self.rows[key]

    def __contains__(self, key):
        return key in self.rows

    def __iter__(self):
        return iter(self.rows)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.log.append((kind, str(error), trace))
        return kind is KeyError

    def __eq__(self, other):
        raise AssertionError("the proxy compares itself")

    __hash__ = None


def test_dunders_that_the_class_defines_call_the_actor(cluster):
    table = Table()
    table["b"] = 2
    assert (len(table), table["b"], "b" in table, table(3, scale=2), bool(table)) == (2, 2, True, 6, True)
    del table["b"]
    assert "b" not in table
    with pytest.raises(KeyError, match="b"):
        _ = table["b"]


def test_a_with_block_enters_and_leaves_in_the_actor(cluster):
    table = Table()
    with table as entered:
        assert entered is table
    with table:
        raise KeyError("swallowed by __exit__")
    with pytest.raises(ValueError, match="not swallowed"), table:
        raise ValueError("not swallowed")
    kinds = [entry[0] for entry in table.log]
    assert kinds == [None, KeyError, ValueError]


def test_an_error_that_cannot_travel_still_leaves_the_with_block(cluster):
    table = Table()
    with pytest.raises(ValueError, match="with a lock"), table:
        raise ValueError("with a lock", threading.Lock())
    assert "with a lock" in table.log[0][1]


def test_comparing_hashing_and_copying_concern_the_proxy(cluster):
    table = Table()
    assert table == table
    assert table != Table
    assert len({table, table}) == 1
    with pytest.raises(TypeError, match="not iterable"):
        iter(table)
    with pytest.raises(AttributeError, match="concerns the proxy"):
        table.__secret__ = 1


def test_a_class_without_dunders_lends_the_proxy_none(thing):
    for use in (lambda: thing[0], lambda: len(thing), lambda: thing(), lambda: 1 in thing, lambda: thing + 1):
        with pytest.raises(TypeError):
            use()


# --- inheritance ------------------------------------------------------------------------------------------


class Base:
    X = 3

    def __init__(self):
        self.y = 1

    def both(self):
        return "base"


@parl_lite.remote_class
class Derived(Base):
    def __init__(self):
        super(Derived, self).__init__()  # noqa: UP008
        self.y += Derived.X

    def both(self):
        return super().both() + " derived"


@parl_lite.remote_class
class Further(Derived):
    def __init__(self):
        Derived.__init__(self)
        self.kinds = [cls.__name__ for cls in type(self).__mro__]
        self.is_own = isinstance(self, Derived) and isinstance(self, Further) and type(self) is Further


def test_two_argument_super_and_explicit_bases_work(cluster):
    assert Derived().y == 4
    further = Further()
    assert (further.y, further.both(), further.is_own) == (4, "base derived", True)
    assert further.kinds == ["Further", "Derived", "Base", "object"]
    assert isinstance(further, Derived) and isinstance(further, Base) and not isinstance(further, Thing)


def test_a_class_derived_from_a_remote_class_is_plain_until_it_is_decorated():
    class Plain(Derived):
        def __init__(self):
            self.z = 1

    assert issubclass(Plain, Derived)
    assert Plain().z == 1


def test_the_class_that_is_decorated_by_a_call_stays_plain(cluster):
    remote = parl_lite.remote_class(wait=False)(Base)
    assert Base().both() == "base"
    assert remote._original is Base
    assert remote().both().get() == "base"


@parl_lite.remote_class
class Shelf(set):
    def size(self):
        return len(self)


class Interface(abc.ABC):
    @abc.abstractmethod
    def act(self): ...


class Mixin:
    def act(self):
        return "mixin"


@parl_lite.remote_class
class Concrete(Mixin, Interface):
    pass


@parl_lite.remote_class
class Incomplete(Interface):
    pass


@parl_lite.remote_class
class Box(Generic[T]):
    def __init__(self, content: T):
        self.content = content


def test_builtin_abstract_and_generic_bases(cluster):
    shelf = Shelf()
    shelf.add(1)
    shelf.update([1, 2])
    assert (shelf.size(), len(shelf), 2 in shelf) == (2, 2, True)
    assert Concrete().act() == "mixin"
    assert Box[int](3).content == 3
    with pytest.raises(TypeError, match="abstract"):
        Incomplete()


def test_a_class_made_in_a_function_travels_with_what_it_closes_over(cluster):
    factor = 3

    @parl_lite.remote_class
    class Local(Base):
        def __init__(self):
            super(Local, self).__init__()  # noqa: UP008

        def times(self, x):
            return x * factor

    assert Local().times(2) == 6


def test_options_of_one_creation_leave_the_class_itself(cluster):
    derived = Derived.options(wait=False)()
    assert derived.both().get() == "base derived"
    assert derived.y == 4


# --- futures, as in PARL ----------------------------------------------------------------------------------


@parl_lite.remote_class(wait=False)
class Worker:
    """The usual actor of a PARL script."""

    def __init__(self, config):
        self.config = config
        self.weights = None

    def set_weights(self, weights):
        self.weights = weights

    def sample(self):
        return self.weights["w"] * 2

    def wait_for(self, path):
        with open(path) as fifo:
            return fifo.read()

    def __call__(self, x):
        return x


def test_a_script_as_in_parl_runs_unchanged(cluster):
    actors = [Worker({"rank": rank}) for rank in range(2)]
    for actor in actors:
        actor.set_weights({"w": np.arange(3)})
    futures = [actor.sample() for actor in actors]
    assert [future.get().tolist() for future in futures] == [[0, 2, 4]] * 2
    assert futures[0].get().tolist() == [0, 2, 4]  # it may be read again
    assert [actor.config["rank"] for actor in actors] == [0, 1]  # attributes are values all the same
    assert actors[0](4).get() == 4
    for actor in actors:
        actor.destroy()
    assert Worker._original.__name__ == "Worker"


def test_one_thread_for_each_actor_as_in_parl(cluster):
    results: queue.Queue[tuple[int, list[int]]] = queue.Queue()

    def run(rank):
        actor = Worker({"rank": rank})
        for n in range(20):
            actor.set_weights({"w": np.arange(n)}).get()
            results.put((rank, actor.sample().get().tolist()))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [results.get_nowait() for _ in range(40)]
    for rank in range(2):
        assert [values for which, values in found if which == rank] == [[2 * i for i in range(n)] for n in range(20)]


def test_threads_may_share_an_actor(cluster):
    actor = Thing(0)
    threads = [threading.Thread(target=lambda: [actor.increase() for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actor.n == 200


def test_a_future_that_is_not_ready_times_out_and_loses_nothing(cluster, fifo):
    actor = Worker({})
    future = actor.wait_for(str(fifo))
    for too_early in (future.get_nowait, lambda: future.get(block=False), lambda: future.get(timeout=0.05)):
        with pytest.raises(TimeoutError):
            too_early()
    assert not future.done()
    fifo.write_text("value")
    assert future.get() == "value"
    assert future.get_nowait() == "value"


def test_an_actor_is_released_when_its_proxy_and_its_futures_are_gone(cluster):
    future = Worker({})(7)  # the proxy is gone already, the call goes on
    assert future.get() == 7
    assert [Worker({})(n).get() for n in range(6)] == list(range(6))  # more than there are slots


# --- values that cannot travel ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["generator", "lock", "deep", "itself"])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_result_that_cannot_be_sent_is_an_error_with_its_name(thing, method, blocking):
    call = getattr(thing, method) if blocking else getattr(thing.futures, method)().result
    with pytest.raises(parl_lite.SerializationError, match=rf"the result of Thing\.{method} cannot be sent"):
        call()
    assert thing.echo(1) == 1


def test_an_argument_that_cannot_be_sent_is_an_error_here_and_now(thing):
    with pytest.raises(parl_lite.SerializationError, match="an argument of echo cannot be sent") as caught:
        thing.futures.echo(threading.Lock())
    assert not isinstance(caught.value, parl_lite.RemoteError)
    with pytest.raises(parl_lite.SerializationError, match="the value of attribute n cannot be sent"):
        thing.n = threading.Lock()
    with pytest.raises(parl_lite.SerializationError, match=r"argument of Thing\(\) cannot be sent"):
        Thing(threading.Lock())
    assert thing.echo(1) == 1


def test_functions_made_in_the_actor_travel(thing):
    assert thing.make_adder(3)(4) == 7


def test_a_method_of_an_actor_is_not_a_value(thing):
    with pytest.raises(parl_lite.SerializationError, match="send the actor and call echo there"):
        thing.echo(thing.echo)


# --- decorating -------------------------------------------------------------------------------------------


def test_creating_an_actor_of_an_unsendable_class_gives_its_slot_back(cluster):
    lock = threading.Lock()

    @parl_lite.remote_class
    class Holds:
        def use(self):
            return lock

    for _ in range(6):
        with pytest.raises(parl_lite.SerializationError, match=r"class or an argument of Holds\(\)"):
            Holds()


def test_an_actor_is_released_at_once_although_it_raised(cluster):
    gc.disable()  # no help from there
    try:
        for _ in range(6):
            actor = Thing()
            with pytest.raises(AttributeError):
                _ = actor.missing
            with pytest.raises(TypeError):
                actor.increase("x")
            del actor
    finally:
        gc.enable()


def test_a_proxy_can_be_pickled_and_calls_the_same_actor(cluster):
    actor = Thing(1)
    again = pickle.loads(pickle.dumps(actor))
    assert again.increase() == 2
    assert actor.increase() == 3
    assert again.shadowed == "an attribute"
    assert isinstance(again, Thing)
