"""The wiring of actors and learner, over fake actors whose calls end when the test says so."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

import parl_lite
from parl_lite.agents.trajectories import Trajectories
from parl_lite.errors import ActorLostError, ResourceError


class FakeActor:
    """Keeps what it was asked. `finish()` answers the oldest `sample`, `die()` fails everything under way."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.version = -1
        self.asked: list[tuple[str, int]] = []
        self.waiting: list[tuple[str, int, Future]] = []
        self.n_sent = 0
        self.dead = self.destroyed = False
        self.futures = self

    def set_weights(self, version: int, weights: str) -> Future:
        assert weights == f"weights {version}"
        return self._call("set_weights", version)

    def sample(self) -> Future:
        return self._call("sample", 0)

    def destroy(self) -> None:
        self.destroyed = True

    def finish(self) -> None:
        """Answer up to and with the next `sample`; a rollout is (rank, number, version)."""
        while True:
            name, version, future = self.waiting.pop(0)
            if name == "sample":
                future.set_result((self.rank, self.n_sent, self.version))
                self.n_sent += 1
                return
            self.version = version
            future.set_result(None)

    def die(self) -> None:
        self.dead = True
        for _, _, future in self.waiting:
            future.set_exception(ActorLostError(f"actor {self.rank} is lost"))

    def _call(self, name: str, version: int) -> Future:
        if self.dead:
            raise ActorLostError(f"actor {self.rank} is lost")
        self.asked.append((name, version))
        future: Future = Future()
        self.waiting.append((name, version, future))
        return future


class Stage:
    """Makes fake actors, and plays one scripted move each time the learner waits."""

    def __init__(self, monkeypatch) -> None:
        self.actors: list[FakeActor] = []
        self.moves: list = []
        monkeypatch.setattr(parl_lite, "wait", self._wait)

    def make(self, rank: int) -> FakeActor:
        assert rank == len(self.actors)
        self.actors.append(FakeActor(rank))
        return self.actors[-1]

    def _wait(self, futures, timeout=None, return_when="ALL_COMPLETED"):
        assert return_when == "FIRST_COMPLETED"
        self.moves.pop(0)()
        done = {future for future in futures if future.done()}
        return done, set(futures) - done


@pytest.fixture
def stage(monkeypatch) -> Stage:
    return Stage(monkeypatch)


def publish(trajectories: Trajectories, version: int) -> None:
    trajectories.publish(version, f"weights {version}")


def test_every_actor_has_k_calls_waiting_and_the_weights_before_the_first(stage):
    trajectories = Trajectories(stage.make, 2, calls_in_flight=3)
    publish(trajectories, 0)
    stage.moves = [lambda: stage.actors[1].finish()]
    assert trajectories.take(1) == [(1, 0, 0)]
    assert stage.actors[0].asked == [("set_weights", 0), *[("sample", 0)] * 3]
    assert stage.actors[1].asked == [("set_weights", 0), *[("sample", 0)] * 4]


def test_weights_are_sent_once_for_each_change(stage):
    trajectories = Trajectories(stage.make, 1, calls_in_flight=1)
    publish(trajectories, 0)
    stage.moves = [lambda: stage.actors[0].finish()] * 4
    for version in (0, 0, 1, 5):
        publish(trajectories, version)
        trajectories.take(1)
    sample = ("sample", 0)
    expected = [("set_weights", 0), *[sample] * 3, ("set_weights", 1), sample, ("set_weights", 5), sample]
    assert stage.actors[0].asked == expected


def test_a_rollout_is_at_most_k_calls_behind(stage):
    trajectories = Trajectories(stage.make, 1, calls_in_flight=2)
    stage.moves = [lambda: stage.actors[0].finish()] * 6
    behind = []
    for version in range(6):
        publish(trajectories, version)
        ((_, _, behaviour),) = trajectories.take(1)
        behind.append(version - behaviour)
    assert behind == [0, 1, 2, 2, 2, 2]


def test_rollouts_come_in_the_order_in_which_they_ended(stage):
    first, second = lambda: stage.actors[0].finish(), lambda: stage.actors[1].finish()
    trajectories = Trajectories(stage.make, 2)
    stage.moves = [first, second, second, first]
    publish(trajectories, 0)
    assert [(rank, number) for rank, number, _ in trajectories.take(4)] == [(0, 0), (1, 0), (1, 1), (0, 1)]


def test_more_rollouts_than_asked_for_are_kept_for_the_next_time(stage):
    trajectories = Trajectories(stage.make, 2)
    publish(trajectories, 0)
    stage.moves = [lambda: [actor.finish() for actor in stage.actors]]
    assert trajectories.take(1) == [(0, 0, 0)]
    assert trajectories.take(1) == [(1, 0, 0)]


def test_a_lost_actor_is_made_anew_with_a_rank_and_the_newest_weights(stage):
    trajectories = Trajectories(stage.make, 2)
    publish(trajectories, 3)
    stage.moves = [lambda: stage.actors[0].finish(), lambda: stage.actors[0].die(), lambda: stage.actors[2].finish()]
    assert trajectories.take(2) == [(0, 0, 3), (2, 0, 3)]
    assert (trajectories.n_actors, trajectories.n_lost) == (2, 1)


def test_an_actor_found_lost_when_it_is_asked_is_made_anew(stage):
    trajectories = Trajectories(stage.make, 1)
    publish(trajectories, 0)
    stage.actors[0].dead = True
    stage.moves = [lambda: stage.actors[1].finish()]
    assert trajectories.take(1) == [(1, 0, 0)]


def test_without_recreation_the_others_go_on_and_the_last_loss_is_raised(stage):
    trajectories = Trajectories(stage.make, 2, recreate=False)
    publish(trajectories, 0)
    stage.moves = [lambda: stage.actors[0].die(), lambda: stage.actors[1].finish()]
    assert trajectories.take(1) == [(1, 0, 0)]
    assert trajectories.n_actors == 1
    stage.moves = [lambda: stage.actors[1].die()]
    with pytest.raises(ActorLostError, match="actor 1"):
        trajectories.take(1)


def test_actors_that_die_before_their_first_rollout_again_and_again_are_not_made_for_ever(stage):
    trajectories = Trajectories(stage.make, 1)
    publish(trajectories, 0)
    stage.moves = [lambda number=number: stage.actors[number].die() for number in range(3)]
    with pytest.raises(ActorLostError, match="actor 2"):
        trajectories.take(1)


def test_a_first_rollout_ends_the_count_of_actors_that_died_before_theirs(stage):
    trajectories = Trajectories(stage.make, 1)
    publish(trajectories, 0)
    for number in (0, 1):
        stage.moves.append(lambda number=number: stage.actors[number].die())
    stage.moves += [lambda: stage.actors[2].finish()]
    for number in (2, 3, 4):
        stage.moves.append(lambda number=number: stage.actors[number].die())
    stage.moves += [lambda: stage.actors[5].finish()]
    assert trajectories.take(2) == [(2, 0, 0), (5, 0, 0)]
    assert trajectories.n_lost == 5


def test_without_room_for_a_new_actor_the_others_go_on(stage):
    def make(rank: int) -> FakeActor:
        if rank == 2:
            raise ResourceError("no slot")
        return stage.make(rank)

    trajectories = Trajectories(make, 2)
    publish(trajectories, 0)
    stage.moves = [lambda: stage.actors[0].die(), lambda: stage.actors[1].finish()]
    assert trajectories.take(1) == [(1, 0, 0)]
    assert trajectories.n_actors == 1


def test_weights_that_an_actor_refused_are_an_error_not_silence(stage):
    trajectories = Trajectories(stage.make, 1)
    publish(trajectories, 0)

    def refuse():
        _, _, future = stage.actors[0].waiting.pop(0)
        future.set_exception(ValueError("another shape"))
        stage.actors[0].finish()

    stage.moves = [refuse]
    with pytest.raises(ValueError, match="another shape"):
        trajectories.take(1)


def test_an_exception_of_sample_reaches_the_learner(stage):
    trajectories = Trajectories(stage.make, 1)
    publish(trajectories, 0)
    stage.moves = [lambda: stage.actors[0].waiting[1][2].set_exception(ValueError("no floor"))]
    with pytest.raises(ValueError, match="no floor"):
        trajectories.take(1)


def test_actors_are_ended_when_it_closes_and_when_one_could_not_be_made(stage):
    with Trajectories(stage.make, 2) as trajectories:
        pass
    trajectories.close()
    assert [actor.destroyed for actor in stage.actors] == [True, True]

    def make(rank: int) -> FakeActor:
        if rank == 1:
            raise ResourceError("no slot")
        return stage.make(len(stage.actors))

    with pytest.raises(ResourceError):
        Trajectories(make, 2)
    assert stage.actors[2].destroyed
