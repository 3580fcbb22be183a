"""Actors that call actors: handles as values, time-outs of mutual calls, actors that make actors."""

from __future__ import annotations

import gc
import os
import warnings
from typing import Any

import pytest
from conftest import until

import parl_lite
from parl_lite import ActorLostError, RemoteError, client


@parl_lite.remote_class
class Node:
    """Calls others."""

    def __init__(self, other=None):
        self.other = other
        self.n = 0
        self.echo = self._say  # an attribute that hides a method

    def _say(self, value):
        return value

    def echo(self, value):
        return "the hidden method"

    def count(self):
        self.n += 1
        return self.n

    def call(self, other, name, *args):
        return getattr(other, name)(*args)

    def call_own(self, name):
        return getattr(self.other, name)()

    def call_back(self, other, own, timeout):
        """Have the other call this actor, which is busy waiting for it."""
        return other.ask(own, timeout)

    def ask(self, other, timeout):
        return other.futures.count().get(timeout=timeout)

    def keep(self, other):
        self.other = other
        return repr(other), isinstance(other, Node)

    def give(self):
        return self.other

    def set_on(self, other, value):
        other.n = value
        return other.n

    def pid(self):
        return os.getpid()

    def wait_for(self, path):
        with open(path) as fifo:
            return fifo.read()


@parl_lite.remote_class
class Boss:
    """Makes actors of its own."""

    def hire(self, n, last_timeout=None):
        """Make actors; wait for the slot of the last only so long."""
        parl_lite.connect()
        try:
            team = [Node() for _ in range(n - 1)]
            client.current().timeout = last_timeout or client.current().timeout
            team.append(Node())
            return [member.count() for member in team], parl_lite.cluster_info()["cluster"]
        finally:
            parl_lite.disconnect()

    def hire_and_keep(self):
        parl_lite.connect()
        self.one = Node()
        return self.one

    def ping(self):
        return 1


def free_cpu() -> int:
    return parl_lite.cluster_info()["free_cpu"]


@pytest.fixture
def pair(cluster) -> Any:
    """Return two actors."""
    gc.collect()
    first, second = Node(), Node()
    yield first, second
    first.destroy()
    second.destroy()


def test_a_handle_can_be_sent_and_calls_the_same_actor(pair):
    first, second = pair
    assert first.call(second, "count") == 1
    assert second.count() == 2
    assert first.set_on(second, 10) == 10
    assert second.n == 10
    assert first.call(second, "echo", "x") == "x"


def test_a_handle_can_be_kept_given_back_and_given_to_a_constructor(pair):
    first, second = pair
    assert first.keep(second) == (repr(second), True)
    assert first.call_own("count") == 1
    returned = first.give()
    assert isinstance(returned, Node) and repr(returned) == repr(second)
    assert returned.count() == 2
    third = Node(second)
    assert third.call_own("count") == 3
    third.destroy()


def test_a_handle_that_was_sent_does_not_keep_the_actor_alive(pair):
    first, _ = pair
    third = Node()
    first.keep(third)
    before = free_cpu()
    third.destroy()
    until(lambda: free_cpu() == before + 1, 5, "the slot is free")
    with pytest.raises(ActorLostError) as info:
        first.call_own("count")
    assert isinstance(info.value, RemoteError)  # the first actor raised it, and lives
    assert first.count() == 1


def test_a_handle_of_an_actor_that_is_gone_can_still_be_sent(pair):
    first, _ = pair
    third = Node()
    before = free_cpu()
    third.destroy()
    until(lambda: free_cpu() == before + 1, 5, "the slot is free")
    assert first.keep(third)[1]
    with pytest.raises(ActorLostError):
        first.call_own("count")
    assert first.count() == 1


def test_destroying_a_handle_that_was_sent_leaves_the_actor(pair):
    first, second = pair
    first.keep(second)
    returned = first.give()
    returned.destroy()
    assert second.count() == 1


def test_calls_that_wait_for_each_other_end_with_the_timeout(pair):
    first, second = pair
    with pytest.raises(TimeoutError, match="no result from Node"):
        first.call_back(second, first, 0.2)
    assert second.echo(1) == 1
    assert first.count() == 2  # the call that came too late was made all the same


def test_a_result_that_came_after_the_timeout_is_not_lost(pair, tmp_path):
    first, _ = pair
    path = tmp_path / "fifo"
    os.mkfifo(path)
    future = first.futures.wait_for(str(path))
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    with pytest.raises(TimeoutError):
        parl_lite.get([future], timeout=0.05)
    path.write_text("late")
    assert future.result() == "late" == future.result()


def test_an_actor_joins_the_cluster_that_it_lives_in(cluster):
    boss = Boss()
    counts, name = boss.hire(2)
    assert counts == [1, 1]
    assert name == parl_lite.cluster_info()["cluster"]
    until(lambda: free_cpu() == 3, 5, "the slots of the team are free")
    boss.destroy()


def test_making_actors_in_a_full_cluster_is_an_error_not_a_deadlock(cluster):
    boss = Boss()
    until(lambda: free_cpu() == 3, 5, "all other slots are free")
    with pytest.raises(parl_lite.ResourceError, match="no slot for it within"):
        boss.hire(4, last_timeout=1.0)
    assert boss.ping() == 1
    boss.destroy()


def test_actors_of_an_actor_end_with_it(cluster):
    boss = Boss()
    member = boss.hire_and_keep()
    assert member.count() == 1
    boss.destroy()
    until(lambda: free_cpu() == 4, 10, "both slots are free")
    with pytest.raises(ActorLostError):
        member.count()


def test_a_handle_does_not_survive_a_fork(pair):
    first, _ = pair
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads: that is what is tested
        child = os.fork()
    if child == 0:
        try:
            first.count()
        except parl_lite.NotConnectedError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as pipe:
        assert "does not survive fork" in pipe.read()
