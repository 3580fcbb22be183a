"""What wirings do in which order, over a fake pool that answers at once, and a learner that only counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parl_lite.agents.wirings import in_step, trajectories
from parl_lite.agents.wirings.actors import WorkClock
from parl_lite.agents.wirings.in_step import InStep
from parl_lite.agents.wirings.prefetch import Batch, Prefetch
from parl_lite.agents.wirings.trajectories import Trajectories
from parl_lite.agents.wirings.wiring import Stopwatch, scalars


class FakePool:
    """Actors in turn answer with a rollout of the weights that reached them before they were asked."""

    def __init__(self, n_actors: int) -> None:
        self.versions = [-1] * n_actors
        self.calls: list[Any] = []
        self.closed = False

    def broadcast(self, method: str, version_given: int, weights: Any, *, version: int) -> None:
        assert (method, weights, version) == ("set_weights", f"weights {version_given}", version_given + 1)
        self.calls.append(version_given)
        self.versions = [version_given] * len(self.versions)

    def map(self, method: str, items: Any) -> list[Any]:
        self.calls.append("map")
        return [self._rollout(self.versions[item], item) for item in items]

    def stream(self, method: str, in_flight: int) -> Iterator[Any]:
        waiting = [(actor, version) for _ in range(in_flight) for actor, version in enumerate(self.versions)]
        while True:
            actor, version = waiting.pop(0)
            waiting.append((actor, self.versions[actor]))
            yield actor, self._rollout(version, actor)

    def figures(self) -> list[dict[str, Any]]:
        return [{"restarts": 2, "alive": True}, {"restarts": 0, "alive": False}]

    def close(self) -> None:
        self.closed = True

    def _rollout(self, version: int, actor: int) -> dict[str, Any]:
        ended, valid = np.array([[np.nan, 1.0]]), np.ones((1, 2), dtype=bool)
        length = np.array([[0, 3]])
        return {"version": version, "actor": actor, "episode_return": ended, "episode_length": length, "valid": valid}


class FakeLearner:
    """Remembers from whose rollouts, of which versions, it learned."""

    def __init__(self) -> None:
        self.learned: list[list[tuple[int, int]]] = []

    def prepare(self, rollouts):
        return rollouts

    def learn(self, rollouts) -> dict[str, float]:
        self.learned.append([(rollout["actor"], rollout["version"]) for rollout in rollouts])
        return {"loss": 0.5}

    def get_weights(self) -> str:
        return f"weights {len(self.learned)}"


def plan(**settings: Any) -> Any:
    defaults = {"n_actors": 2, "rollouts_per_batch": 0, "calls_in_flight": 1, "max_lag": 0, "prefetch": 0}
    return SimpleNamespace(settings=SimpleNamespace(**{**defaults, **settings}), first_version=0)


@pytest.fixture(autouse=True)
def pool(monkeypatch) -> FakePool:
    pool = FakePool(2)
    for module in (in_step, trajectories):
        monkeypatch.setattr(module, "actor_pool", lambda plan: pool)
    return pool


def test_in_step_all_rollouts_are_of_the_weights_that_learn(pool):
    learner = FakeLearner()
    with InStep(plan(), learner) as wiring:
        updates = [wiring.update() for _ in range(3)]
    assert learner.learned == [[(0, n), (1, n)] for n in range(3)]
    assert pool.calls == [0, "map", 1, "map", 2, "map"]
    assert [update.lag for update in updates] == [0.0, 0.0, 0.0]
    assert (updates[0].env_steps, updates[0].episode_returns.tolist(), updates[0].metrics) == (4, [1.0, 1.0], {"loss": 0.5})
    assert wiring.n_lost == 3
    assert pool.closed


def test_by_trajectories_a_rollout_is_k_rollouts_of_its_actor_behind(pool):
    learner = FakeLearner()
    wiring = Trajectories(plan(calls_in_flight=2), learner)
    assert [wiring.update().lag for _ in range(5)] == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert learner.learned[0] == [(0, 0), (1, 0)]
    assert pool.calls == [0, 1, 2, 3, 4, 5]


def test_a_batch_has_as_many_rollouts_as_are_asked_for(pool):
    learner = FakeLearner()
    wiring = Trajectories(plan(rollouts_per_batch=3), learner)
    wiring.update()
    assert [actor for actor, _ in learner.learned[0]] == [0, 1, 0]


def test_rollouts_that_are_too_old_are_dropped_and_counted(pool):
    learner = FakeLearner()
    wiring = Trajectories(plan(calls_in_flight=4, max_lag=2), learner)
    updates = [wiring.update() for _ in range(6)]
    assert all(update.lag <= 2 for update in updates)
    assert updates[-1].metrics["stale_rollouts"] > 0


def test_versions_go_on_where_the_run_was_interrupted(pool):
    learner = FakeLearner()
    learner.learned = [[]] * 7
    interrupted = plan()
    interrupted.first_version = 7
    with InStep(interrupted, learner) as wiring:
        assert wiring.update().lag == 0.0
    assert pool.calls == [7, "map"]


class FakeSource:
    """Gives batches that say which weights were published before, and ends on demand."""

    def __init__(self) -> None:
        self.n_lost = 3
        self.closed = threading.Event()
        self.version = -1
        self.threads: set[int] = set()

    def publish(self, version: int, weights: Any) -> None:
        self.version = version

    def take(self) -> Batch:
        self.threads.add(threading.get_ident())
        if self.version == 99:
            raise ValueError("no floor")
        return Batch([], self.version)

    def close(self) -> None:
        self.closed.set()


def test_batches_are_made_ready_in_a_thread_that_follows_the_weights():
    source = FakeSource()
    prefetch = Prefetch(lambda: source, 1)
    prefetch.publish(0, "weights")
    assert prefetch.take().prepared == 0
    prefetch.publish(5, "weights")
    taken = [prefetch.take().prepared for _ in range(4)]  # one was in the queue, one in hand
    assert taken[-1] == 5 and taken == sorted(taken)
    assert prefetch.n_lost == 3
    assert threading.get_ident() not in source.threads
    prefetch.close()
    prefetch.close()
    assert source.closed.is_set()


def test_nothing_is_taken_before_there_are_weights():
    source = FakeSource()
    prefetch = Prefetch(lambda: source, 1)
    prefetch.close()
    assert source.threads == set()


def test_what_stops_the_thread_is_raised_to_the_learner():
    prefetch = Prefetch(FakeSource, 2)
    prefetch.publish(99, "weights")
    with pytest.raises(ValueError, match="no floor"):
        prefetch.take()
    prefetch.close()


def test_what_its_making_raises_is_raised_to_the_learner():
    def fail() -> FakeSource:
        raise ValueError("no room")

    prefetch = Prefetch(fail, 1)
    with pytest.raises(ValueError, match="no room"):
        prefetch.take()
    prefetch.close()


def test_a_thread_whose_batches_nobody_takes_can_be_ended():
    source = FakeSource()
    prefetch = Prefetch(lambda: source, 1)
    prefetch.publish(0, "weights")
    prefetch.take()
    prefetch.close()
    assert source.closed.is_set()


def test_an_actor_tells_work_from_waiting():
    moments = iter([0.0, 1.0, 3.0, 3.5, 4.0])
    clock = WorkClock(lambda: next(moments))
    clock.start()
    assert clock.stop() == {"actor_waited": 1.0, "actor_seconds": 3.0}
    clock.start()
    assert clock.stop() == {"actor_waited": 0.5, "actor_seconds": 1.0}


def test_a_stopwatch_adds_up():
    moments = iter([0.0, 1.0, 5.0, 7.0])
    stopwatch = Stopwatch(lambda: next(moments))
    for _ in range(2):
        with stopwatch:
            pass
    assert stopwatch.seconds == 3.0


def test_of_what_learn_returns_numbers_are_logged():
    assert scalars({"loss": np.float32(0.5), "priority": np.ones(3)}) == {"loss": 0.5}
    assert scalars(None) == {}
