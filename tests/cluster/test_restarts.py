"""An actor with max_restarts that was lost is built anew with its arguments; one that wanted to end, or others, are not."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest

import parl_lite
from parl_lite import ActorLostError


@parl_lite.remote_class(max_restarts=2)
class Phoenix:
    """Can be killed twice."""

    def __init__(self, value, *, marks=None):
        self.value = value.copy()
        self.n = 0
        if marks is not None:
            with open(marks, "a") as file:
                file.write("born\n")

    def count(self):
        self.n += 1
        return self.n

    def sum(self):
        return float(self.value.sum())

    def pid(self):
        return os.getpid()

    def leave(self, code):
        sys.exit(code)


def lose(actor) -> None:
    """Kill the actor with a call under way."""
    pid = actor.pid()
    os.kill(pid, signal.SIGSTOP)
    future = actor.futures.count()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ActorLostError):
        future.result()


def test_a_lost_actor_is_built_anew_with_the_arguments_it_was_made_with(cluster, tmp_path):
    value, marks = np.ones(1000), tmp_path / "marks"
    actor = Phoenix(value, marks=str(marks))
    value[:] = 5  # too late: a value is fixed when the call is made
    first = actor.pid()
    assert actor.count() == 1
    for births in (2, 3):
        lose(actor)
        assert (actor.count(), actor.sum()) == (1, 1000.0)
        assert marks.read_text().count("born") == births
        assert actor.restarts == births - 1
    assert actor.pid() != first
    lose(actor)
    with pytest.raises(ActorLostError):
        actor.count()
    assert marks.read_text().count("born") == 3


def test_an_actor_that_ends_by_itself_stays_away(cluster):
    actor = Phoenix(np.ones(1))
    with pytest.raises(ActorLostError) as info:
        actor.leave(0)
    assert info.value.exit_code == 0
    with pytest.raises(ActorLostError):
        actor.count()


def test_an_actor_that_fails_is_built_anew(cluster):
    actor = Phoenix(np.ones(1))
    with pytest.raises(ActorLostError):
        actor.leave(3)
    assert actor.count() == 1
    assert actor.futures.count().result() == 2


def test_a_destroyed_actor_stays_destroyed(cluster):
    actor = Phoenix(np.ones(1))
    actor.destroy()
    with pytest.raises(ActorLostError, match="destroyed"):
        actor.count()


def test_an_actor_with_restarts_is_released_like_any_other(cluster):
    for _ in range(6):
        assert Phoenix(np.ones(1)).count() == 1
