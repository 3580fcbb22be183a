from __future__ import annotations

import dataclasses
import enum
import functools
import pickle
import sys
import threading
from collections import namedtuple

import cloudpickle
import numpy as np
import pytest
from payload_identity import assert_same, trip

from parl_lite import pickling
from parl_lite.errors import SerializationError
from parl_lite.payload import PICKLE_WITH_BUFFERS, PLAIN_PICKLE, Decoder, Encoder


@dataclasses.dataclass
class Point:
    """Importable: travels by reference."""

    x: object
    y: object = None


@pytest.fixture
def main_class():
    """Yield a class of the script of the user, and a function that makes this process forget it."""

    class Thing:
        def __init__(self, x):
            self.x = x

    Thing.__module__ = "__main__"
    Thing.__qualname__ = "Thing"
    main = vars(sys.modules["__main__"])

    def forget():
        main.pop("Thing", None)
        tracker = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.pop(Thing, None)
        cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.pop(tracker, None)

    main["Thing"] = Thing
    yield Thing, forget
    forget()


def test_importable_objects_travel_by_reference():
    value = Point(np.arange(5), {"deep": [Point(1)]})
    received = trip(value)
    assert type(received) is Point and type(received.y["deep"][0]) is Point
    assert_same(received.x, value.x)
    assert b"cloudpickle" not in Encoder().encode(value)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda thing: thing,
        lambda thing: [thing],
        lambda thing: {"a": (1, [thing])},
        lambda thing: type(thing),
        lambda thing: functools.partial(type(thing), 3),
        lambda thing: Point(thing),
        lambda thing: np.array([thing, None], dtype=object),
        lambda thing: {thing: 1},
    ],
)
def test_a_class_of_the_script_travels_by_value(main_class, wrap):
    thing_class, forget = main_class
    data = Encoder().encode(wrap(thing_class(np.arange(1000))))
    forget()
    received = Decoder().decode(data)
    assert "Thing" in str(received) + repr(received.__dict__ if isinstance(received, Point) else "")


def test_an_object_of_the_script_has_its_arrays_beside_the_pickle(main_class):
    thing_class, forget = main_class
    data = Encoder().encode(thing_class(np.arange(1000)))
    assert data[0] == PICKLE_WITH_BUFFERS
    forget()
    assert_same(Decoder().decode(data).x, np.arange(1000))


def test_a_class_that_came_by_value_is_the_senders_own_when_it_comes_back(main_class):
    thing_class, _ = main_class
    there = trip(thing_class)
    assert trip(there(1)).__class__ is thing_class


def test_modules_registered_with_cloudpickle_travel_by_value():
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        data = Encoder().encode(Point(1))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert b"cloudpickle" in data


def test_lambdas_closures_and_local_classes_travel():
    class Local(enum.Enum):
        A = 1

    array = np.arange(3)
    assert trip(lambda: array.sum())() == 3
    assert trip(Local.A) is Local.A
    assert trip(namedtuple("Pair", "a b")(1, 2)) == (1, 2)


def deep_list() -> list:
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


class Unpicklable:
    def __reduce__(self):
        raise ValueError("not today")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (threading.Lock, "cannot pickle '_thread.lock' object"),
        (lambda: (item for item in ()), "cannot pickle 'generator' object"),
        (deep_list, "nested too deeply"),
        (Unpicklable, "not today"),
        (sys._getframe, "cannot pickle 'frame' object"),
    ],
)
def test_what_cannot_travel_is_refused_at_once(make, reason):
    for wrap in (lambda v: v, lambda v: [v], lambda v: {"a": (np.zeros(2), v)}, Point):
        with pytest.raises(SerializationError) as caught:
            Encoder().encode(wrap(make()), what="the argument 'x' of echo()")
        assert str(caught.value).startswith("the argument 'x' of echo() cannot be sent: ")
        assert reason in str(caught.value)
        assert caught.value.__cause__ is not None


def test_open_files_are_refused(tmp_path):
    for mode in ("w", "r", "wb", "rb"):
        with open(tmp_path / "file", mode) as file, pytest.raises(SerializationError, match="cannot pickle"):
            Encoder().encode(file)


def test_an_object_that_cannot_be_rebuilt_is_a_clear_error():
    data = pickle.dumps(Point(1)).replace(b"Point", b"Poimt")
    with pytest.raises(SerializationError, match=r"AttributeError.*Poimt.*distributed_files"):
        Decoder().decode(data)
    data = Encoder().encode(Point).replace(b"test_payload_pickle", b"test_payload_pickla")
    with pytest.raises(SerializationError, match="No module named 'test_payload_pickla'"):
        Decoder().decode(data)


def test_arrays_inside_objects_lie_beside_the_pickle_and_are_private():
    arrays = [np.arange(1000), np.arange(999).astype(">i4"), np.ones((30, 50)).T, np.ones((60, 50))[::2]]
    data = Encoder().encode(Point(arrays))
    assert data[0] == PICKLE_WITH_BUFFERS
    received = Decoder().decode(data)
    assert_same(received.x, arrays)
    assert received.x[2].flags.f_contiguous


def test_buffers_lie_at_multiples_of_64():
    value = Point([np.arange(1001, dtype=np.int8) + i for i in range(40)] + [np.arange(3001, dtype=np.int8)] * 3)
    value.y = [np.arange(5001, dtype=np.int8)]
    frame = bytearray(Encoder().encode(value))
    received = Decoder().decode(frame)
    start = np.frombuffer(frame, np.uint8).ctypes.data
    assert (received.y[0].ctypes.data - start) % 64 == 0


def test_large_bytes_travel_inside_a_plain_pickle():
    for value in (bytes(200_000), [bytes(200_000), "x"], {"a": bytearray(200_000)}):
        data = Encoder().encode(value)
        assert data[0] == PLAIN_PICKLE
        assert pickle.loads(data) == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, True),
        ((1, 2.0, "x", b"y", True, None, 1j), True),
        ({"a": {"b": [1, ()]}}, True),
        ((), True),
        ([[[1]]], True),
        ([[[[1]]]], False),
        ([0] * 33, False),
        (bytes(64 * 1024), False),
        (Point(1), False),
        ([Point(1)], False),
        ({Point: 1}, False),
        ({"a": {1: [Point(1)]}}, False),
        (np.float64(1), False),
        ({1: np.zeros(1)}, False),
        (namedtuple("Pair", "a b")(1, 2), False),
    ],
    ids=repr,
)
def test_only_what_is_plain_to_see_takes_the_shortest_way(value, plain):
    assert pickling.is_plain(value) == plain


def test_the_look_for_plain_data_ends_soon():
    value: list = []
    for _ in range(60):
        value = [value] * 2
    assert not pickling.is_plain(value)
    assert_same(trip([value, np.zeros(1)])[1], np.zeros(1))  # else it would end with the universe


def test_dumps_by_value_needs_nothing_of_the_sender(main_class):
    thing_class, forget = main_class
    data = pickling.dumps_by_value(thing_class)
    forget()
    assert pickle.loads(data)(3).x == 3
    with pytest.raises(SerializationError, match=r"^the class cannot be sent: cannot pickle '_thread.lock' object"):
        pickling.dumps_by_value(threading.Lock(), "the class")
