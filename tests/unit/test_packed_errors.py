"""Exceptions taken apart and rebuilt, without a cluster: what needs no pickle, what bounds there are, what never raises."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from parl_lite import remote_errors
from parl_lite.errors import ActorLostError, RemoteError, SerializationError
from parl_lite.payload import Decoder, Encoder


class Mine(Exception):
    """An exception of the user's."""


def trip(error: BaseException, *, trusted: bool = True) -> Any:
    """Return the exception as it arrives over a connection."""
    packed = Decoder(allow_pickle=trusted).decode(Encoder().encode(remote_errors.pack(error)))
    return remote_errors.unpack(packed, "Actor host 1", trusted)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_pythons_own_exceptions_need_no_pickle():
    error = trip(raised(FileNotFoundError(2, "No such file", "/x")), trusted=False)
    assert isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename, error.args) == (2, "/x", (2, "No such file"))
    assert isinstance(trip(AttributeError("x"), trusted=False), AttributeError)


def test_other_exceptions_are_plain_remote_errors_to_those_who_take_no_pickles():
    error = trip(raised(Mine("text", {"a": threading.Lock()})), trusted=False)
    assert type(error) is RemoteError
    assert error.type_name.endswith("Mine")
    assert "in raised" in str(error)


def test_what_others_pickled_is_not_opened_without_trust():
    error = trip(ValueError("plain", 1 + 2j, Mine), trusted=False)
    assert error.args[:2] == ("plain", 1 + 2j)
    assert "not opened" in error.args[2]


def test_text_is_the_message_then_a_rule_then_the_remote_traceback():
    text = str(trip(raised(KeyError("lost"))))
    head, rule, rest = text.split("\n", 2)
    assert (head, rule) == ("KeyError: 'lost'", "--- remote traceback (Actor host 1) ---")
    assert rest.startswith("Traceback (most recent call last):\n") and rest.endswith("KeyError: 'lost'\n")
    assert str(trip(KeyError("never raised"))) == "KeyError: 'never raised'"


def test_our_own_errors_are_themselves_on_the_other_side():
    lost = ActorLostError("gone")
    lost.exit_code = 3
    error = trip(lost)
    assert isinstance(error, ActorLostError) and error.exit_code == 3
    assert isinstance(trip(SerializationError("x")), SerializationError)


def test_an_exception_that_went_two_ways_keeps_its_class_and_both_tracebacks():
    once = trip(raised(Mine("text")))
    twice = trip(raised(once))
    assert isinstance(twice, Mine) and twice.type_name == once.type_name
    assert str(twice).count("Mine: text") >= 1
    assert type(trip(raised(trip(KeyboardInterrupt())))) is RemoteError


def test_a_remote_error_can_be_pickled_anywhere():
    error = trip(raised(Mine("text", 3)))
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, Mine) and isinstance(again, RemoteError)
    assert (again.args, str(again), again.remote_traceback) == (error.args, str(error), error.remote_traceback)


def test_long_chains_are_cut():
    error = ValueError("0")
    for n in range(1, 30):
        following = ValueError(str(n))
        following.__cause__ = error
        error = following
    length, found = 0, trip(error)
    while found is not None:
        length, found = length + 1, found.__cause__
    assert length == 9


def test_circles_of_causes_end():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert str(trip(first).__cause__) == "ValueError: second"


def test_an_exception_that_resists_every_look_still_arrives():
    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError

        __repr__ = __str__

        def __getattribute__(self, name):
            if name in ("__dict__", "__notes__", "args"):
                raise RuntimeError(name)
            return super().__getattribute__(name)

    error = trip(raised(Hostile()))
    assert error.type_name.endswith("Hostile")
    assert "in raised" in error.remote_traceback


@pytest.mark.parametrize("kind", [Exception, OSError, UnicodeDecodeError, KeyError, SystemExit, Mine, RemoteError])
def test_nothing_of_the_class_is_called_to_rebuild_it(kind, monkeypatch):
    if kind is Mine:
        monkeypatch.setattr(Mine, "__init__", lambda self: pytest.fail("the constructor was called"))
    made = kind.__new__(kind)
    error = trip(made)
    assert isinstance(error, RemoteError)
    assert isinstance(error, kind) == issubclass(kind, Exception)
