"""Exceptions of every shape, raised in a real actor: what the caller catches, what it reads, and that the actor lives."""

from __future__ import annotations

import builtins
import io
import json
import sys
import threading
import urllib.error
import zipfile
from email.message import Message
from typing import Any

import pytest
from conftest import until

import parl_lite
from parl_lite import ActorLostError, RemoteError


class KeywordOnly(Exception):
    def __init__(self, *, status):
        super().__init__("bad status")
        self.status = status


class Fixed(Exception):
    def __init__(self):
        super().__init__("fixed text")


class TwoNeeded(ValueError):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")
        self.pair = first, second


class WithLock(Exception):
    def __init__(self):
        super().__init__("holds a lock", threading.Lock())
        self.lock = threading.Lock()
        self.size = 3


class Slotted(Exception):
    __slots__ = ("where",)

    def __init__(self, where):
        super().__init__("slotted")
        self.where = where


class Mute(Exception):
    def __str__(self):
        raise OSError("no text")

    __repr__ = __str__


class Demanding(Exception):
    def __new__(cls, *, key):
        return super().__new__(cls)

    def __init__(self, *, key):
        super().__init__("demanding")
        self.key = key


class Deceitful(Exception):
    @property
    def args(self):
        raise RuntimeError("no args")


def http_error() -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://x/y", 404, "Not Found", Message(), io.BytesIO(b"body"))


def made_in_the_actor() -> Exception:
    class OnlyThere(LookupError):
        pass

    OnlyThere.__module__ = "a_module_of_the_worker"
    return OnlyThere("not known here")


def unreadable() -> Exception:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


MAKERS: dict[str, Any] = {
    "KeywordOnly": lambda: KeywordOnly(status=3),
    "Fixed": Fixed,
    "TwoNeeded": lambda: TwoNeeded(1, 2),
    "WithLock": WithLock,
    "Slotted": lambda: Slotted("here"),
    "Mute": Mute,
    "Demanding": lambda: Demanding(key=1),
    "Deceitful": lambda: Deceitful("text"),
    "KeyError": lambda: KeyError("lost"),
    "FileNotFoundError": lambda: FileNotFoundError(2, "No such file", "/no/where"),
    "UnicodeDecodeError": unreadable,
    "StopIteration": lambda: StopIteration("value"),
    "JSONDecodeError": lambda: json.JSONDecodeError("no json", "doc", 1),
    "BadZipFile": lambda: zipfile.BadZipFile("not a zip"),
    "SyntaxError": lambda: SyntaxError("wrong", ("file.py", 3, 1, "x =", 3, 4)),
    "ImportError": lambda: ImportError("no module", name="m", path="p"),
    "HTTPError": http_error,
    "OnlyThere": made_in_the_actor,
    "AssertionError": AssertionError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "RecursionError": lambda: RecursionError("too deep"),
    "MemoryError": lambda: MemoryError("no room"),
}


@parl_lite.remote_class
class Raising:
    """Raises what it is asked for."""

    def boom(self, name):
        raise MAKERS[name]()

    def chained(self):
        try:
            {}["missing"]
        except KeyError as error:
            raise TwoNeeded("a", "b") from error

    def during(self):
        try:
            {}["missing"]
        except KeyError:
            raise ValueError("while handling")  # noqa: B904

    def silenced(self):
        try:
            {}["missing"]
        except KeyError:
            raise ValueError("alone") from None

    def noted(self):
        error = ValueError("with notes")
        error.add_note("first note")
        raise error

    def group(self):
        members = [KeywordOnly(status=4), ValueError("one"), builtins.ExceptionGroup("inner", [KeyError("k")])]
        raise builtins.ExceptionGroup("several", members)

    def of(self, other):
        other.boom("TwoNeeded")

    def exits(self, code):
        sys.exit(code)

    @property
    def impossible(self):
        raise TwoNeeded("in", "property")

    def echo(self, value):
        return value


@parl_lite.remote_class
class Stillborn:
    def __init__(self, code=None):
        if code is not None:
            sys.exit(code)
        raise TwoNeeded("in", "constructor")


@pytest.fixture(scope="module")
def raising(cluster):
    actor = Raising()
    yield actor
    actor.destroy()


def caught(call, *args) -> Any:
    with pytest.raises(RemoteError) as info:
        call(*args)
    return info.value


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("blocking", [True, False])
def test_every_shape_arrives_with_name_text_and_traceback(raising, name, blocking):
    error = caught(raising.boom, name) if blocking else caught(raising.futures.boom(name).get)
    original = MAKERS[name]()
    assert error.type_name.endswith(name)
    assert name in str(error)
    assert "in boom" in str(error)
    assert "raise MAKERS[name]()" in error.remote_traceback
    assert "job.py" not in error.remote_traceback
    if name not in ("Mute", "Deceitful", "WithLock"):
        assert str(original) in str(error)
    known = name not in ("OnlyThere", "KeyboardInterrupt")
    assert isinstance(error, type(original)) == known
    assert raising.echo(1) == 1


def test_attributes_arrive(raising):
    assert caught(raising.boom, "KeywordOnly").status == 3
    assert caught(raising.boom, "TwoNeeded").pair == (1, 2)
    assert caught(raising.boom, "Slotted").where == "here"
    assert caught(raising.boom, "Demanding").key == 1
    assert caught(raising.boom, "KeyError").args == ("lost",)
    assert caught(raising.boom, "StopIteration").value == "value"
    assert caught(raising.boom, "ImportError").name == "m"
    missing = caught(raising.boom, "FileNotFoundError")
    assert (missing.errno, missing.strerror, missing.filename) == (2, "No such file", "/no/where")
    unreadable = caught(raising.boom, "UnicodeDecodeError")
    assert (unreadable.object, unreadable.start, unreadable.reason) == (b"\xff", 0, "invalid start byte")
    assert caught(raising.boom, "JSONDecodeError").pos == 1
    assert caught(raising.boom, "SyntaxError").lineno == 3


def test_what_cannot_travel_costs_only_itself(raising):
    error = caught(raising.boom, "WithLock")
    assert (error.size, error.args[0]) == (3, "holds a lock")
    assert "cannot be sent" in error.lock
    http = caught(raising.boom, "HTTPError")
    assert (http.code, http.reason, http.url) == (404, "Not Found", "http://x/y")
    assert not hasattr(http, "nonsense")


def test_causes_arrive(raising):
    error = caught(raising.chained)
    assert isinstance(error, TwoNeeded) and isinstance(error.__cause__, KeyError)
    assert error.__cause__.args == ("missing",)
    assert "direct cause" in error.remote_traceback and 'in chained\n    {}["missing"]' in error.remote_traceback
    error = caught(raising.during)
    assert error.__cause__ is None
    assert isinstance(error.__context__, KeyError)
    error = caught(raising.silenced)
    assert error.__context__ is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes")
def test_notes_arrive(raising):
    error = caught(raising.noted)
    assert error.__notes__ == ["first note"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")
def test_groups_arrive_with_their_members(raising):
    error = caught(raising.group)
    assert isinstance(error, builtins.ExceptionGroup)
    assert error.message == "several"
    keyword, value, inner = error.exceptions
    assert isinstance(keyword, KeywordOnly) and keyword.status == 4
    assert isinstance(value, ValueError) and str(value).endswith("one")
    assert isinstance(inner.exceptions[0], KeyError)
    matching, rest = error.split(ValueError)
    assert len(matching.exceptions) == 1 and len(rest.exceptions) == 2


def test_errors_of_properties_and_constructors_are_the_users_own(raising):
    with pytest.raises(TwoNeeded, match="in and property"):
        _ = raising.impossible
    with pytest.raises(TwoNeeded, match="in and constructor") as info:
        Stillborn()
    assert "in __init__" in info.value.remote_traceback


def test_an_error_that_passes_through_two_actors_is_still_itself(raising):
    middle = Raising()
    error = caught(middle.of, raising)
    assert isinstance(error, TwoNeeded) and error.pair == (1, 2)
    assert error.type_name.endswith("TwoNeeded")
    assert "in of" in error.remote_traceback and "in boom" in error.remote_traceback
    assert str(error).count("in boom") == 1
    middle.destroy()


def test_a_remote_error_can_be_a_value(raising):
    error = caught(raising.boom, "TwoNeeded")
    again = raising.echo(error)
    assert isinstance(again, TwoNeeded) and isinstance(again, RemoteError)
    assert (again.pair, str(again)) == (error.pair, str(error))


def test_an_error_is_raised_as_often_as_it_is_asked_for(raising):
    future = raising.futures.boom("KeyError")
    lengths = set()
    for _ in range(3):
        with pytest.raises(KeyError) as info:
            future.result()
        lengths.add(len(info.traceback))
    assert isinstance(future.exception(), KeyError)
    assert len(lengths) == 1  # it does not gather frames


@pytest.mark.parametrize(("code", "exit_code"), [(3, 3), (None, 0), ("a last word", 1)])
def test_exit_is_the_actors_own_wish_to_end(raising, code, exit_code):
    actor = Raising()
    with pytest.raises(ActorLostError) as info:
        actor.exits(code)
    assert not isinstance(info.value, RemoteError)
    assert info.value.exit_code == exit_code
    assert isinstance(code, str) <= ("a last word" in str(info.value))
    until(lambda: parl_lite.cluster_info()["free_cpu"] == 3, 5, "all slots but one are free")
    with pytest.raises(ActorLostError):
        actor.echo(1)


def test_a_constructor_that_exits_gives_its_slot_back(cluster):
    for _ in range(5):
        with pytest.raises(ActorLostError) as info:
            Stillborn(4)
        assert info.value.exit_code == 4
